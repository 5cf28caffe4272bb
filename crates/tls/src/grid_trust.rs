//! Whom a service trusts to say who grid users are, from files.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use grid::{Trust, TrustFile, TrustMaterial, VomsServer};

use crate::TrustError;
use crate::authority_files::{Kind, certificates, read_directory, revocation_list};

/// Where grid sites keep the names of VOMS servers.
pub const VOMS_DIRECTORY: &str = "/etc/grid-security/vomsdir";
/// A directory of VOMS servers has at most so many files. (The grid's has some hundred.)
const VOMS_FILES_MAX: usize = 10_000;
/// The longest file of a VOMS server's names.
const VOMS_FILE_BYTES_MAX: u64 = 64 << 10;

/// Reads a directory of authorities, as [`TrustSource::Directory`](crate::TrustSource::Directory) says, with their signing
/// policies, and one of VOMS servers: `VO/HOST.lsc`. Without the latter no VOMS attributes count.
///
/// The authorities of the system are not for users: rules compare subjects alone, and those authorities would issue any.
///
/// `own_hosts` are the full names of this service's host. The caller puts [`Trust::problems`] into the log.
///
/// # Errors
/// There are no authorities, or a directory cannot be read.
pub fn load_grid_trust(
    authorities: &Path,
    voms_directory: Option<&Path>,
    own_hosts: Vec<String>,
) -> Result<Trust, TrustError> {
    let mut material = TrustMaterial { own_hosts, ..TrustMaterial::default() };
    let kinds = [Kind::Certificates, Kind::RevocationList, Kind::SigningPolicy];
    for file in read_directory(authorities, &kinds)? {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let with = |bytes: Vec<u8>| TrustFile { stems: file.stems.clone(), name: name.clone(), bytes };
        match file.kind {
            Kind::Certificates => {
                material.authorities.extend(certificates(&file.bytes).map(|certificate| with(certificate.to_vec())));
            }
            Kind::RevocationList => material.revocation_lists.push(with(revocation_list(&file.bytes).to_vec())),
            Kind::SigningPolicy => material.signing_policies.push(with(file.bytes.clone())),
        }
    }
    if let Some(directory) = voms_directory {
        let unreadable = |source| TrustError::Unreadable { path: directory.to_owned(), source };
        material.voms_servers = voms_servers(directory).map_err(unreadable)?;
    }
    let trust = Trust::new(&material);
    if trust.authorities() == 0 {
        return Err(TrustError::Empty { path: authorities.to_owned() });
    }
    Ok(trust)
}

fn voms_servers(directory: &Path) -> io::Result<Vec<VomsServer>> {
    let mut servers = Vec::new();
    let mut seen = 0;
    for organization in fs::read_dir(directory)? {
        let organization = organization?;
        let Ok(vo) = organization.file_name().into_string() else { continue };
        if !organization.path().is_dir() {
            continue;
        }
        for file in fs::read_dir(organization.path())? {
            let file = file?;
            seen += 1;
            if seen > VOMS_FILES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it has too many files"));
            }
            let Ok(name) = file.file_name().into_string() else { continue };
            let Some(host) = name.strip_suffix(".lsc") else { continue };
            match read_text(&file.path()) {
                Ok(text) => servers.push(VomsServer { vo: vo.clone(), host: host.to_owned(), text }),
                // The attributes of one server do not count then; those of others do.
                Err(error) => {
                    tracing::warn!(file = %file.path().display(), %error, "a VOMS server's file cannot be read")
                }
            }
        }
    }
    Ok(servers)
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let mut file = fs::File::open(path)?.take(VOMS_FILE_BYTES_MAX + 1);
    if file.read_to_string(&mut text)? as u64 > VOMS_FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    Ok(text)
}
