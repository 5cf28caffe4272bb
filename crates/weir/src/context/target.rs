//! Which node a command asks. The first of these that is given wins:
//!
//! 1. `--data` or `--cluster`
//! 2. the environment variable `WEIR_CLUSTER`
//! 3. the environment variable `WEIR_DATA`
//! 4. the current context
//! 5. the data directory of the package

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use control::client::{self, Answers, AskError};
use control::{ControlRequest, remote};
use link::admin::{AdminIdentity, TrustedCluster};
use link::token::ADDRESSES_MAX;

use super::{Context, ContextError, Contexts, credential};
use crate::Failure;
use crate::cli::{DATA_DEFAULT, TargetArgs};
use crate::exit::Exit;
use crate::serve::now;

/// The port of a manager's address without one.
const PORT: u16 = 1095;
/// A command says nothing of shorter waits.
const TOLD_AFTER: Duration = Duration::from_secs(2);
/// How often it says that it still waits.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The node that a command asks.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The node that serves a data directory of this machine.
    Local {
        /// The directory.
        data: PathBuf,
        /// What named it.
        named_by: &'static str,
    },
    /// A manager of a cluster.
    Remote {
        /// The cluster, as the user named it.
        name: String,
        /// The name of the context.
        kept: String,
        /// Who asks, and at which addresses.
        context: Context,
    },
    /// The node that listens at a socket for all users of this machine.
    Socket(PathBuf),
}

/// What was given, in the order in which it wins.
#[derive(Debug, PartialEq, Eq)]
enum Given {
    Data(PathBuf, &'static str),
    Cluster(String),
    Context(String),
}

fn given(
    args: &TargetArgs,
    env: impl Fn(&str) -> Option<String>,
    current: impl FnOnce() -> Result<Option<String>, ContextError>,
) -> Result<Given, ContextError> {
    let env = |name: &str| env(name).filter(|value| !value.is_empty());
    if let Some(data) = &args.data {
        return Ok(Given::Data(data.clone(), "--data"));
    }
    if let Some(cluster) = args.cluster.clone().or_else(|| env("WEIR_CLUSTER")) {
        return Ok(Given::Cluster(cluster));
    }
    if let Some(data) = env("WEIR_DATA") {
        return Ok(Given::Data(data.into(), "WEIR_DATA"));
    }
    Ok(match current()? {
        Some(context) => Given::Context(context),
        None => Given::Data(DATA_DEFAULT.into(), "the default"),
    })
}

impl Target {
    /// The node that the command line, the environment or the current context names.
    pub(crate) fn of(args: &TargetArgs) -> Result<Self, Failure> {
        let usage = |error: ContextError| Failure::new(Exit::Usage, error);
        // Without a home there are no contexts.
        let current = || Contexts::of_user().map_or(Ok(None), |contexts| contexts.current());
        let env = |name: &str| std::env::var(name).ok();
        match given(args, env, current).map_err(usage)? {
            Given::Data(data, named_by) => Ok(Self::Local { data, named_by }),
            Given::Context(name) => {
                let identity = Contexts::of_user().and_then(|contexts| current_identity(&contexts, &name));
                Ok(Self::remote(name, identity.map_err(usage)?))
            }
            // No name of a context and no address has a slash.
            Given::Cluster(said) if said.starts_with('/') => Ok(Self::Socket(said.into())),
            Given::Cluster(said) => {
                let identity = Contexts::of_user().and_then(|contexts| named(&contexts, &said)).map_err(usage)?;
                let identity = identity.ok_or_else(|| unknown(&said))?;
                Ok(Self::remote(said, identity))
            }
        }
    }

    fn remote(name: String, (called, context): (String, Context)) -> Self {
        let context = match context {
            Context::Certificate(identity) => Context::Certificate(Box::new(Self::renewed(&name, &called, *identity))),
            context @ Context::Person(_) => context,
        };
        Self::Remote { name, kept: called, context }
    }

    /// The identity of the context with its certificate renewed, if it is time.
    fn renewed(name: &str, context: &str, identity: AdminIdentity) -> AdminIdentity {
        let now = now();
        if !identity.wants_renewal(now) || identity.expires() <= now {
            return identity;
        }
        renew(name, context, &identity).unwrap_or_else(|why| {
            let end = crate::time_text::show_time(u64::try_from(identity.expires().secs()).unwrap_or(0));
            let text = format!("weir: the certificate of context {context} ends {end} and could not be renewed: {why}");
            // Stderr may be closed.
            let _ = writeln!(std::io::stderr(), "{text}");
            identity
        })
    }

    /// Sends a request. Returns the answer and a reader of the bytes that follow it.
    pub(crate) fn ask(&self, what: &ControlRequest) -> Result<(serde_json::Value, Answers), AskError> {
        let (target, request) = (self.clone(), what.clone());
        watched(self.to_string(), move || target.ask_unwatched(&request))
    }

    fn ask_unwatched(&self, what: &ControlRequest) -> Result<(serde_json::Value, Answers), AskError> {
        match self {
            Self::Local { data, .. } => client::ask(data, what),
            Self::Remote { name, kept, context } => {
                let answered = match context {
                    Context::Certificate(identity) => remote::ask(name, identity, what)?,
                    Context::Person(cluster) => credential::ask(name, cluster, what)?,
                };
                if let Some(authority) = answered.authority
                    && let Err(why) = follow(name, kept, context, authority)
                {
                    let text =
                        format!("weir: the cluster replaces its authority, and context {kept} could not follow: {why}");
                    // Stderr may be closed.
                    let _ = writeln!(io::stderr(), "{text}");
                }
                if let Err(why) = learn(kept, &answered.managers) {
                    let text = format!("weir: context {kept} could not take over where the managers are: {why}");
                    let _ = writeln!(io::stderr(), "{text}");
                }
                Ok((answered.value, answered.following))
            }
            Self::Socket(socket) => client::ask_at(socket, what),
        }
    }

    /// The same, for an answer that may be longer than a line.
    pub(crate) fn ask_long<T: serde::de::DeserializeOwned>(&self, what: &ControlRequest) -> Result<T, AskError> {
        self.long(self.ask(what)?.1)
    }

    /// The same, without a word about how long that takes.
    pub(crate) fn ask_silently<T: serde::de::DeserializeOwned>(&self, what: &ControlRequest) -> Result<T, AskError> {
        self.long(self.ask_unwatched(what)?.1)
    }

    fn long<T: serde::de::DeserializeOwned>(&self, following: Answers) -> Result<T, AskError> {
        client::read_long(following).map_err(|source| AskError::Io { at: self.to_string(), source })
    }

    /// The failure of a request; `answered_by` says who answers it.
    pub(crate) fn failure(&self, error: AskError, answered_by: &str) -> Failure {
        match (&error, self) {
            (AskError::Absent(_), _) => Failure::new(Exit::NotFound, error),
            (AskError::Denied(_), _) => Failure::new(Exit::Denied, error),
            (AskError::Unreachable { .. }, _) => Failure::new(Exit::Unreachable, error),
            (AskError::NotRunning { .. }, Self::Local { named_by, .. }) => {
                let hint = match *named_by {
                    "the default" => {
                        " (the default: name another directory with --data or WEIR_DATA, or a cluster with --cluster, WEIR_CLUSTER or `weir context use`)"
                    }
                    "WEIR_DATA" => " (named by WEIR_DATA)",
                    _ => "",
                };
                Failure::message(Exit::Failed, format!("{answered_by}: {error}{hint}"))
            }
            (AskError::Io { source, .. }, Self::Local { .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                let hint = "only root and the user that weir runs as may use it; people to whom the settings give a role name the socket `administration.socket` with --cluster, or use a context with a token or a certificate";
                Failure::message(Exit::Denied, format!("{error}: {hint}"))
            }
            _ => Failure::new(Exit::Failed, error),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local { data, .. } => write!(f, "the node on {}", data.display()),
            Self::Remote { name, .. } => write!(f, "the manager of {name}"),
            Self::Socket(socket) => write!(f, "the node at {}", socket.display()),
        }
    }
}

/// Calls `ask` on its own thread. Its answer comes from the receiver, if somebody still waits for it.
pub(crate) fn on_own_thread<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> io::Result<Receiver<T>> {
    let (answers, answer) = sync_channel(1);
    let thread = std::thread::Builder::new().name("ask".into());
    thread.spawn(move || _ = answers.send(ask()))?;
    Ok(answer)
}

/// The answer of `ask`, which asks the node `at` on its own thread. When the answer takes two seconds, and every ten
/// seconds from then on, says on stderr what is waited for, and for how long at most.
pub(crate) fn watched<T: Send + 'static>(
    at: String,
    ask: impl FnOnce() -> Result<T, AskError> + Send + 'static,
) -> Result<T, AskError> {
    let failed = |source| AskError::Io { at: at.clone(), source };
    let answer = on_own_thread(ask).map_err(failed)?;
    let (begun, most) = (Instant::now(), client::PATIENCE);
    let mut pause = TOLD_AFTER;
    loop {
        match answer.recv_timeout(pause.min(most.saturating_sub(begun.elapsed()))) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Disconnected) => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let waited = begun.elapsed();
        if waited >= most {
            let text =
                format!("it has not answered for {} s; is the process stopped, or its disk stuck?", most.as_secs());
            return Err(failed(io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        pause = TOLD_EVERY;
        let left = (most.saturating_sub(waited) + Duration::from_millis(500)).as_secs();
        // Stderr may be closed.
        let _ = writeln!(
            io::stderr(),
            "weir: {at} does not answer; waiting for {} s, gives up in {left} s",
            waited.as_secs()
        );
    }
}

/// Renews the certificate of the context `kept`, and keeps it.
fn renew(name: &str, kept: &str, identity: &AdminIdentity) -> Result<AdminIdentity, String> {
    let renewed = remote::renew(name, identity, now())?;
    let contexts = Contexts::of_user().map_err(|error| error.to_string())?;
    // The addresses of the command line are not those of the context.
    let managers = contexts.read(kept).map_err(|error| error.to_string())?.managers().to_vec();
    let written = contexts.write(kept, &renewed.clone().with_managers(managers));
    written.map(|()| renewed).map_err(|error| error.to_string())
}

/// Lets the context `kept` know the cluster by its present authority, for which the one vouches that it knew until now.
fn follow(name: &str, kept: &str, context: &Context, authority: link::Fingerprint) -> Result<(), String> {
    if context.authority() == authority {
        return Ok(());
    }
    let contexts = Contexts::of_user().map_err(|error| error.to_string())?;
    let there = contexts.read(kept).map_err(|error| error.to_string())?;
    // An earlier request of this command may have done it.
    if there.authority() == authority {
        return Ok(());
    }
    match (context, there) {
        (Context::Certificate(identity), _) => renew(name, kept, identity).map(drop),
        (Context::Person(_), Context::Person(cluster)) => {
            contexts.write_cluster(kept, &TrustedCluster { authority, ..cluster }).map_err(|error| error.to_string())
        }
        (Context::Person(_), Context::Certificate(_)) => Ok(()),
    }
}

/// Lets the context `kept` know where the managers of its cluster are now. Without `managers`, nothing was told.
fn learn(kept: &str, managers: &[String]) -> Result<(), ContextError> {
    if managers.is_empty() { Ok(()) } else { Contexts::of_user()?.learn(kept, managers) }
}

fn current_identity(contexts: &Contexts, name: &str) -> Result<(String, Context), ContextError> {
    let context = contexts.find_to_ask(name)?.map_or_else(|| contexts.read(name), Ok)?;
    Ok((name.to_owned(), context))
}

/// The context with this name, or the one of a manager at one of these addresses. If no context has them, the current
/// context asks there: the certificate, not the address, decides whether it is the same cluster.
fn named(contexts: &Contexts, said: &str) -> Result<Option<(String, Context)>, ContextError> {
    if let Some(identity) = contexts.find_to_ask(said)? {
        return Ok(Some((said.to_owned(), identity)));
    }
    let Some(addresses) = addresses_of(said) else { return Ok(None) };
    let at = |identity: Context| identity.with_managers(addresses.clone());
    for name in contexts.names()? {
        // A context that cannot be read is no obstacle for others.
        if let Ok(Some(identity)) = contexts.find_to_ask(&name)
            && identity.managers().iter().any(|manager| addresses.iter().any(|address| is_same(manager, address)))
        {
            return Ok(Some((name, at(identity))));
        }
    }
    let Some(current) = contexts.current()? else { return Ok(None) };
    Ok(contexts.find_to_ask(&current)?.map(|identity| (current, at(identity))))
}

/// `HOST` or `HOST:PORT`, or several of them with commas between them, as `host:port`.
fn addresses_of(said: &str) -> Option<Vec<String>> {
    let addresses: Vec<String> = said.split(',').map(address_of).collect::<Option<_>>()?;
    (addresses.len() <= ADDRESSES_MAX).then_some(addresses)
}

/// `HOST` or `HOST:PORT` as `host:port`; `None` if it is neither.
fn address_of(said: &str) -> Option<String> {
    let is_host = |host: &str| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        match inner {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.bytes().all(fits),
        }
    };
    if is_host(said) {
        return Some(format!("{said}:{PORT}"));
    }
    let (host, port) = said.rsplit_once(':')?;
    (is_host(host) && port.parse::<u16>().is_ok_and(|port| port != 0)).then(|| said.to_owned())
}

fn is_same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

fn unknown(said: &str) -> Failure {
    let why = match addresses_of(said) {
        Some(_) => "no context has this name or a manager at this address",
        None => "no context has this name, and it is no HOST[:PORT][,HOST[:PORT]...]",
    };
    Failure::message(
        Exit::Usage,
        format!(
            "cannot ask `{said}`: {why}. `weir context list` shows all contexts; `weir context add NAME --invite-file FILE` makes one from an invitation"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_what_is_given_wins() {
        let args = |data: Option<&str>, cluster: Option<&str>| TargetArgs {
            data: data.map(PathBuf::from),
            cluster: cluster.map(str::to_owned),
        };
        let both = |name: &str| match name {
            "WEIR_CLUSTER" => Some("of-env".to_owned()),
            "WEIR_DATA" => Some("/env".to_owned()),
            _ => None,
        };
        let data_alone = |name: &str| (name == "WEIR_DATA").then(|| "/env".to_owned());
        let empty = |_: &str| Some(String::new());
        let current = || Ok(Some("cern".to_owned()));
        let given = |args: &TargetArgs, env: &dyn Fn(&str) -> Option<String>| given(args, env, current).unwrap();
        assert_eq!(given(&args(Some("/d"), None), &both), Given::Data("/d".into(), "--data"));
        assert_eq!(given(&args(None, Some("c")), &both), Given::Cluster("c".into()));
        assert_eq!(given(&args(None, None), &both), Given::Cluster("of-env".into()));
        assert_eq!(given(&args(None, Some("/run/s")), &both), Given::Cluster("/run/s".into()));
        assert_eq!(given(&args(None, None), &data_alone), Given::Data("/env".into(), "WEIR_DATA"));
        assert_eq!(given(&args(None, None), &empty), Given::Context("cern".into()));
        let nothing = super::given(&args(None, None), |_| None, || Ok(None)).unwrap();
        assert_eq!(nothing, Given::Data(DATA_DEFAULT.into(), "the default"));
    }

    #[test]
    fn addresses_get_the_port_of_managers() {
        assert_eq!(address_of("mgr1.example.org").as_deref(), Some("mgr1.example.org:1095"));
        assert_eq!(address_of("mgr1:2000").as_deref(), Some("mgr1:2000"));
        assert_eq!(address_of("[::1]").as_deref(), Some("[::1]:1095"));
        assert_eq!(address_of("[::1]:9").as_deref(), Some("[::1]:9"));
        for wrong in ["", ":", "a:0", "a:x", "a b", "root://a", "a/b", "[x]:1", "a:70000"] {
            assert_eq!(address_of(wrong), None, "{wrong}");
        }
        assert_eq!(addresses_of("mgr1,[::1]:9").unwrap(), ["mgr1:1095", "[::1]:9"]);
        let many = vec!["m"; ADDRESSES_MAX + 1].join(",");
        for wrong in ["", ",", "mgr1,", ",mgr1", "mgr1,,mgr2", "mgr1,a b", &many] {
            assert_eq!(addresses_of(wrong), None, "{wrong}");
        }
    }
}
