//! weir itself: this program.

use super::super::plan::{Folder, Plan, Site, Step, System, command};

const PORT: u16 = 1094;

pub(super) fn plan(site: &Site<'_>) -> Plan {
    let listen = format!("{}:{PORT}", site.address);
    let weir = site.weir.display().to_string();
    Plan {
        folders: vec![Folder { name: "data", owner: None }],
        remarks: vec!["All settings are weir's defaults; --insecure, as no other machine reaches the address."],
        steps: vec![
            Step::Serve {
                name: "weir",
                binds: Vec::new(),
                command: command(&[&weir, "serve", "--data", &site.at("data/node"), "--listen", &listen, "--insecure"]),
            },
            Step::Port(PORT),
        ],
        systems: vec![System { name: "weir".to_owned(), place: format!("root://{listen}//") }],
        processes: vec!["weir"],
        victim: Some("weir"),
        ..Plan::default()
    }
}
