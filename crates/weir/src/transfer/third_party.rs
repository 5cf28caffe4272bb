//! A copy that the target's server makes by itself, asked by us as the stock client asks (`server::third_party` has the steps).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Client, RemoteFile, Url};
use wire::request::OpenOptions;

use super::bulk::Copied;
use super::context::Context;
use super::error::TransferError;
use super::place::Place;

/// How often the target is asked how far it is.
const LOOK: Duration = Duration::from_millis(500);

/// Copies `from` to `to`, both at servers.
pub fn copy(context: &Context, client: &mut Client, from: &Place, to: &Place) -> Result<Copied, TransferError> {
    let (Place::Remote(from_url), Place::Remote(to_url)) = (from, to) else {
        return Err(TransferError::NotAFile { path: from.to_string() });
    };
    // Where the source really is, and how long: redirects are followed once, here.
    let source = client.open(&with(from_url, "tpc.stage=placement"), OpenOptions::READ, 0)?;
    let len = source.stat().size;
    let at = Url { opaque: from_url.opaque.clone(), ..source.url().clone() };
    source.close()?;

    let key = new_key();
    let words = format!(
        "tpc.key={key}&tpc.src={}&tpc.lfn={}&tpc.spr=root&tpc.tpr=root&tpc.dlgon=0&tpc.stage=copy&oss.asize={len}",
        at.server, at.path
    );
    let how = if context.options.force { OpenOptions::DELETE } else { OpenOptions::NEW };
    let opened = client.open(&with(to_url, &words), how | OpenOptions::UPDATE | OpenOptions::MKPATH, 0o644);
    let mut target = opened.map_err(|error| match error.kind() {
        client::Kind::Exists => TransferError::Exists { path: to_url.to_string() },
        _ => error.into(),
    })?;
    let host = target.url().server.host.clone();
    target.sync()?;
    let source =
        client.open(&with(&at, &format!("tpc.key={key}&tpc.dst={host}&tpc.stage=copy")), OpenOptions::READ, 0)?;
    follow(context, client, &mut target, to_url, len)?;
    target.close()?;
    source.close()?;
    Ok(Copied { bytes: len, len, sum: None, verified: verify(context, client, &at, to_url)?, skipped: false })
}

/// Waits for the end; meanwhile another connection shows how far it is, where the server shows that.
fn follow(
    context: &Context,
    client: &Client,
    target: &mut RemoteFile,
    url: &Url,
    len: u64,
) -> Result<(), TransferError> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut looks = Client::new(client.settings().clone());
            let mut seen = 0;
            while !done.load(Ordering::Relaxed) {
                std::thread::park_timeout(LOOK);
                if let Ok(Some(stat)) = looks.look(url)
                    && (seen..=len).contains(&stat.size)
                    && !done.load(Ordering::Relaxed)
                {
                    context.progress.moved(stat.size - seen);
                    seen = stat.size;
                }
            }
            seen
        });
        let result = target.sync();
        done.store(true, Ordering::Relaxed);
        looker.thread().unpark();
        let seen = looker.join().unwrap_or(0);
        if result.is_ok() {
            context.progress.moved(len - seen.min(len));
        }
        result
    })?;
    Ok(())
}

/// Compares what both servers say.
fn verify(context: &Context, client: &mut Client, from: &Url, to: &Url) -> Result<bool, TransferError> {
    if !context.options.verify {
        return Ok(false);
    }
    let Some(algorithm) = context.offered(client, to) else { return Ok(false) };
    let mut told = |url: &Url| -> Option<(String, String)> { client.checksum(url, Some(algorithm.name())).ok() };
    let (Some((_, sent)), Some((name, found))) = (told(from), told(to)) else { return Ok(false) };
    if u32::from_str_radix(&sent, 16).ok() == u32::from_str_radix(&found, 16).ok() {
        return Ok(true);
    }
    let left = "it was left where it is";
    Err(TransferError::Differs { from: from.to_string(), algorithm: name, found, sent, left })
}

fn with(url: &Url, words: &str) -> Url {
    let opaque = match &url.opaque {
        Some(opaque) => format!("{opaque}&{words}"),
        None => words.to_owned(),
    };
    Url { opaque: Some(opaque), ..url.clone() }
}

/// A key that nobody can guess.
fn new_key() -> String {
    format!("{:032x}", rand::random::<u128>())
}
