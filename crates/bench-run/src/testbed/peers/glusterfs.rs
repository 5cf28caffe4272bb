//! GlusterFS: a volume of one brick, mounted by its own client.

use super::super::plan::{Folder, NeededPart, Plan, Site, Step, System, command};

const PORT: u16 = 24007;

pub(super) fn plan(site: &Site<'_>) -> Plan {
    let (address, mount) = (site.address, site.folder.join("mount"));
    let brick = format!("{address}:{}", site.at("brick"));
    let gluster = |words: &[&str]| Step::Enter {
        server: "glusterd",
        command: command(&[&["gluster", "--mode=script"][..], words].concat()),
    };
    Plan {
        needs: vec![
            NeededPart { file: "glusterd", package: "glusterfs-server" },
            NeededPart { file: "gluster", package: "glusterfs-cli" },
            NeededPart { file: "glusterfs", package: "glusterfs-client" },
        ],
        kernel: vec![("fuse", "fuse")],
        folders: ["brick", "lib", "log", "run", "mount"].map(|name| Folder { name, owner: None }).to_vec(),
        remarks: vec![
            "A volume of one brick (distribute) with GlusterFS's own defaults, mounted by its FUSE client with its defaults.",
            "gluster volume create bench ADDRESS:BRICK force; gluster volume start bench",
        ],
        steps: vec![
            Step::Serve {
                name: "glusterd",
                binds: vec![
                    (site.at("lib"), "/var/lib/glusterd"),
                    (site.at("log"), "/var/log/glusterfs"),
                    (site.at("run"), "/run"),
                ],
                command: command(&["glusterd", "-N"]),
            },
            Step::Port(PORT),
            gluster(&["volume", "create", "bench", &brick, "force"]),
            gluster(&["volume", "start", "bench"]),
            Step::Mount {
                at: mount.clone(),
                client: Some("glusterfs client"),
                command: command(&[
                    "glusterfs",
                    "--no-daemon",
                    "--process-name",
                    "fuse",
                    &format!("--volfile-server={address}"),
                    "--volfile-id=/bench",
                    &format!("--log-file={}", site.at("log/client.log")),
                    &mount.display().to_string(),
                ]),
            },
        ],
        systems: vec![System { name: "glusterfs".to_owned(), place: mount.display().to_string() }],
        processes: vec!["glusterd", "glusterfsd"],
        client_processes: vec!["glusterfs"],
        victim: Some("glusterfsd"),
        after_restart: vec![gluster(&["volume", "start", "bench", "force"])],
        ..Plan::default()
    }
}
