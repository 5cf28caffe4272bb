//! NFS 4.2: Ganesha over a plain directory, mounted by the kernel. The kernel's own server has a single table of exports for all network
//! namespaces, whereas Ganesha is an ordinary process.

use super::super::plan::{Folder, NeededPart, Plan, Site, Step, System, command};

const PORT: u16 = 2049;
const MODULE: &str = "/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so";

pub(super) fn plan(site: &Site<'_>) -> Plan {
    let (folder, address, mount) = (site.folder.display(), site.address, site.folder.join("mount"));
    let config = format!(
        "NFS_CORE_PARAM {{
    Protocols = 4;
    Bind_addr = {address};
    NFS_Port = {PORT};
    Enable_NLM = false;
    Enable_RQUOTA = false;
}}
NFSV4 {{
    Graceless = true;
    RecoveryRoot = {folder}/recovery;
}}
EXPORT {{
    Export_Id = 1;
    Path = {folder}/data;
    Pseudo = /bench;
    Access_Type = RW;
    Squash = No_Root_Squash;
    SecType = sys;
    Protocols = 4;
    Transports = TCP;
    FSAL {{ Name = VFS; }}
}}
"
    );
    let (at, conf, pid) = (mount.display().to_string(), site.at("ganesha.conf"), site.at("run/ganesha.pid"));
    Plan {
        needs: vec![
            NeededPart { file: "ganesha.nfsd", package: "nfs-ganesha" },
            NeededPart { file: MODULE, package: "nfs-ganesha-vfs" },
            NeededPart { file: "mount.nfs4", package: "nfs-common" },
        ],
        kernel: vec![("nfs4", "nfsv4")],
        folders: ["data", "recovery", "run", "mount"].map(|name| Folder { name, owner: None }).to_vec(),
        files: vec![("ganesha.conf", config)],
        remarks: vec!["Mounted with vers=4.2,proto=tcp,hard and the kernel's own defaults."],
        steps: vec![
            Step::Serve {
                name: "ganesha",
                binds: vec![(site.at("run"), "/run")],
                command: command(&["ganesha.nfsd", "-F", "-L", "STDERR", "-f", &conf, "-p", &pid]),
            },
            Step::Port(PORT),
            Step::Mount {
                at: mount,
                client: None,
                command: command(&[
                    "mount",
                    "-t",
                    "nfs4",
                    "-o",
                    "vers=4.2,proto=tcp,hard",
                    &format!("{address}:/bench"),
                    &at,
                ]),
            },
        ],
        systems: vec![System { name: "nfs".to_owned(), place: at }],
        processes: vec!["ganesha.nfsd"],
        client_processes: Vec::new(),
        victim: Some("ganesha"),
        after_restart: Vec::new(),
    }
}
