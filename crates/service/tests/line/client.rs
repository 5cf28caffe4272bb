//! A client of the line protocol. It follows redirects and waits when it is asked to, as clients of a cluster do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use service::{Principal, Service};
use types::ClientIdentity;

use super::Connection;

/// The services, by the `host:port` that redirects name.
pub type Network = HashMap<String, Arc<Service>>;

/// How long a client repeats a request that it is told to wait for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of redirects of one request.
const REDIRECTS_MAX: usize = 8;

/// A client with a connection to each service that it has asked.
pub struct Client {
    network: Arc<Network>,
    /// Where each request begins.
    home: String,
    principal: Principal,
    identity: ClientIdentity,
    protocol: &'static str,
    process: Option<u32>,
    connections: HashMap<String, Connection>,
    /// Where each file is open.
    files: HashMap<String, String>,
}

impl Client {
    /// A client that sends its requests to the service at `home`.
    pub fn new(network: &Arc<Network>, home: &str, principal: &Principal, identity: ClientIdentity) -> Self {
        let (connections, files) = (HashMap::new(), HashMap::new());
        Self {
            network: Arc::clone(network),
            home: home.to_owned(),
            principal: principal.clone(),
            identity,
            protocol: "root",
            process: None,
            connections,
            files,
        }
    }

    /// The client speaks the protocol of this name from now on.
    pub fn speaks(&mut self, protocol: &'static str) {
        self.protocol = protocol;
    }

    /// The client describes itself as the process of this number from now on.
    pub fn is_process(&mut self, pid: u32) {
        self.process = Some(pid);
    }

    /// Sends one line, and returns the last answer. Requests on an open file go where it is open.
    pub fn ask(&mut self, line: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask_once(line);
            if !answer.starts_with("wait ") || Instant::now() > end {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends one line, and follows redirects.
    fn ask_once(&mut self, line: &str) -> String {
        // A request number may come first.
        let mut words = line.split(' ').skip_while(|word| word.starts_with('#'));
        let (verb, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let opens = ["open", "partial", "create", "replace", "update", "append"].contains(&verb);
        let mut at = self.files.get(name).filter(|_| !opens).unwrap_or(&self.home).clone();
        let mut words = String::new();
        for _ in 0..=REDIRECTS_MAX {
            let answer = self.connection(&at).ask(&format!("{line}{words}"));
            let Some((to, with)) = answer.strip_prefix("redirect ").and_then(|to| to.split_once(' ')) else {
                if opens && answer.starts_with("ok") {
                    self.files.insert(name.to_owned(), at);
                }
                return answer;
            };
            (at, words) = (to.to_owned(), format!(" {with}"));
        }
        panic!("more than {REDIRECTS_MAX} redirects, the last one to {at}");
    }

    fn connection(&mut self, at: &str) -> &mut Connection {
        let Self { network, principal, identity, protocol, process, connections, .. } = self;
        let service = network.get(at).unwrap_or_else(|| panic!("a redirect to {at}, where nobody is"));
        connections.entry(at.to_owned()).or_insert_with(|| {
            let connection = Connection::new(service, principal, identity.clone(), protocol);
            process.iter().for_each(|pid| connection.is_process(*pid));
            connection
        })
    }

    /// Sends one line to the service where each request begins. Returns its answer, even if that is a redirect.
    pub fn at_home(&mut self, line: &str) -> String {
        self.at(&self.home.clone(), line)
    }

    /// Sends one line to the service at `place`. Returns its answer.
    pub fn at(&mut self, place: &str, line: &str) -> String {
        self.connection(place).ask(line)
    }

    /// The service that has the open file `name`.
    pub fn place_of(&self, name: &str) -> &str {
        &self.files[name]
    }

    /// Disconnects everywhere without a close.
    pub fn hang_up(self) {
        self.connections.into_values().for_each(Connection::hang_up);
    }
}
