//! Files of a cluster that this disk server reads for the manager.

use std::sync::Arc;

use disk_server::{DiskServerError, StripedGrant, VerifiedCapability};
use node::{ChecksumFailure, ObjectDigest, StripedRights, Summed};
use types::{DigestKind, ErrorCode, NsPath};

use super::Readers;
use super::reading_through::read_through;
use crate::service::Role;
use crate::striped::{StripedError, StripedFile, StripedOpen};

/// Reads a file with the manager's capability.
pub(super) fn read_granted(
    node: &Readers,
    path: &NsPath,
    verified: VerifiedCapability,
    kind: Option<DigestKind>,
    is_wanted: &dyn Fn() -> bool,
) -> Result<Summed, ChecksumFailure> {
    let refused = |code, text: &str| ChecksumFailure { code, text: text.to_owned() };
    let unwanted = || refused(ErrorCode::Overloaded, "no client waits for it any more");
    match verified {
        _ if !is_wanted() => Err(unwanted()),
        VerifiedCapability::Read(reading) if kind.is_none() => {
            let found = reading.verify(&mut |_| is_wanted()).map_err(|error| not_summed(&error))?;
            let whole = ObjectDigest { len: found.len, crc32c: found.crc32c, adler32: found.adler32 };
            Ok(Summed { whole, digest: None })
        }
        VerifiedCapability::Read(reading) => {
            let (reader, permit) = reading.open().map_err(|error| not_summed(&error))?;
            let read = |offset: u64, into: &mut [u8]| {
                let got = reader.read(offset, into).map_err(DiskServerError::from)?;
                permit.check().map(|()| got)
            };
            read_through(kind, is_wanted, read).map_err(|error| not_summed(&error))?.ok_or_else(unwanted)
        }
        VerifiedCapability::Striped(grant) if matches!(grant.rights, StripedRights::Read { is_partial: false, .. }) => {
            let file = open_striped(node, path, grant)?;
            let of_units = |error: StripedError| refused(ErrorCode::Io, &error.to_string());
            let read = |offset: u64, into: &mut [u8]| file.read(offset, into).map_err(of_units);
            read_through(kind, is_wanted, read)?.ok_or_else(unwanted)
        }
        VerifiedCapability::Striped(_) | VerifiedCapability::Write(_) => {
            Err(refused(ErrorCode::Overloaded, "it is being written"))
        }
    }
}

fn open_striped(node: &Readers, path: &NsPath, grant: StripedGrant) -> Result<Arc<dyn StripedFile>, ChecksumFailure> {
    let failed = |code, text: String| ChecksumFailure { code, text };
    let manager = match &node.role {
        Role::Disk(disk) => disk.manager(),
        Role::Alone { .. } | Role::Manager(_) | Role::Standby(_) => None,
    };
    let (Some(striper), Some(manager)) = (&node.settings.config.striper, manager) else {
        return Err(failed(ErrorCode::Unsupported, "striped files are not put together here".to_owned()));
    };
    let open = StripedOpen { manager, path: path.clone(), grant, expected_len: None };
    striper.0.open(&open).map_err(|error| failed(ErrorCode::Io, error.to_string()))
}

pub(super) fn not_summed(error: &DiskServerError) -> ChecksumFailure {
    let code = match error {
        // The manager decides again when the client repeats the request.
        DiskServerError::Moved { .. } | DiskServerError::Wait { .. } | DiskServerError::Capability(_) => {
            ErrorCode::Overloaded
        }
        error => error.code(),
    };
    ChecksumFailure { code, text: error.to_string() }
}
