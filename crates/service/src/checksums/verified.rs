//! Files of a cluster that this disk server reads for the manager.

use disk_server::{PlacedError, StripedGrant, VerifiedCapability};
use node::ObjectDigest;
use node::{ChecksumFailure, StripedRights};
use types::{Adler32, Crc32c, ErrorCode, NsPath};

use super::Readers;
use crate::service::Role;
use crate::striped::{StripedError, StripedOpen};

/// Bytes of a striped file that are read in one step.
const STEP: usize = 4 << 20;

/// Reads a file with the manager's capability.
pub(super) fn read_granted(
    node: &Readers,
    path: &NsPath,
    verified: VerifiedCapability,
    is_wanted: &dyn Fn() -> bool,
) -> Result<ObjectDigest, ChecksumFailure> {
    let refused = |code, text: &str| Err(ChecksumFailure { code, text: text.to_owned() });
    match verified {
        _ if !is_wanted() => refused(ErrorCode::Overloaded, "no client waits for it any more"),
        VerifiedCapability::Read(reading) => {
            let found = reading.verify(&mut |_| is_wanted()).map_err(|error| not_summed(&error))?;
            Ok(ObjectDigest { len: found.len, crc32c: found.crc32c, adler32: found.adler32 })
        }
        VerifiedCapability::Striped(grant) if matches!(grant.rights, StripedRights::Read { is_partial: false, .. }) => {
            read_striped(node, path, grant, is_wanted)
        }
        VerifiedCapability::Striped(_) | VerifiedCapability::Write(_) => {
            refused(ErrorCode::Overloaded, "it is being written")
        }
    }
}

fn read_striped(
    node: &Readers,
    path: &NsPath,
    grant: StripedGrant,
    is_wanted: &dyn Fn() -> bool,
) -> Result<ObjectDigest, ChecksumFailure> {
    let failed = |code, text: String| ChecksumFailure { code, text };
    let manager = match &node.role {
        Role::Disk(disk) => disk.manager(),
        Role::Alone { .. } | Role::Manager(_) => None,
    };
    let (Some(striper), Some(manager)) = (&node.settings.config.striper, manager) else {
        return Err(failed(ErrorCode::Unsupported, "striped files are not put together here".to_owned()));
    };
    let open = StripedOpen { manager, path: path.clone(), grant, expected_len: None };
    let of_units = |error: StripedError| failed(ErrorCode::Io, error.to_string());
    let file = striper.0.open(&open).map_err(of_units)?;
    let mut whole = ObjectDigest { len: 0, crc32c: Crc32c::EMPTY, adler32: Adler32::EMPTY };
    let mut buffer = vec![0; STEP];
    loop {
        let read = file.read(whole.len, &mut buffer).map_err(of_units)?;
        if read == 0 {
            return Ok(whole);
        }
        let (part, len) = (&buffer[..read], read as u64);
        whole = ObjectDigest {
            len: whole.len + len,
            crc32c: whole.crc32c.combine(Crc32c::of(part), len),
            adler32: whole.adler32.combine(Adler32::of(part), len),
        };
        if !is_wanted() {
            return Err(failed(ErrorCode::Overloaded, "no client waits for it any more".to_owned()));
        }
    }
}

pub(super) fn not_summed(error: &PlacedError) -> ChecksumFailure {
    let code = match error {
        // The manager decides again when the client repeats the request.
        PlacedError::Moved { .. } | PlacedError::Wait { .. } | PlacedError::Permission(_) => ErrorCode::Overloaded,
        error => error.code(),
    };
    ChecksumFailure { code, text: error.to_string() }
}
