//! MooseFS: a master and a chunk server, mounted by its own client.

use super::super::plan::{Folder, NeededPart, Plan, Site, Step, System, command};

const CLIENT_PORT: u16 = 9421;
const CHUNK_PORT: u16 = 9422;

pub(super) fn plan(site: &Site<'_>) -> Plan {
    let (address, mount) = (site.address, site.folder.join("mount"));
    let at = mount.display().to_string();
    let common = "WORKING_USER = root\nWORKING_GROUP = root\nNICE_LEVEL = 0\nDISABLE_OOM_KILLER = 0\n";
    let master = format!("{common}DATA_PATH = {}\nEXPORTS_FILENAME = {}\n", site.at("master"), site.at("exports.cfg"));
    let chunks = format!(
        "{common}DATA_PATH = {}\nHDD_CONF_FILENAME = {}\nMASTER_HOST = {address}\n",
        site.at("chunks"),
        site.at("hdd.cfg")
    );
    let serve = |name, program, config: &str| Step::Serve {
        name,
        binds: Vec::new(),
        command: command(&[program, "-f", "-c", &site.at(config), "start"]),
    };
    Plan {
        needs: vec![
            NeededPart { file: "mfsmaster", package: "moosefs-master" },
            NeededPart { file: "mfschunkserver", package: "moosefs-chunkserver" },
            NeededPart { file: "mfsmount", package: "moosefs-client" },
        ],
        kernel: vec![("fuse", "fuse")],
        folders: ["master", "chunks", "disk", "mount"].map(|name| Folder { name, owner: None }).to_vec(),
        files: vec![
            // The initial file of a new master, as the package has it.
            ("master/metadata.mfs", "MFSM NEW".to_owned()),
            ("master.cfg", master),
            ("exports.cfg", "* / rw,alldirs,admin,maproot=0:0\n".to_owned()),
            ("chunks.cfg", chunks),
            ("hdd.cfg", format!("{}\n", site.at("disk"))),
        ],
        remarks: vec!["One copy of each chunk (goal 1): there is one chunk server. All else is MooseFS's own default."],
        steps: vec![
            serve("mfsmaster", "mfsmaster", "master.cfg"),
            Step::Port(CLIENT_PORT),
            serve("mfschunkserver", "mfschunkserver", "chunks.cfg"),
            Step::Port(CHUNK_PORT),
            Step::Mount {
                at: mount,
                client: Some("mfsmount"),
                command: command(&["mfsmount", "-f", "-H", address, "-P", &CLIENT_PORT.to_string(), &at]),
            },
            Step::Run(command(&["mfssetgoal", "-r", "1", &at])),
            // The chunk server registers with the master a little after it listens. Only then can clients write.
            Step::Run(command(&["dd", "if=/dev/zero", &format!("of={at}/ready"), "bs=1", "count=1", "conv=fsync"])),
            Step::Run(command(&["rm", &format!("{at}/ready")])),
            Step::Room(at.clone().into()),
        ],
        systems: vec![System { name: "moosefs".to_owned(), place: at }],
        processes: vec!["mfsmaster", "mfschunkserver"],
        client_processes: vec!["mfsmount"],
        victim: Some("mfschunkserver"),
        after_restart: Vec::new(),
    }
}
