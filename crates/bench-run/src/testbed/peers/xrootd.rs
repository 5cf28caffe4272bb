//! XRootD: one data server over a plain directory, by its own protocol and by HTTP.

use super::super::plan::{Folder, NeededPart, Plan, Site, Step, System, command};

const PORT: u16 = 1094;
const HTTP_PORT: u16 = 8080;

pub(super) fn plan(site: &Site<'_>) -> Plan {
    let (data, admin) = (site.at("data"), site.at("admin"));
    let config = format!(
        "all.export /\noss.localroot {data}\nall.adminpath {admin}\nall.pidpath {admin}\nxrootd.chksum max 4 adler32 crc32c\n\
         xrd.protocol XrdHttp:{HTTP_PORT} libXrdHttp.so\nhttp.listingdeny no\n"
    );
    let user = Some("xrootd");
    Plan {
        needs: vec![NeededPart { file: "xrootd", package: "xrootd-server" }],
        folders: vec![Folder { name: "data", owner: user }, Folder { name: "admin", owner: user }],
        files: vec![("xrootd.cfg", config)],
        steps: vec![
            Step::Serve {
                name: "xrootd",
                binds: Vec::new(),
                // xrootd refuses to run as root.
                command: command(&["xrootd", "-c", &site.at("xrootd.cfg"), "-p", &PORT.to_string(), "-R", "xrootd"]),
            },
            Step::Port(PORT),
            Step::Port(HTTP_PORT),
        ],
        systems: vec![
            System { name: "xrootd".to_owned(), place: format!("root://{}:{PORT}//", site.address) },
            System { name: "xrootd-http".to_owned(), place: format!("http://{}:{HTTP_PORT}/", site.address) },
        ],
        processes: vec!["xrootd"],
        victim: Some("xrootd"),
        ..Plan::default()
    }
}
