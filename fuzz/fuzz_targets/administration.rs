//! The requests of administrators, as a manager gets them from the network and a node from its sockets: whatever the line is, each caller gets one line
//! as the answer, nobody without a role gets anything done, and what is understood is read back the same.
#![no_main]

use std::sync::OnceLock;

use audit::Log;
use control::remote::{CertificateRequest, TokenRequest};
use control::{Answers, Caller, ControlRequest, Reply, gate};
use libfuzzer_sys::fuzz_target;
use link::admin::{AdminId, AdminRole};

fn answers() -> &'static Answers {
    static ANSWERS: OnceLock<Answers> = OnceLock::new();
    ANSWERS.get_or_init(|| {
        Answers::new(|caller, ask| {
            assert!(matches!(caller, Caller::Remote { .. } | Caller::Local { .. }));
            let line = serde_json::to_vec(&ask).expect("a request can be written");
            assert_eq!(serde_json::from_slice::<ControlRequest>(&line).expect("and read back"), ask);
            Reply::Done(serde_json::Value::Null)
        })
    })
}

/// Serves `line` to `caller`: one line of JSON.
fn served(line: &[u8], caller: Result<Caller, Reply>) -> serde_json::Value {
    let mut out = Vec::new();
    gate::serve(line, &mut out, || caller, answers(), &Log::off()).expect("memory takes all");
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
    serde_json::from_slice(&out).expect("the answer is JSON")
}

fn serve_all(line: &[u8]) {
    let remote = |role| {
        let peer = "192.0.2.1:9".parse().expect("an address");
        Ok(Caller::Remote { id: AdminId([0; 16]), name: "ana".into(), role, peer })
    };
    assert_eq!(served(line, Err(Reply::Denied("nobody".into())))["denied"], true);
    let by_admin = served(line, remote(AdminRole::Admin));
    let by_viewer = served(line, remote(AdminRole::Viewer));
    // Whoever has a lower role gets nothing done that is denied to a higher one.
    assert!(by_viewer.get("ok").is_none() || by_admin.get("ok").is_some());
    served(line, Ok(Caller::Local { uid: 0, user: None }));
}

fuzz_target!(|data: &[u8]| {
    let line = gate::read(data).expect("memory can be read");
    serve_all(&line);
    if let Some(asked) = TokenRequest::of_line(&line) {
        assert_eq!(format!("{asked:?}"), "TokenRequest(..)");
        let again = asked.request_line();
        assert!(!again.contains(&b'\n'));
        serve_all(&again);
    }
    if let Some((shown, again)) = CertificateRequest::of_line(&line) {
        assert!(shown.chain.len() <= 16 && !again.contains(&b'\n'));
        serve_all(&again);
    }
});
