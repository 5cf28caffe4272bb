//! Opens that meet the open write of a striped file. The test answers for its disk servers.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use namespace::{EndStriped, NewStripe, Resume};
use node::ClientPresence;
use types::Stripe;
use types::striping::WriteSecret;

use super::*;

const GONE: ClientPresence = ClientPresence::Gone { ago_ms: 5000, left_ms: 55_000 };

/// Three disk servers, and a file with two stripe units, on the first and on the second.
struct Striped {
    cluster: Cluster,
    disks: Vec<NodeId>,
    opened: OpenedWrite,
}

/// What the manager has sent to a disk server, and what it was about: the file or a unit of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Sent {
    Asked(About),
    Claimed(About),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum About {
    File,
    Unit(usize),
}
use About::{File, Unit};
use Sent::{Asked, Claimed};

type Opened = Receiver<Result<NodeId, OpeningError>>;

impl Striped {
    fn new() -> Self {
        let cluster = Cluster::new();
        let disks: Vec<NodeId> = (1..=3).map(|number| cluster.disk(number).0).collect();
        disks.iter().zip(1..).for_each(|(disk, store)| cluster.reports(*disk, &[store]));
        cluster.groups(&[1, 2, 3]);
        let on = |store| Placement { group: GROUP, in_sync: in_sync(&[store]) };
        let stripe = Stripe::new(2, 1 << 20).unwrap();
        let stripe = NewStripe { stripe, units: vec![on(1), on(2)], secret: WriteSecret(1) };
        let placement = Placement { group: GroupId::STRIPED, in_sync: Vec::new() };
        let client = ClientIdentity { principal: PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() };
        let open = OpenWrite::new(NsPath::parse(b"/f").unwrap(), WriteMode::NewOnly, client, BootId(1));
        let opened = change(&cluster.namespace, OpenWrite { placement, stripe: Some(stripe), mode: 0o666, ..open });
        disks.iter().for_each(|disk| drop(cluster.sent(*disk)));
        Self { cluster, disks, opened }
    }

    /// The open write of a unit, if it has one.
    fn unit(&self, unit: usize) -> Option<WriterToken> {
        self.cluster
            .namespace
            .read(|read| {
                let (_, units) = namespace::units_of(read, self.opened.object)?;
                let content = units[unit].content().copied().unwrap();
                match content.state {
                    namespace::FileState::Open(by) => namespace::writer_of(read, by, content.object),
                    _ => Ok(None),
                }
            })
            .unwrap()
            .map(|writer| writer.token())
    }

    /// A unit ends: whole, or interrupted.
    fn ends_unit(&self, unit: usize, is_whole: bool) {
        let writer = self.unit(unit).unwrap();
        let by = StoreId(unit as u64 + 1);
        if is_whole {
            let sums = Some(namespace::Sums { adler32: types::Adler32(1), crc32c: types::Crc32c(7) });
            let len = if unit == 0 { 10 } else { 0 };
            let content = namespace::Committed { len, sums, mtime: None };
            let commit = namespace::Commit { writer, content, completion: namespace::Completion::ByClient };
            let commit = namespace::CommitPlaced { commit, group: GROUP, by, holders: vec![by] };
            change(&self.cluster.namespace, commit);
        } else {
            let interrupt = namespace::Interrupt { writer, kept_len: 0 };
            let interrupt = namespace::InterruptPlaced { interrupt, by: Some(by), holders: vec![by] };
            change(&self.cluster.namespace, interrupt);
        }
    }

    /// Another client of `principal` opens the file. `resume`: to go on with it.
    fn opens(&self, principal: u32, resume: bool) -> Opened {
        let path = NsPath::parse(b"/f").unwrap();
        let client =
            ClientIdentity { principal: PrincipalId(principal), user: "u".into(), pid: 2, host: "other".into() };
        let actor = Actor::new(PrincipalId(principal), Arc::from([PrincipalId(0)]));
        let open_request = OpenRequest::new(Timestamp(1), path.clone(), std::net::Ipv4Addr::LOCALHOST.into(), actor);
        let resume = resume.then_some(Resume::Visible);
        let op = OpenWrite { resume, ..OpenWrite::new(path, WriteMode::Update, client, BootId(1)) };
        let (sender, receiver) = channel();
        self.cluster.manager.open_write(open_request, op, move |result| drop(sender.send(result.map(|to| to.node))));
        receiver
    }

    /// What the manager has sent to each disk server since the last call, after it has sent `count` such messages in all.
    fn sent(&self, count: usize) -> Vec<Vec<Sent>> {
        let mut sent = self.sent_with_numbers(count);
        sent.iter_mut().for_each(|sent| sent.sort_by_key(|(sent, _, _)| *sent));
        sent.into_iter().map(|sent| sent.into_iter().map(|(sent, _, _)| sent).collect()).collect()
    }

    fn sent_with_numbers(&self, count: usize) -> Vec<Vec<(Sent, u64, WriterToken)>> {
        let units = [self.unit(0), self.unit(1)];
        let about = |writer: WriterToken| match units.iter().position(|unit| *unit == Some(writer)) {
            Some(unit) => Unit(unit),
            None => {
                assert_eq!(writer, self.opened.writer);
                File
            }
        };
        let known = |message: FromManager| match message {
            FromManager::AskClient { number, writer } => Some((Asked(about(writer)), number, writer)),
            FromManager::Claim(claim) => {
                assert!(claim.takes_over && claim.principal == PrincipalId(0));
                Some((Claimed(about(claim.writer)), claim.number, claim.writer))
            }
            _ => None,
        };
        let end = std::time::Instant::now() + Duration::from_secs(10);
        let mut sent = vec![Vec::new(); self.disks.len()];
        loop {
            for (disk, sent) in self.disks.iter().zip(&mut sent) {
                sent.extend(self.cluster.sent(*disk).into_iter().filter_map(known));
            }
            let got = sent.iter().map(Vec::len).sum::<usize>();
            if got >= count {
                assert_eq!(got, count, "{sent:?}");
                return sent;
            }
            assert!(std::time::Instant::now() < end, "the manager has sent only {sent:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Answers the questions of one poll. Whatever is not named is unknown to the server.
    fn answers(&self, count: usize, known: &[(usize, About, ClientPresence)]) {
        for (disk, asked) in self.sent_with_numbers(count).into_iter().enumerate() {
            for (asked, number, writer) in asked {
                let Asked(about) = asked else { panic!("{asked:?}") };
                let found = known.iter().find(|(at, of, _)| (*at, *of) == (disk, about));
                let found = found.map_or(ClientPresence::Unknown, |(_, _, found)| *found);
                self.cluster.manager.receive(self.disks[disk], FromDisk::Client { number, writer, found });
            }
        }
    }

    /// What another client is told if its servers answer so.
    fn told(&self, (principal, resume): (u32, bool), known: &[(usize, About, ClientPresence)]) -> OpeningError {
        let receiver = self.opens(principal, resume);
        self.answers([0, 1].into_iter().filter_map(|unit| self.unit(unit)).count() + 3, known);
        answer(&receiver)
    }

    /// The manager's clock advances, and its jobs run.
    fn passes(&self, secs: u64) {
        for _ in 0..secs {
            self.cluster.passes(1);
            self.cluster.manager.tick();
        }
    }
}

fn answer(receiver: &Opened) -> OpeningError {
    receiver.recv_timeout(Duration::from_secs(10)).unwrap().unwrap_err()
}

#[test]
fn it_is_taken_over_only_if_no_server_sees_its_client() {
    let file = Striped::new();
    let nothing: [Vec<Sent>; 3] = Default::default();
    let there = ClientPresence::There;
    // It is connected to one unit's server, or to a server that combines the units.
    for known in [
        vec![(0, Unit(0), GONE), (1, Unit(1), there)],
        vec![(2, File, there), (0, Unit(0), GONE), (1, Unit(1), GONE)],
        vec![(1, File, there)],
    ] {
        let said = file.told((0, true), &known);
        assert!(matches!(said, OpeningError::BeingWritten(_)), "{known:?}: {said}");
        assert!(said.to_string().contains("u.1@h (principal 0)"), "{said}");
        assert_eq!(file.sent(0), nothing, "{known:?}");
    }
    let ending = file.told((0, true), &[(0, Unit(0), GONE), (1, Unit(1), ClientPresence::Ending)]);
    assert!(matches!(ending, OpeningError::Wait { .. }), "{ending}");
    // It is gone: but not for another principal, and not for a client that does not go on with it.
    let gone = [(0, Unit(0), GONE), (1, Unit(1), GONE)];
    for who in [(7, true), (0, false)] {
        let said = file.told(who, &gone);
        assert!(matches!(said, OpeningError::BeingWritten(_)), "{said}");
        assert_eq!(said.to_string().contains("weir.resume=1"), who.0 == 0, "{said}");
        assert_eq!(file.sent(0), nothing);
    }
    let taken = file.told((0, true), &gone);
    assert!(matches!(taken, OpeningError::Wait { .. }), "the client asks again: {taken}");
    assert_eq!(file.sent(2), [vec![Claimed(Unit(0))], vec![Claimed(Unit(1))], vec![]], "each primary decides again");
    // A server that combines the units for a client that is gone has them open, and ends the file itself.
    let combined = [(2, File, GONE), (0, Unit(0), there), (1, Unit(1), there)];
    assert!(matches!(file.told((0, true), &combined), OpeningError::Wait { .. }));
    assert_eq!(file.sent(1), [vec![], vec![], vec![Claimed(File)]]);
    let combined = [(2, File, GONE), (0, Unit(0), there), (1, Unit(1), GONE)];
    assert!(matches!(file.told((0, true), &combined), OpeningError::Wait { .. }));
    assert_eq!(file.sent(2), [vec![], vec![Claimed(Unit(1))], vec![Claimed(File)]], "it may have lost a unit");
    // When the units have ended, the file ends at once.
    file.passes(3);
    file.ends_unit(0, false);
    file.ends_unit(1, false);
    file.passes(3);
    assert!(file.cluster.writers().is_empty());
}

/// The end of a striped file, which says when its transaction begins, and waits in it until its sender is dropped.
struct SlowEnd {
    ends: EndStriped,
    begins: Sender<()>,
    until: Mutex<Receiver<()>>,
}

impl Operation for SlowEnd {
    const TAG: namespace::OpTag = EndStriped::TAG;
    type Reply = <EndStriped as Operation>::Reply;
    fn run(&self, txn: &mut dyn kv::Txn, ctx: &namespace::Context) -> Result<Self::Reply, namespace::NsError> {
        self.begins.send(()).unwrap();
        // It never receives anything.
        let _ = self.until.lock().recv_timeout(Duration::from_secs(10));
        self.ends.run(txn, ctx)
    }
}

#[test]
fn an_open_write_that_ends_while_another_client_asks_to_go_on_with_the_file_is_continued() {
    let file = Striped::new();
    file.ends_unit(0, false);
    file.ends_unit(1, false);
    let namespace = &file.cluster.namespace;
    let ((begins, begun), (end, until)) = (channel(), channel());
    let ends = SlowEnd { ends: EndStriped { writer: file.opened.writer }, begins, until: Mutex::new(until) };
    std::thread::scope(|scope| {
        // Each change runs, or waits for others, in the thread that asks for it.
        scope.spawn(move || {
            let context = namespace.context(Timestamp(1), &Actor::admin(), None);
            namespace.change(Durability::Written, context, ends, drop);
        });
        begun.recv_timeout(Duration::from_secs(10)).unwrap();
        // The manager still sees the open write, whose end comes first all the same.
        let opens = scope.spawn(|| file.opens(0, true));
        std::thread::sleep(Duration::from_millis(200));
        drop(end);
        opens.join().unwrap().recv_timeout(Duration::from_secs(10)).unwrap().unwrap();
    });
}

#[test]
fn units_that_nobody_has_are_left_to_a_client_on_its_way() {
    let file = Striped::new();
    assert!(matches!(file.told((0, true), &[]), OpeningError::Wait { .. }));
    file.passes(3);
    assert!(matches!(file.told((0, true), &[]), OpeningError::Wait { .. }));
    file.passes(1);
    assert!(file.unit(0).is_some() && file.unit(1).is_some(), "it may take five seconds");
}

#[test]
fn a_client_that_has_closed_all_units_may_still_complete_the_file() {
    let file = Striped::new();
    file.ends_unit(0, true);
    file.ends_unit(1, true);
    let is_open = || file.cluster.writers().contains(&file.opened.writer);
    assert!(matches!(file.told((0, true), &[]), OpeningError::Wait { .. }));
    file.passes(4);
    assert!(matches!(file.told((0, true), &[]), OpeningError::Wait { .. }));
    file.passes(2);
    assert!(is_open(), "it may take five seconds from the last unit to the file");
    assert!(matches!(file.told((0, true), &[]), OpeningError::Wait { .. }));
    file.passes(3);
    assert!(!is_open(), "no grace period");
    let writing = types::striping::StripedOpenWrite { writer: file.opened.writer, secret: WriteSecret(1) };
    let late = namespace::CommitStriped { writing, mtime: None, sums: None, unit_sums: None };
    change(&file.cluster.namespace, late);
}

#[test]
fn many_readers_ask_once_and_servers_that_do_not_answer_keep_nobody_waiting() {
    let file = Striped::new();
    let receivers: Vec<Opened> = (0..50).map(|_| file.opens(0, true)).collect();
    file.answers(5, &[(0, Unit(0), ClientPresence::There)]);
    for receiver in &receivers {
        assert!(matches!(answer(receiver), OpeningError::BeingWritten(_)));
    }
    let receiver = file.opens(0, true);
    let asked = file.sent_with_numbers(5);
    // One of them answers, and one for another.
    let (_, number, writer) = asked[0][0];
    let of_another = FromDisk::Client { number, writer: asked[1][0].2, found: ClientPresence::Unknown };
    file.cluster.manager.receive(file.disks[0], of_another);
    file.cluster.manager.receive(file.disks[0], FromDisk::Client { number, writer, found: GONE });
    file.passes(4);
    assert_eq!(receiver.try_recv().map(drop).unwrap_err(), TryRecvError::Empty);
    file.passes(2);
    assert_eq!(answer(&receiver).code(), ErrorCode::Busy);
    // A server that cannot be reached is not waited for.
    file.cluster.told.full.lock().insert(file.disks[1]);
    assert_eq!(answer(&file.opens(0, true)).code(), ErrorCode::Busy);
    let ended = file.cluster.namespace.context(Timestamp(1), &Actor::admin(), None);
    let ended =
        file.cluster.namespace.change_wait(Durability::Synced, ended, EndStriped { writer: file.opened.writer });
    assert_eq!(ended.unwrap_err().code(), ErrorCode::Stale, "nothing of it has ended");
}
