//! nginx with its WebDAV modules.

use super::super::plan::{Folder, NeededPart, Plan, Site, Step, System, command};

const PORT: u16 = 80;
const MODULE: &str = "/usr/lib/nginx/modules/ngx_http_dav_ext_module.so";

pub(super) fn plan(site: &Site<'_>) -> Plan {
    let (folder, address) = (site.folder.display(), site.address);
    let config = format!(
        "load_module {MODULE};
user root;
daemon off;
worker_processes auto;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    client_max_body_size 0;
    client_body_temp_path {folder}/uploads;
    proxy_temp_path {folder}/unused;
    fastcgi_temp_path {folder}/unused;
    uwsgi_temp_path {folder}/unused;
    scgi_temp_path {folder}/unused;
    server {{
        listen {address}:{PORT};
        root {folder}/data;
        dav_methods PUT DELETE MKCOL;
        dav_ext_methods PROPFIND;
    }}
}}
"
    );
    Plan {
        needs: vec![
            NeededPart { file: "nginx", package: "nginx-light" },
            NeededPart { file: MODULE, package: "libnginx-mod-http-dav-ext" },
        ],
        folders: ["data", "uploads"].map(|name| Folder { name, owner: None }).to_vec(),
        files: vec![("nginx.conf", config)],
        remarks: vec![
            "An upload is written beside the data and given its name when it is whole; nothing is synced to the disk.",
        ],
        steps: vec![
            Step::Serve {
                name: "nginx",
                binds: Vec::new(),
                command: command(&["nginx", "-p", &site.folder.display().to_string(), "-c", &site.at("nginx.conf")]),
            },
            Step::Port(PORT),
        ],
        systems: vec![System { name: "nginx".to_owned(), place: format!("http://{address}:{PORT}/") }],
        processes: vec!["nginx"],
        ..Plan::default()
    }
}
