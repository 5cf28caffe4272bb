//! `weir bench launch`: prints the few lines that start agents with a site's tools. A person checks and runs them.

use std::io::Write as _;

use console::{Exit, Failure};

use super::{failed, usage};
use crate::options::{LaunchOptions, Launcher};

/// Why there are no lines to print.
#[derive(Debug, thiserror::Error)]
enum LaunchError {
    #[error("give the hosts behind the options: {0} starts agents on those it is told")]
    NoHosts(&'static str),
    #[error("say how many with --agents N: {0} chooses the hosts")]
    NoNumber(&'static str),
    #[error("{0} chooses the hosts by itself; give --agents N, and no hosts")]
    Hosts(&'static str),
    #[error("`{0}` is no name of a host")]
    Host(String),
    #[error("--join {0}: give HOST:PORT as the agents reach it")]
    Join(String),
}

pub(super) fn run(args: &LaunchOptions) -> Result<Exit, Failure> {
    let text = lines(args).map_err(usage)?;
    std::io::stdout().lock().write_all(text.as_bytes()).map_err(failed)?;
    Ok(Exit::Done)
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@[]%+=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) && !word.contains('[') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn lines(args: &LaunchOptions) -> Result<String, LaunchError> {
    let is_host = |host: &&String| {
        let mut chars = host.chars();
        chars.next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '[')
            && chars.all(|c| c.is_ascii_alphanumeric() || "-._:@[],".contains(c))
    };
    if let Some(host) = args.hosts.iter().find(|host| !is_host(host)) {
        return Err(LaunchError::Host(host.clone()));
    }
    let port = args.join.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    if port.and_then(|port| port.parse::<u16>().ok()).is_none_or(|port| port == 0) {
        return Err(LaunchError::Join(args.join.clone()));
    }
    let number = |name| args.agents.ok_or(LaunchError::NoNumber(name));
    let no_hosts = |name| if args.hosts.is_empty() { Ok(()) } else { Err(LaunchError::Hosts(name)) };
    let hosts = |name| if args.hosts.is_empty() { Err(LaunchError::NoHosts(name)) } else { Ok(()) };
    let (join, file) = (quoted(&args.join), args.token_file.display().to_string());
    let file = quoted(&file);
    Ok(match args.via {
        Launcher::Ssh => {
            hosts("ssh")?;
            let hosts = args.hosts.join(" ");
            format!(
                "for host in {hosts}; do\n  \
                 scp -pq {file} $host:.weir-bench-token &&\n  \
                 ssh -n $host weir bench agent --join {join} --token-file .weir-bench-token --name $host &\n\
                 done; wait\n"
            )
        }
        Launcher::Clush => {
            hosts("clush")?;
            let hosts = quoted(&args.hosts.join(","));
            format!(
                "clush -w {hosts} -p --copy {file} --dest .weir-bench-token &&\n\
                 clush -w {hosts} weir bench agent --join {join} --token-file .weir-bench-token --name %host\n"
            )
        }
        Launcher::Slurm => {
            let count = match (args.agents, u16::try_from(args.hosts.len())) {
                (Some(count), _) => count,
                (None, Ok(count)) if count > 0 => count,
                _ => return Err(LaunchError::NoNumber("slurm, where no hosts are given,")),
            };
            let list = if args.hosts.is_empty() {
                String::new()
            } else {
                format!("#SBATCH --nodelist={}\n", args.hosts.join(","))
            };
            format!(
                "#!/bin/sh\n\
                 #SBATCH --job-name=weir-bench --nodes={count} --ntasks-per-node=1 --exclusive\n{list}\
                 # The token file has to be in a directory that all nodes see, as {file} then.\n\
                 srun weir bench agent --join {join} --token-file {file}\n"
            )
        }
        Launcher::Htcondor => {
            no_hosts("htcondor")?;
            let count = number("htcondor")?;
            // The transferred file keeps its name, without its directory.
            let name = args.token_file.file_name().unwrap_or_default().display().to_string();
            format!(
                "executable = /usr/bin/weir\n\
                 transfer_executable = false\n\
                 arguments = \"bench agent --join {join} --token-file '{name}' --name agent-$(Process)\"\n\
                 should_transfer_files = YES\n\
                 transfer_input_files = {}\n\
                 error = weir-bench-$(Process).err\n\
                 log = weir-bench.log\n\
                 queue {count}\n",
                args.token_file.display()
            )
        }
        Launcher::Kubernetes => {
            no_hosts("kubernetes")?;
            let count = number("kubernetes")?;
            format!(
                "# kubectl create secret generic weir-bench-token --from-file=token={file}\n{}",
                kubernetes(count, &args.join)
            )
        }
    })
}

fn kubernetes(count: u16, join: &str) -> String {
    // A JSON string is also a YAML string.
    let join = serde_json::Value::from(join).to_string();
    format!(
        r#"apiVersion: batch/v1
kind: Job
metadata:
  name: weir-bench
spec:
  completionMode: Indexed
  completions: {count}
  parallelism: {count}
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: agent
        image: weir # the image that holds weir at your site
        command: [weir, bench, agent, --join, {join}, --token-file, /run/weir-bench/token]
        volumeMounts:
        - name: token
          mountPath: /run/weir-bench
          readOnly: true
      volumes:
      - name: token
        secret:
          secretName: weir-bench-token
          defaultMode: 0400
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(via: Launcher, agents: Option<u16>, hosts: &[&str]) -> LaunchOptions {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        LaunchOptions { via, join: "head:7000".into(), token_file: "/home/me/my token".into(), agents, hosts }
    }

    #[test]
    fn each_launcher_gets_its_lines() {
        let text = |via, agents, hosts: &[&str]| lines(&args(via, agents, hosts)).unwrap();
        let ssh = text(Launcher::Ssh, None, &["n1", "n2"]);
        assert!(ssh.contains("for host in n1 n2;") && ssh.contains("'/home/me/my token'"), "{ssh}");
        assert!(text(Launcher::Clush, None, &["n[1-4]"]).contains("-w 'n[1-4]'"));
        let slurm = text(Launcher::Slurm, Some(4), &[]);
        assert!(slurm.starts_with("#!/bin/sh\n#SBATCH") && slurm.contains("--nodes=4"), "{slurm}");
        assert!(text(Launcher::Slurm, None, &["a", "b"]).contains("--nodelist=a,b"));
        let condor = text(Launcher::Htcondor, Some(3), &[]);
        assert!(condor.contains("--token-file 'my token'") && condor.contains("queue 3"), "{condor}");
        let kubernetes = text(Launcher::Kubernetes, Some(5), &[]);
        assert!(kubernetes.contains("completions: 5") && kubernetes.contains("\"head:7000\""), "{kubernetes}");
    }

    #[test]
    fn missing_and_wrong_options_are_named() {
        let why = |args: &LaunchOptions| lines(args).unwrap_err().to_string();
        assert!(why(&args(Launcher::Ssh, None, &[])).contains("hosts"));
        assert!(why(&args(Launcher::Htcondor, None, &[])).contains("--agents"));
        assert!(why(&args(Launcher::Kubernetes, Some(1), &["a"])).contains("no hosts"));
        assert!(why(&args(Launcher::Ssh, None, &["a;reboot"])).contains("no name of a host"));
        assert!(why(&args(Launcher::Ssh, None, &["-oProxyCommand=x"])).contains("no name of a host"));
        let wrong = |join: &str| why(&LaunchOptions { join: join.into(), ..args(Launcher::Ssh, None, &["a"]) });
        assert!(wrong("head").contains("HOST:PORT") && wrong("head:0").contains("HOST:PORT"));
        assert!(wrong(":7").contains("HOST:PORT"));
    }

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("head:7000"), "head:7000");
        assert_eq!(quoted("it's $(x)"), r"'it'\''s $(x)'");
        assert_eq!(quoted(""), "''");
    }
}
