//! Whose VOMS attributes count: `.lsc` files, `vomsdir/VO/HOST.lsc`.

use std::collections::HashMap;

use identity::DistinguishedName;

/// Most lines with a name in one file.
const NAMES_MAX: usize = 256;

/// A file of `vomsdir`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VomsServer {
    /// The virtual organization: the name of the file's directory.
    pub vo: String,
    /// The server's host: the name of the file.
    pub host: String,
    /// The content.
    pub text: String,
}

/// The servers of all organizations. A file may have several chains of names, one of which must be that of the signer: its
/// subject, then its issuer, and so on.
#[derive(Debug, Default)]
pub(crate) struct VomsServers(HashMap<(String, String), Vec<Vec<DistinguishedName>>>);

impl VomsServers {
    /// Reads the files. What is wrong with some of them is added to `problems`.
    pub fn new(files: &[VomsServer], problems: &mut Vec<String>) -> Self {
        let mut servers: HashMap<_, Vec<_>> = HashMap::new();
        for file in files {
            let (chains, wrong) = chains(&file.text);
            if let Some(why) = wrong {
                problems.push(format!("{}/{}.lsc: {why}", file.vo, file.host));
            }
            servers.entry((file.vo.clone(), file.host.to_ascii_lowercase())).or_default().extend(chains);
        }
        Self(servers)
    }

    /// The chains of a server; `None` if it has no file.
    pub fn chains(&self, vo: &str, host: &str) -> Option<&[Vec<DistinguishedName>]> {
        self.0.get(&(vo.to_owned(), host.to_ascii_lowercase())).map(Vec::as_slice)
    }
}

/// The chains of names in a file, and why one of them does not count. Lines such as `--- NEXT CHAIN ---` separate them.
fn chains(text: &str) -> (Vec<Vec<DistinguishedName>>, Option<String>) {
    let mut chains = Vec::new();
    let mut wrong = None;
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for lines in lines.split(|line| line.starts_with("--")) {
        let names = lines.iter().filter(|line| !line.is_empty() && !line.starts_with('#')).take(NAMES_MAX);
        let names: Result<Vec<_>, _> =
            names.map(|name| DistinguishedName::parse_escaped(name.trim_matches('"'))).collect();
        match names {
            Ok(names) if names.is_empty() => {}
            // With one name, any trusted authority could make a certificate of that name.
            Ok(names) if names.len() == 1 => wrong = Some(format!("{} stands without its issuer", names[0])),
            Ok(names) => chains.push(names),
            Err(error) => wrong = Some(error.to_string()),
        }
    }
    if chains.is_empty() && wrong.is_none() {
        wrong = Some("it has no names".into());
    }
    (chains, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_chains_of_names() {
        let read = |text: &str| {
            let (found, wrong) = chains(text);
            let found: Vec<String> = found
                .iter()
                .map(|names| names.iter().map(DistinguishedName::as_str).collect::<Vec<_>>().join(" < "))
                .collect();
            (found.join("; "), wrong.is_some())
        };
        assert_eq!(read("/CN=a\n/CN=b\n"), ("/CN=a < /CN=b".into(), false));
        let two = "# ours\n/CN=a\n \"/E=b@c\" \n------ NEXT CHAIN ------\n/CN=c\n/CN=d\n/CN=e\n";
        assert_eq!(read(two), ("/CN=a < /emailAddress=b@c; /CN=c < /CN=d < /CN=e".into(), false));
        assert_eq!(read("/CN=a\n"), (String::new(), true));
        assert_eq!(read("/CN=a\n/CN=b\n--\nx\n"), ("/CN=a < /CN=b".into(), true));
        assert_eq!(read(""), (String::new(), true));
    }
}
