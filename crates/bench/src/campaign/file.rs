//! The campaign file. Unknown keys are errors, and sizes have units. A parameter may be one value or a list. The
//! campaign does all combinations of lists.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::section::{
    Analysis, ClientAlone, Daq, Failure, Network, Placement, Repeat, Robust, Section, Small, Streams,
};
use super::trial::{Phase, Work};
use super::value::OneOrMany;
use crate::fault::Fault;
use crate::target::{PlaceError, TargetDir};
use crate::units::Family;
use crate::workload::{ForeignError, Iperf3Server, WorkError};

/// Why a campaign is not valid.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// The text is not TOML, a key is unknown, or a value has the wrong type.
    #[error("cannot read the campaign: {0}")]
    Syntax(#[from] toml::de::Error),
    /// The campaign has nothing to do.
    #[error("the campaign has no {0}")]
    Nothing(&'static str),
    /// Two systems have the same name.
    #[error("two systems have the name `{0}`; give each its own")]
    Twice(String),
    /// A directory of a system is not valid.
    #[error("system `{name}`: {source}")]
    TargetDir {
        /// The system.
        name: String,
        /// The reason.
        source: PlaceError,
    },
    /// The campaign has too many trials.
    #[error("the campaign has {0} trials, and {TRIALS_MAX} are allowed; remove some values or repeats")]
    TooManyTrials(u64),
    /// The parameters of a work are not valid.
    #[error("work `{name}`: {source}")]
    Work {
        /// The work.
        name: String,
        /// The reason.
        source: WorkError,
    },
    /// A failure section needs a command that breaks the system, and there is none.
    #[error(
        "system `{0}` has no command that breaks something, which `[[failure]]` needs: give `fail = [\"PROGRAM\", \"ARGUMENT\"]`"
    )]
    NoFail(String),
    /// The system has a token or an iperf3 address, but no network-test server.
    #[error("system `{name}` has `{key}` and no peer; give the HOST:PORT of its `weir bench flows`")]
    NoPeer {
        /// The system.
        name: String,
        /// The key that it has.
        key: &'static str,
    },
    /// An iperf3 address is not valid.
    #[error("system `{name}`: {source}")]
    Iperf3 {
        /// The system.
        name: String,
        /// The reason.
        source: ForeignError,
    },
    /// A network section needs network-test servers, and the systems have too few.
    #[error("work `{name}` {}; give systems a `peer`, the HOST:PORT of `weir bench flows` on their machines", if *at_once { "tests several systems at once, and fewer than two have a network-test server" } else { "tests the network, and no system has a network-test server" })]
    NoPeers {
        /// The work.
        name: String,
        /// Whether it needs several servers.
        at_once: bool,
    },
    /// A work needs more directories than any system has.
    #[error("work `{name}` uses {targets} directories, and no system has that many `place` entries")]
    Targets {
        /// The work.
        name: String,
        /// The number that it needs.
        targets: u32,
    },
    /// The disk of a system names an unknown system.
    #[error(
        "system `{name}`: `disk` names the system `{disk}`, which does not exist; add a system with a path on the same disk"
    )]
    NoDisk {
        /// The system.
        name: String,
        /// The name of the disk.
        disk: String,
    },
}

/// The most trials of a campaign.
pub const TRIALS_MAX: u64 = 100_000;
/// The default port of `iperf3 -s`.
const IPERF3_PORT: u16 = 5201;

/// A system that the campaign measures.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Its name in results.
    pub name: String,
    /// A directory on it, by path or URL. With several directories, files are spread over several servers or disks.
    pub place: OneOrMany<String>,
    /// The name of the system that is the disk below this one. Its rate is this system's ceiling.
    pub disk: Option<String>,
    /// The address of `weir bench flows` on its machine, `HOST:PORT`.
    pub peer: Option<String>,
    /// The address of `iperf3 -s` there, `HOST:PORT`. The default is the peer's host with iperf3's default port.
    pub iperf3: Option<String>,
    /// The file with the token that both sides share.
    pub token_file: Option<PathBuf>,
    /// A command that breaks a part of the system, for `[[failure]]`. It is a program with arguments, run without a
    /// shell.
    #[serde(default)]
    pub fail: Vec<String>,
    /// A command that restores it.
    #[serde(default)]
    pub restore: Vec<String>,
    /// A command that empties the caches of its servers before each cold read.
    #[serde(default)]
    pub empty_caches: Vec<String>,
    /// The site names of servers, by their `HOST` or `HOST:PORT`.
    #[serde(default)]
    pub sites: BTreeMap<String, String>,
    /// The names of its server's processes, if the server runs on this machine. Their CPU time counts as the
    /// server's.
    #[serde(default)]
    pub processes: Vec<String>,
    /// The names of processes that do a part of the work on each client, such as a FUSE mount. Their CPU time
    /// counts as the client's.
    #[serde(default)]
    pub client_processes: Vec<String>,
}

impl System {
    /// Returns its directories.
    ///
    /// # Errors
    /// [`CampaignError::TargetDir`].
    pub fn places(&self) -> Result<Vec<TargetDir>, CampaignError> {
        let failed = |source| CampaignError::TargetDir { name: self.name.clone(), source };
        self.place.all().iter().map(|place| TargetDir::parse(place).map_err(failed)).collect()
    }

    /// Whether it has a single directory, by `root://`.
    fn is_single_root(&self) -> bool {
        self.places().is_ok_and(|places| matches!(places[..], [TargetDir::Root(_)]))
    }

    /// Returns the `HOST:PORT` of the iperf3 server beside its network-test server; `None` if it has none.
    #[must_use]
    pub fn iperf3_server(&self) -> Option<String> {
        let (host, _) = self.peer.as_deref()?.rsplit_once(':')?;
        Some(self.iperf3.clone().unwrap_or_else(|| format!("{host}:{IPERF3_PORT}")))
    }

    /// Returns the commands that break and restore the system during `work`.
    #[must_use]
    pub fn faults(&self, work: &Work) -> Vec<Fault> {
        let fault = |what: &str, at_s: Option<u32>, command: &[String]| {
            let at_s = at_s.filter(|_| !command.is_empty())?;
            Some(Fault { what: what.to_owned(), at_s, command: command.to_vec() })
        };
        let all = [fault("fail", work.fail_at_s, &self.fail), fault("restore", work.restore_at_s, &self.restore)];
        all.into_iter().flatten().collect()
    }

    /// Returns the site of a server, or the server itself if its site is not known.
    #[must_use]
    pub fn site_of<'a>(&'a self, server: &'a str) -> &'a str {
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
        self.sites.get(server).or_else(|| self.sites.get(host)).map_or(server, String::as_str)
    }
}

/// A campaign.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    /// Its name in results.
    pub name: String,
    /// The seed of contents and orders.
    #[serde(default)]
    pub seed: u64,
    /// How often each trial is done. At least six repeats give an interval of 95 %.
    pub repeats: u32,
    /// The systems.
    #[serde(rename = "system", default)]
    pub systems: Vec<System>,
    /// Streams.
    #[serde(rename = "streams", default)]
    pub streams: Vec<Streams>,
    /// Small files.
    #[serde(rename = "small", default)]
    pub small: Vec<Small>,
    /// Data acquisition.
    #[serde(rename = "daq", default)]
    pub daq: Vec<Daq>,
    /// Jobs with many files of different sizes.
    #[serde(rename = "repeat", default)]
    pub repeat: Vec<Repeat>,
    /// Very many files of many clients.
    #[serde(rename = "robust", default)]
    pub robust: Vec<Robust>,
    /// Reading files that others wrote, with the servers that served them.
    #[serde(rename = "placement", default)]
    pub placement: Vec<Placement>,
    /// Work that continues while something is broken.
    #[serde(rename = "failure", default)]
    pub failure: Vec<Failure>,
    /// Analysis.
    #[serde(rename = "analysis", default)]
    pub analysis: Vec<Analysis>,
    /// The client alone.
    #[serde(rename = "client", default)]
    pub client: Vec<ClientAlone>,
    /// The network.
    #[serde(rename = "network", default)]
    pub network: Vec<Network>,
}

impl Campaign {
    /// Parses a campaign, and checks everything that can be known before any system is used.
    ///
    /// # Errors
    /// [`CampaignError`].
    pub fn parse(text: &str) -> Result<Self, CampaignError> {
        let campaign: Self = toml::from_str(text)?;
        campaign.check()?;
        Ok(campaign)
    }

    fn check(&self) -> Result<(), CampaignError> {
        if self.systems.is_empty() {
            return Err(CampaignError::Nothing("system"));
        }
        if self.repeats == 0 {
            return Err(CampaignError::Nothing("repeats"));
        }
        self.sections().try_for_each(Section::check)?;
        for (number, system) in self.systems.iter().enumerate() {
            if self.systems[..number].iter().any(|other| other.name == system.name) {
                return Err(CampaignError::Twice(system.name.clone()));
            }
            let name = || system.name.clone();
            if system.places()?.is_empty() {
                return Err(CampaignError::TargetDir { name: name(), source: PlaceError::Empty });
            }
            if !self.failure.is_empty() && system.fail.is_empty() {
                return Err(CampaignError::NoFail(name()));
            }
            let known = |disk: &String| self.systems.iter().any(|other| other.name == *disk);
            if let Some(disk) = system.disk.as_ref().filter(|disk| !known(disk)) {
                return Err(CampaignError::NoDisk { name: name(), disk: disk.clone() });
            }
            let keys = [("token_file", system.token_file.is_some()), ("iperf3", system.iperf3.is_some())];
            if let Some((key, _)) = keys.into_iter().find(|(_, given)| *given && system.peer.is_none()) {
                return Err(CampaignError::NoPeer { name: name(), key });
            }
        }
        let trials =
            self.combinations().saturating_mul(self.systems.len() as u64).saturating_mul(u64::from(self.repeats));
        if trials > TRIALS_MAX {
            return Err(CampaignError::TooManyTrials(trials));
        }
        if trials == 0 {
            return Err(CampaignError::Nothing(
                "work: network, client, streams, placement, daq, analysis, small, repeat, robust or failure",
            ));
        }
        let works = self.works();
        works.iter().try_for_each(Work::check)?;
        self.check_iperf3(&works)?;
        let peers = self.systems.iter().filter(|system| system.peer.is_some()).count();
        let lacks_peers = |work: &&Work| work.needs_peers() && peers < 1 + usize::from(!work.needs_system());
        if let Some(work) = works.iter().find(lacks_peers) {
            return Err(CampaignError::NoPeers { name: work.name.clone(), at_once: !work.needs_system() });
        }
        let places = self.systems.iter().map(|system| system.place.count()).max().unwrap_or(0);
        match works.iter().find(|work| work.targets.is_some_and(|targets| u64::from(targets) > places)) {
            Some(work) => {
                let targets = work.targets.unwrap_or_default();
                Err(CampaignError::Targets { name: work.name.clone(), targets })
            }
            None => Ok(()),
        }
    }

    /// Checks given iperf3 addresses, and those that follow from a peer if a work needs them.
    fn check_iperf3(&self, works: &[Work]) -> Result<(), CampaignError> {
        let is_by_iperf3 = |phase: &Phase| matches!(phase, Phase::ForeignFlows(_));
        let is_needed = works.iter().any(|work| work.phases.iter().any(is_by_iperf3));
        self.systems.iter().filter(|system| is_needed || system.iperf3.is_some()).try_for_each(|system| {
            let Some(address) = system.iperf3_server() else { return Ok(()) };
            let wrong = |source| CampaignError::Iperf3 { name: system.name.clone(), source };
            address.parse::<Iperf3Server>().map(drop).map_err(wrong)
        })
    }

    /// Returns the systems on which `work` is done, in the order of `systems`. Work without a system gets the
    /// number of the first one.
    #[must_use]
    pub fn systems_of(&self, work: &Work, systems: &[usize]) -> Vec<usize> {
        if !work.needs_system() {
            return vec![0];
        }
        let takes_part = |system: &System| {
            (!work.needs_peers() || system.peer.is_some())
                && work.fits(system.place.count())
                && (!work.only_root || system.is_single_root())
        };
        systems.iter().copied().filter(|number| self.systems.get(*number).is_some_and(takes_part)).collect()
    }

    /// All sections, in the order of their rows in results.
    fn sections(&self) -> impl Iterator<Item = &dyn Section> {
        fn all<S: Section>(sections: &[S]) -> impl Iterator<Item = &dyn Section> {
            sections.iter().map(|section| section as &dyn Section)
        }
        let streams = all(&self.client)
            .chain(all(&self.streams))
            .chain(all(&self.placement))
            .chain(all(&self.daq))
            .chain(all(&self.analysis));
        let files = all(&self.small).chain(all(&self.repeat)).chain(all(&self.robust));
        all(&self.network).chain(streams).chain(files).chain(all(&self.failure))
    }

    /// Returns the family of units for sums of the campaign's sizes: that of the given sizes of files. Rates are
    /// decimal, and so is anything in doubt.
    #[must_use]
    pub fn size_family(&self) -> Family {
        let given: Vec<Family> =
            self.sections().flat_map(Section::file_sizes).filter_map(|size| size.unit().family()).collect();
        let is_binary = !given.is_empty() && !given.contains(&Family::Decimal);
        if is_binary { Family::Binary } else { Family::Decimal }
    }

    fn combinations(&self) -> u64 {
        self.sections().map(Section::combinations).fold(0, u64::saturating_add)
    }

    /// Returns all works, in all combinations.
    #[must_use]
    pub fn works(&self) -> Vec<Work> {
        self.sections().flat_map(|section| section.works(self.seed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Window;

    const CAMPAIGN: &str = r#"
        name = "two disks"
        repeats = 3
        [[system]]
        name = "a"
        place = "/a"
        [[system]]
        name = "b"
        place = "root://b//data"
        [[streams]]
        name = "large"
        phases = ["write", "read", "random-read"]
        file = ["100MB", "1GiB"]
        block = "1MiB"
        streams = [1, 6, 8]
        [[small]]
        name = "small"
        clients = 4
        files = [512, 1024]
        file = "4KiB"
        one_directory = [false, true]
        [[daq]]
        name = "daq"
        recorders = [1, 6]
        file = "1GiB"
        block = "1MiB"
        rate = ["flat-out", "100MB"]
        followers = 1
        [[client]]
        name = "client"
        threads = [1, 6]
        block = "1MiB"
        [[repeat]]
        name = "job"
        jobs = [1, 4]
        files = 1000
        operations = 10000
        [[robust]]
        name = "robust"
        clients = 100
        files = 200
        [[placement]]
        name = "placement"
        clients = 4
        file = "1MB"
    "#;

    #[test]
    fn lists_are_combined() {
        let campaign = Campaign::parse(CAMPAIGN).unwrap();
        assert_eq!((campaign.works().len(), campaign.combinations()), (20, 20));
        assert_eq!(campaign.works().iter().filter(|work| !work.needs_system()).count(), 2);
    }

    #[test]
    fn a_window_is_a_number_or_automatic() {
        let with = |window: &str| {
            let streams = format!("streams = [1]\nwindow = {window}");
            // The last section is a placement.
            let text = format!("{}\nwindow = \"auto\"\n", CAMPAIGN.replace("streams = [1, 6, 8]", &streams));
            Campaign::parse(&text)
        };
        let campaign = with("[4, \"auto\"]").unwrap();
        let works = |name: &str| campaign.works().into_iter().filter(move |work| work.name == name).collect::<Vec<_>>();
        let windows = |name: &str| -> Vec<Window> {
            let phases = works(name).into_iter().flat_map(|work| work.phases);
            phases.filter_map(|phase| phase.workload().io_options()).map(|options| options.window).collect()
        };
        assert_eq!(windows("large"), [[Window::Fixed(4); 3], [Window::Auto; 3]].concat().repeat(2));
        assert_eq!(windows("placement"), [Window::Auto; 3]);
        assert_eq!(windows("daq"), [Window::Fixed(1); 4], "the default is the same for all systems");
        let shown =
            |work: &Work| work.parameters.iter().find(|(name, _)| name == "window").map(|(_, value)| value.clone());
        assert_eq!(works("large").iter().filter_map(shown).collect::<Vec<_>>(), ["4", "auto", "4", "auto"]);
        for wrong in ["\"fast\"", "\"4\"", "-1", "1.5", "[4, \"automatic\"]"] {
            let error = with(wrong).unwrap_err().to_string();
            assert!(error.contains("expected a window: a number of requests, or \"auto\""), "{error}");
        }
        assert!(with("0").unwrap_err().to_string().contains("window is 0; give at least 1"));
    }

    #[test]
    fn the_packages_of_uproot_vary_only_where_uproot_uses_them() {
        let text = r#"
            name = "c"
            repeats = 1
            [[system]]
            name = "disk"
            place = "/a"
            [[system]]
            name = "server"
            place = "root://b//"
            [[system]]
            name = "two"
            place = ["root://b//", "root://c//"]
            [[analysis]]
            name = "j"
            root_file = "/x.root"
            mode = "vector"
            beside = ["uproot"]
            uproot_with = ["weir", "fsspec-xrootd"]
        "#;
        let campaign = Campaign::parse(text).unwrap();
        let systems: Vec<_> = campaign.works().iter().map(|work| campaign.systems_of(work, &[0, 1, 2])).collect();
        assert_eq!(systems, [vec![0, 1, 2], vec![1]]);
    }

    #[test]
    fn flows_run_only_with_systems_that_have_a_server() {
        let network =
            "[[network]]\nname = \"net\"\nprotocols = [\"tcp\", \"udp\"]\nflows = [1, 6]\nat_once = [false, true]\n";
        let with = |text: &str, peers: usize| {
            let peer = |text: String, place: &str| {
                text.replace(&format!("place = {place}"), &format!("peer = \"h:1\"\nplace = {place}"))
            };
            let places = &["\"/a\"", "\"root://b//data\""][..peers];
            Campaign::parse(&places.iter().fold(format!("{CAMPAIGN}{text}"), |text, place| peer(text, place)))
        };
        let campaign = with(network, 2).unwrap();
        let flows: Vec<Work> = campaign.works().into_iter().filter(Work::needs_peers).collect();
        assert_eq!((flows.len(), campaign.combinations()), (8, campaign.works().len() as u64));
        let systems: Vec<_> = flows.iter().map(|work| campaign.systems_of(work, &[1, 0])).collect();
        assert_eq!(systems.iter().filter(|systems| **systems == [1, 0]).count(), 4);
        assert_eq!(systems.iter().filter(|systems| **systems == [0]).count(), 4);
        assert!(with(network, 0).unwrap_err().to_string().contains("no system has a network-test server"));
        assert!(with(network, 1).unwrap_err().to_string().contains("fewer than two"));
        let alone = network.replace("[false, true]", "false");
        assert_eq!(with(&alone, 1).unwrap().systems_of(&flows[0], &[1, 0]), [0]);
        assert!(with(&alone, 0).unwrap_err().to_string().contains("no system has a network-test server"));
        let beside = with(&format!("{alone}beside = [\"iperf3\"]\n"), 1).unwrap();
        let flows: Vec<Work> = beside.works().into_iter().filter(Work::needs_peers).collect();
        let titles: Vec<_> = flows[0].phases.iter().map(|phase| phase.workload().title()).collect();
        assert_eq!(titles, ["to", "to by iperf3", "from", "from by iperf3"]);
        assert_eq!(beside.systems_of(&flows[0], &[1, 0]), [0]);
        let wrong = with(&alone.replace("[1, 6]", "0"), 2).unwrap_err().to_string();
        assert!(wrong.contains("flows is 0"), "{wrong}");
        let wrong = with(&format!("{alone}datagram = \"1MiB\"\n"), 2).unwrap_err().to_string();
        assert!(wrong.contains("65507"), "{wrong}");
    }

    #[test]
    fn work_that_iperf3_cannot_do_is_refused_before_the_start() {
        let with = |system: &str, work: &str| {
            let system = format!("[[system]]\nname = \"a\"\nplace = \"/a\"\n{system}\n");
            let work = format!("[[network]]\nname = \"net\"\nbeside = [\"iperf3\"]\n{work}\n");
            Campaign::parse(&format!("name = \"c\"\nrepeats = 1\n{system}{work}"))
        };
        let server = |system: &str| with(system, "").unwrap().systems[0].iperf3_server().unwrap();
        assert_eq!(server("peer = \"h:1\""), "h:5201");
        assert_eq!(server("peer = \"[::1]:1\""), "[::1]:5201");
        assert_eq!(server("peer = \"h:1\"\niperf3 = \"other:7\""), "other:7");
        let wrong = |system: &str, work: &str| with(system, work).unwrap_err().to_string();
        assert!(wrong("", "").contains("no system has a network-test server"));
        assert!(wrong("iperf3 = \"h:1\"", "").contains("`iperf3` and no peer"));
        assert!(wrong("peer = \"h:1\"\niperf3 = \"h\"", "").contains("`h` is not the HOST:PORT"));
        assert!(wrong("peer = \"h:1\"\niperf3 = \"--logfile=x:1\"", "").contains("not the HOST:PORT"));
        assert!(wrong("peer = \"-R:1\"", "").contains("`-R:5201` is not the HOST:PORT"));
        let peer = "peer = \"h:1\"";
        assert!(wrong(peer, "processes = [\"one\", \"each\"]").contains("iperf3 does not support `processes"));
        assert!(wrong(peer, "flows = 129").contains("more than 128 flows"));
        assert!(wrong(peer, "block = \"2MiB\"").contains("blocks above 1048576 bytes"));
        let twice = format!("{peer}\n[[system]]\nname = \"b\"\nplace = \"/b\"\n{peer}");
        assert!(wrong(&twice, "at_once = [false, true]").contains("iperf3 does not support `at_once"));
    }

    #[test]
    fn after_write_stands_behind_a_phase_that_writes() {
        let with = |phases: &str| {
            Campaign::parse(&format!(
                "name = 'b'\nrepeats = 1\n[[system]]\nname = 'a'\nplace = '/a'\n[[streams]]\nname = 's'\nphases = [{phases}]\n\
                 file = '1MiB'\nblock = '64KiB'\nbeside = ['fio']\n"
            ))
        };
        for good in ["'write', 'after-write'", "'write', 'read', 'rewrite', 'after-write', 'reread'"] {
            let campaign = with(good).unwrap();
            assert!(campaign.works()[0].phases.iter().any(|phase| phase.workload().title() == "after-write by fio"));
        }
        for wrong in ["'write', 'read', 'after-write'", "'write', 'after-write', 'after-write'"] {
            let error = with(wrong).unwrap_err().to_string();
            assert!(error.contains("put it right behind one that writes"), "{error}");
        }
        assert!(with("'after-write'").unwrap_err().to_string().contains("put `write` before it"));
    }

    #[test]
    fn a_tool_runs_beside_the_phases_that_it_can_do() {
        let streams = "[[streams]]\nname = \"s\"\nphases = [\"write\"]\nfile = \"1MB\"\nblock = \"64KiB\"\n";
        let with = |work: &str, tool: &str| {
            let system = "[[system]]\nname = \"a\"\nplace = \"/a\"\npeer = \"h:1\"\n";
            let text = format!("name = \"c\"\nrepeats = 1\n{system}{work}beside = [\"{tool}\"]\n");
            Campaign::parse(&text).unwrap_err().to_string()
        };
        for tool in ["fio", "xrdcp", "netperf"] {
            let wrong = with("[[network]]\nname = \"n\"\n", tool);
            assert!(wrong.contains(&format!("unknown variant `{tool}`, expected `iperf3`")), "{wrong}");
        }
        let wrong = with(streams, "iperf3");
        assert!(wrong.contains("unknown variant `iperf3`, expected `fio` or `xrdcp`"), "{wrong}");
    }

    #[test]
    fn sizes_are_shown_in_the_unit_in_which_they_were_given() {
        let text = r#"
            name = "units"
            repeats = 1
            [[system]]
            name = "a"
            place = "/a"
            peer = "h:1"
            [[streams]]
            name = "s"
            phases = ["write"]
            file = ["100MB", "1GB", "64MiB"]
            block = "1024KiB"
            [[daq]]
            name = "d"
            recorders = 1
            file = "4GB"
            block = "1MB"
            rate = ["300MB", "flat-out"]
            [[small]]
            name = "f"
            clients = 1
            files = 1
            file = "183KB"
            [[robust]]
            name = "r"
            clients = 1
            files = 100
            sizes = ["4KiB", "10kB"]
            [[network]]
            name = "n"
            protocols = ["tcp", "udp"]
            [[analysis]]
            name = "j"
            synthetic = { file = "16GB", events = 1600000, branches = 500, basket = "16KiB" }
            mode = "vector"
            cache = "2MB"
        "#;
        let campaign = Campaign::parse(text).unwrap();
        let works = campaign.works();
        let shown = |work: &str, name: &str| -> Vec<String> {
            let of = works.iter().filter(|of| of.name == work).flat_map(|of| &of.parameters);
            of.filter(|parameter| parameter.0 == name).map(|parameter| parameter.1.clone()).collect()
        };
        assert_eq!(shown("s", "file"), ["100 MB", "1 GB", "64 MiB"]);
        assert_eq!(shown("s", "block"), ["1024 KiB"; 3]);
        assert_eq!(shown("d", "rate"), ["300 MB/s each", "flat out"]);
        assert_eq!(shown("d", "block"), ["1 MB"; 2]);
        assert_eq!((shown("f", "file"), shown("r", "sizes")), (vec!["183 KB".into()], vec!["4 KiB to 10 kB".into()]));
        assert_eq!(shown("n", "block"), ["128 KiB", "1400 B"]);
        assert_eq!(shown("j", "cache"), ["2 MB"]);
        assert!(shown("j", "source")[0].contains("baskets of 16 KiB"));
        // Sums are binary only if all given sizes are.
        assert_eq!(campaign.size_family(), Family::Decimal);
        let binary = "name = 'b'\nrepeats = 1\n[[system]]\nname = 'a'\nplace = '/a'\n[[streams]]\nname = 's'\nphases = ['write']\n\
                      file = '64MiB'\nblock = '1MiB'";
        assert_eq!(Campaign::parse(binary).unwrap().size_family(), Family::Binary);
    }

    #[test]
    fn invalid_campaigns_are_refused_before_the_start() {
        let with = |from: &str, to: &str| Campaign::parse(&CAMPAIGN.replace(from, to)).unwrap_err().to_string();
        assert!(with("block =", "blok =").contains("blok"));
        assert!(with("\"1MiB\"", "\"1\"").contains("64MiB"), "{}", with("\"1MiB\"", "\"1\""));
        assert!(with("\"b\"", "\"a\"").contains("two systems have the name `a`"));
        assert!(with("root://b//data", "gopher://b").contains("gopher"));
        assert!(with("repeats = 3", "repeats = 0").contains("repeats"));
        assert!(with("repeats = 3", "repeats = 9000").contains("360000 trials"));
        assert!(with("streams = [1, 6, 8]", "streams = [0]").contains("streams is 0"));
        assert!(with("\"write\", ", "").contains("write"), "{}", with("\"write\", ", ""));
        assert!(with("\"random-read\"", "\"sideways\"").contains("sideways"));
        assert!(with("phases", "direct = true\nphases").contains("4,096"));
        assert!(with("recorders = [1, 6]", "recorders = [1, 0]").contains("recorders is 0"));
        assert!(with("recorders = [1, 6]", "recorders = 1\ncopiers = 2").contains("copy_to"));
        assert!(with("\"flat-out\"", "\"fast\"").contains("fast"));
        assert!(with("place = \"/a\"", "place = \"/a\"\ndisk = \"c\"").contains("`c`"));
        assert!(with("files = 200", "files = 200\nphases = [\"read-back\"]").contains("fill"));
        assert!(with("jobs = [1, 4]", "jobs = 4\nsizes = [\"4KiB\", \"1KiB\"]").contains("smallest first"));
        assert!(with("streams = [1, 6, 8]", "targets = [1, 2]").contains("uses 2 directories"));
        let failure =
            "[[failure]]\nname = \"f\"\nfile = \"1MB\"\nblock = \"64KiB\"\nseconds = 9\nfail_at = 3\n[[client]]";
        assert!(with("[[client]]", failure).contains("no command that breaks"));
        assert!(with("[[client]]", &failure.replace("fail_at = 3", "fail_at = 9")).contains("9 s"));
        assert!(with("threads = [1, 6]", "threads = [1, 0]").contains("threads is 0"));
        assert!(with("place = \"/a\"", "place = \"/a\"\ntoken_file = \"f\"").contains("no peer"));
    }
}
