//! A third-party copy: we ask the target's server to copy by itself, as the stock client asks (`service::third_party` has the steps).

use client::{Client, Credentials, Delegation, RemoteFile, Settings, Url};
use wire::request::OpenOptions;

use crate::bulk::{Bulk, Copied, told};
use crate::context::Context;
use crate::error::TransferError;
use crate::place::CopyPath;
use crate::times;

/// Has one server copy the file of `bulk` from another.
pub fn copy(bulk: &Bulk<'_>, client: &mut Client) -> Result<Copied, TransferError> {
    let (context, from, to) = (bulk.context, bulk.from, bulk.to);
    let (CopyPath::Remote(from_url), CopyPath::Remote(to_url)) = (from, to) else {
        return Err(TransferError::NotAFile { path: from.to_string() });
    };
    // Finds the source's real server and the length; follows redirects once, here.
    let source = client.open(&with(from_url, "tpc.stage=placement"), OpenOptions::READ, 0)?;
    let (len, mtime) = (source.stat().size, times::of_server(source.stat()));
    // Keeps the words that the manager gave for this server. Without them the server would send us to the manager, and that perhaps to
    // another one.
    let there = source.url().clone();
    let at = Url { opaque: from_url.opaque.clone(), ..there.clone() };
    let session = source.close()?;
    client.give_back(session, from_url);

    let key = new_key();
    let mut words = format!(
        "tpc.key={key}&tpc.src={}&tpc.lfn={}&tpc.dlg={}&tpc.spr={}&tpc.tpr={}&tpc.dlgon={}&tpc.stage=copy&oss.asize={len}",
        at.server,
        at.path,
        from_url.server,
        at.scheme(),
        to_url.scheme(),
        u8::from(context.options.delegate)
    );
    if context.options.preserve && context.keeps_times(client, to_url)? {
        words.push_str(&format!("&{}", times::words(mtime)));
    }
    if bulk.again {
        words.push_str(&format!("&tried={}", to_url.server.host));
    }
    let how = if context.options.force { OpenOptions::DELETE } else { OpenOptions::NEW };
    // Nobody but the target gets a proxy: not the source, which could ask for one as well.
    let mut delegating = context.options.delegate.then(|| delegating(&context.settings));
    let to_target = match delegating.as_mut() {
        Some(delegating) => delegating,
        None => &mut *client,
    };
    let opened = to_target.open(&with(to_url, &words), how | OpenOptions::UPDATE | OpenOptions::MKPATH, 0o644);
    let mut target = opened.map_err(|error| match error.kind() {
        client::Kind::Exists => TransferError::Exists { path: to_url.to_string() },
        _ => error.into(),
    })?;
    let moved = match context.options.delegate {
        false => move_it(context, client, &there, &key, &mut target, len),
        true => move_by_proxy(context, &mut target, len),
    };
    if let Err(error) = moved {
        target.cancel_copy();
        // While it is open for us, nobody else can have it.
        if let Some(made) = Some(target.stat()).filter(|stat| stat.identity().is_some() && !context.options.force) {
            bulk.remove_rest(&mut context.cleaner(), made, target.is_held());
        }
        target.end_copy();
        // Whatever has failed, nobody waits for the target any more. Closing its connection stops the server.
        drop(target);
        return Err(error);
    }
    target.close()?;
    let verified = verify(context, client, &at, to_url)?;
    if !verified {
        context.not_compared([from, to]);
    }
    Ok(Copied { bytes: len, len, sum: None, verified, skipped: false })
}

/// A client that signs a proxy for a server that asks for one.
fn delegating(settings: &Settings) -> Client {
    let credentials = Credentials { delegation: Delegation::Sign, ..settings.credentials.clone() };
    Client::new(Settings { credentials, ..settings.clone() })
}

/// Lets the two servers copy, and waits for the end.
fn move_it(
    context: &Context,
    client: &mut Client,
    from: &Url,
    key: &str,
    target: &mut RemoteFile,
    len: u64,
) -> Result<(), TransferError> {
    let host = target.url().server.host.clone();
    target.sync()?;
    let words = format!("tpc.key={key}&tpc.dst={host}&tpc.stage=copy");
    let mut from = from.clone();
    from.add_words(&words);
    let source = client.open(&from, OpenOptions::READ, 0)?;
    wait_for_it(context, target, len)?;
    // The source has sent everything; the result of its close does not matter.
    if let Ok(session) = source.close() {
        client.give_back(session, &from);
    }
    Ok(())
}

/// Lets the target's server read the source with a proxy that this client has delegated.
fn move_by_proxy(context: &Context, target: &mut RemoteFile, len: u64) -> Result<(), TransferError> {
    // Any other server would wait for a key.
    if !target.copies_by_proxy()? {
        return Err(TransferError::NotDelegated { server: target.url().server.to_string() });
    }
    target.sync()?;
    wait_for_it(context, target, len)
}

/// Waits for the end of the copy. The open target shows the progress.
fn wait_for_it(context: &Context, target: &mut RemoteFile, len: u64) -> Result<(), TransferError> {
    let mut seen = 0;
    target.finish_copy(len, &mut |size| {
        let size = size.min(len);
        context.progress.moved(size - seen.min(size));
        seen = seen.max(size);
    })?;
    context.progress.moved(len - seen);
    Ok(())
}

/// Compares the checksums of both servers. A server that keeps none need not answer, but a failed question is an error. A differing target
/// stays: another client may have put it there since the close.
fn verify(context: &Context, client: &mut Client, from: &Url, to: &Url) -> Result<bool, TransferError> {
    if !context.options.verify {
        return Ok(false);
    }
    let Some(algorithm) = context.offered(client, to)? else { return Ok(false) };
    let Some(sent) = told(client, from, algorithm)? else { return Ok(false) };
    let Some(found) = told(client, to, algorithm)? else { return Ok(false) };
    if u32::from_str_radix(&sent, 16).ok() == u32::from_str_radix(&found, 16).ok() {
        return Ok(true);
    }
    let algorithm = algorithm.name();
    Err(TransferError::Differs { from: from.to_string(), to: to.to_string(), algorithm, found, sent })
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
