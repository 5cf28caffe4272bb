//! The command line of the client: `cp`, `sync` and the commands on names.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::filter::FilterArgs;

/// Arguments of `weir cp`.
#[derive(Args, Debug, Clone)]
pub struct CpArgs {
    /// One source or more, and the target last.
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... TARGET")]
    pub paths: Vec<String>,
    /// Copy directories with everything in them. A directory that ends in / stands for what is in it, as for rsync.
    #[arg(short, long)]
    pub recursive: bool,
    /// Copy directories, and keep times and modes: the same as -r -p.
    #[arg(short, long)]
    pub archive: bool,
    /// The target is the copy itself: do not copy into it if it is a directory, but merge with it.
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// Replace existing targets. A server shows the old file until the new one is complete.
    #[arg(short, long)]
    pub force: bool,
    /// Continue an interrupted copy, and skip files that exist with the same length and checksum. The existing part
    /// is first compared with the source: only its two ends if a server has a checksum of the whole file, which is
    /// compared after the copy; otherwise all of it. If it belongs to another file, a copy to a server fails (use
    /// --force to start again), and a copy to this machine starts again.
    #[arg(long)]
    pub resume: bool,
    /// Let the target's server fetch from the source's (third-party copy), so that the bytes do not pass through this
    /// machine. Both ends must be servers.
    #[arg(long, conflicts_with_all = ["resume", "bwlimit"])]
    pub tpc: bool,
    /// Delegate a proxy of your certificate to the target's server, which reads the source with it as you. Both servers must
    /// take certificates (gsi), and the target must accept delegation. The proxy ends after a day at the latest.
    #[arg(long, requires = "tpc")]
    pub delegate: bool,
    /// Copy a file that is still being written to its end: until its writer has closed it. The source must be at a weir
    /// server. It gives up when the file has not grown for the time of --wait-for. Fails if the writer goes away for
    /// good; --partial keeps what was copied. With -r, each file that is being written when its turn comes is followed,
    /// and files that appear later are not copied. The checksum of the whole shows whether the writer has changed bytes that were
    /// copied already, so it cannot be left out.
    #[arg(long, conflicts_with_all = ["resume", "tpc", "no_verify"])]
    pub follow: bool,
    /// Print what would be done, and do nothing.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// How.
    #[command(flatten)]
    pub how: TransferArgs,
    /// What to log: error, warn, info, debug.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    pub log: String,
}

/// Options of `weir cp` and `weir sync`.
#[derive(Args, Debug, Clone)]
pub struct TransferArgs {
    /// Keep what was copied of a file when the copy of it ends early, so that --resume can continue it. Without this
    /// option and without --resume, it is removed; only what came from a pipe stays at a server that failed.
    #[arg(long)]
    pub partial: bool,
    /// Keep the times and permission bits of files and directories. A server that is not weir's keeps no times.
    #[arg(short, long)]
    pub preserve: bool,
    /// The names to copy.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Do not compare checksums.
    #[arg(long)]
    pub no_verify: bool,
    /// Make local files durable before they get their names.
    #[arg(long)]
    pub sync: bool,
    /// The number of files that are copied at a time.
    #[arg(short, long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// The number of connections for one large file that is read from a server.
    #[arg(short = 'S', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub streams: u16,
    /// The most requests of 4 MiB under way on one connection. A distant server needs more than a near one.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub window: u16,
    /// Limit the rate, in bytes a second, as in 10MiB: that of all bytes from servers, and that of all bytes to them.
    #[arg(long, value_name = "RATE", value_parser = config::units::parse_size)]
    pub bwlimit: Option<u64>,
    /// Bypass the page cache on this machine: if it pays, always for large files, or never.
    #[arg(long, value_enum, default_value = "auto")]
    pub direct: DirectArg,
    /// Give up on a request that has no answer after this time, or when less than 32 KiB of a long answer arrive in it.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
    /// How long to try to restore a lost connection: from the first loss until something moves again, whatever the
    /// servers ask for meanwhile.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub retry_for: u64,
    /// How long to wait in all, for one request, if a server asks to wait while the connection is there; and for a
    /// followed file to grow.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub wait_for: u64,
    /// Print a line of JSON for each file on stdout, and one with the totals at the end.
    #[arg(long)]
    pub json: bool,
    /// Show no progress, and nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print each file that was copied.
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
}

/// When to bypass the page cache.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectArg {
    /// For large files, but not to read those that are in the page cache already.
    Auto,
    /// For all large files.
    Always,
    /// Never.
    Never,
}

/// Commands on names. A place is a local path or `root://HOST[:PORT]//PATH`; `roots://` means TLS.
#[derive(Subcommand, Debug)]
pub enum FileCommand {
    /// List directories, entries in the order in which the server sends them.
    Ls(LsArgs),
    /// Show attributes.
    Stat(StatArgs),
    /// Print files.
    Cat(CatArgs),
    /// Create directories.
    Mkdir(MkdirArgs),
    /// Rename files, or move them into a directory, within one server.
    Mv(MvArgs),
    /// Remove files, and directories with -r.
    Rm(RmArgs),
    /// Sum up the sizes of directories.
    Du(DuArgs),
    /// Show the space of servers and file systems.
    Df(DfArgs),
    /// Find names below directories.
    Find(FindArgs),
    /// Show checksums of whole files: those that servers keep, or computed here.
    Checksum(ChecksumArgs),
    /// Create empty files, or set the time of the last change to now.
    Touch(TouchArgs),
    /// Create a second name for a file, or a symbolic link.
    Ln(LnArgs),
    /// Show and change extended attributes.
    Xattr(XattrArgs),
    /// Change the permissions of files and directories.
    Chmod(ChmodArgs),
    /// Change the owner and the group of files and directories.
    Chown(ChownArgs),
    /// Show and change ACLs.
    Acl(AclArgs),
}

/// Arguments of `weir sync`.
#[derive(Args, Debug, Clone)]
pub struct SyncArgs {
    /// The directory to copy from.
    pub source: String,
    /// The directory to change; created if it is missing.
    pub target: String,
    /// Remove what the source does not have, but only if everything else succeeded.
    #[arg(long)]
    pub delete: bool,
    /// Compare only lengths.
    #[arg(long)]
    pub size_only: bool,
    /// Compare lengths and times of the last change, in seconds, and read only files that differ in them. Implies
    /// --preserve, so that equal files look equal the next time.
    #[arg(long, conflicts_with = "size_only")]
    pub mtime: bool,
    /// Print what would be done, and do nothing.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// The options of the transfer.
    #[command(flatten)]
    pub how: TransferArgs,
}

/// Arguments of `weir generate`.
#[derive(Args, Debug, Clone)]
pub struct GenerateArgs {
    /// The folder, which gets the folders man and completions.
    pub folder: PathBuf,
}

/// `-h` shows sizes with units, as in ls, du and df. Elsewhere it shows the help.
#[derive(Args, Debug, Clone)]
pub struct HumanArgs {
    /// Show sizes with units. (The help is --help here.)
    #[arg(short = 'h', short_alias = 'H', long)]
    pub human: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Arguments of `weir ls`.
#[derive(Args, Debug, Clone)]
#[command(disable_help_flag = true)]
pub struct LsArgs {
    /// The directories or files to list: local paths or `root://HOST[:PORT]//PATH`.
    #[arg(required = true, value_name = "PATH")]
    pub places: Vec<String>,
    /// Show attributes.
    #[arg(short, long)]
    pub long: bool,
    /// Also list what is in the directories below.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// List directories themselves, not what they hold.
    #[arg(short, long)]
    pub directory: bool,
    /// How sizes are shown.
    #[command(flatten)]
    pub human: HumanArgs,
    /// Show the checksums that the server keeps.
    #[arg(short, long)]
    pub checksums: bool,
    /// Print a line of JSON for each entry.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir stat`.
#[derive(Args, Debug, Clone)]
pub struct StatArgs {
    /// The files or directories: local paths or `root://HOST[:PORT]//PATH`.
    #[arg(required = true, value_name = "PATH")]
    pub places: Vec<String>,
    /// Print a line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir cat`.
#[derive(Args, Debug, Clone)]
pub struct CatArgs {
    /// The files to print: local paths or `root://HOST[:PORT]//PATH`.
    #[arg(required = true, value_name = "PATH")]
    pub places: Vec<String>,
}

/// Arguments of `weir mkdir`.
#[derive(Args, Debug, Clone)]
pub struct MkdirArgs {
    /// The directories to create: local paths or `root://HOST[:PORT]//PATH`.
    #[arg(required = true, value_name = "PATH")]
    pub places: Vec<String>,
    /// Also create the directories above; no error if the directory exists.
    #[arg(short, long)]
    pub parents: bool,
    /// Print each directory that was created.
    #[arg(short, long)]
    pub verbose: bool,
    /// Permission bits, octal.
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = octal)]
    pub mode: u16,
}

/// Arguments of `weir mv`.
#[derive(Args, Debug, Clone)]
pub struct MvArgs {
    /// What to rename, and the new name or the directory to move it into: local paths or `root://HOST[:PORT]//PATH`.
    #[arg(required = true, num_args = 2.., value_name = "PATH... TARGET")]
    pub places: Vec<String>,
    /// Replace a file that has the new name.
    #[arg(short, long)]
    pub force: bool,
    /// Do not move into the target if it is a directory: the target is the new name.
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// Print each name that was changed.
    #[arg(short, long)]
    pub verbose: bool,
}

/// Arguments of `weir rm`.
#[derive(Args, Debug, Clone)]
pub struct RmArgs {
    /// What to remove: local paths or `root://HOST[:PORT]//PATH`.
    #[arg(required = true, value_name = "PATH")]
    pub places: Vec<String>,
    /// Remove directories with everything in them.
    #[arg(short, long)]
    pub recursive: bool,
    /// Ignore names that do not exist.
    #[arg(short, long)]
    pub force: bool,
    /// Print each name that was removed.
    #[arg(short, long)]
    pub verbose: bool,
    /// Print what would be removed, and remove nothing.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// Arguments of `weir du`.
#[derive(Args, Debug, Clone)]
#[command(disable_help_flag = true)]
pub struct DuArgs {
    /// The directories: local paths or `root://HOST[:PORT]//PATH`.
    #[arg(required = true, value_name = "PATH")]
    pub places: Vec<String>,
    /// How sizes are shown.
    #[command(flatten)]
    pub human: HumanArgs,
    /// Also show each directory down to this depth.
    #[arg(short = 'd', long, value_name = "N")]
    pub max_depth: Option<usize>,
    /// Show only the sum of each place, as without --max-depth.
    #[arg(short, long, conflicts_with = "max_depth")]
    pub summarize: bool,
    /// Print a line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir df`.
#[derive(Args, Debug, Clone)]
#[command(disable_help_flag = true)]
pub struct DfArgs {
    /// The file systems or servers: local paths or `root://HOST[:PORT]//PATH`.
    #[arg(required = true, value_name = "PATH")]
    pub places: Vec<String>,
    /// How sizes are shown.
    #[command(flatten)]
    pub human: HumanArgs,
    /// Print a line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir find`.
#[derive(Args, Debug, Clone)]
pub struct FindArgs {
    /// The directories to search: local paths or `root://HOST[:PORT]//PATH`.
    #[arg(required = true, value_name = "PATH")]
    pub places: Vec<String>,
    /// Only names that match this pattern: `*`, `?`, `[abc]`.
    #[arg(long, value_name = "PATTERN", value_parser = glob::Pattern::new)]
    pub name: Option<glob::Pattern>,
    /// Only this type: f (files) or d (directories).
    #[arg(long = "type", value_name = "f|d", value_parser = kind)]
    pub kind: Option<transfer::tree::Kind>,
    /// Only files larger than this, as in 10MiB.
    #[arg(long, value_name = "SIZE", value_parser = config::units::parse_size)]
    pub larger: Option<u64>,
    /// Only files smaller than this.
    #[arg(long, value_name = "SIZE", value_parser = config::units::parse_size)]
    pub smaller: Option<u64>,
    /// Only what has changed within this time, as in 2h.
    #[arg(long, value_name = "TIME", value_parser = config::units::parse_duration)]
    pub newer: Option<std::time::Duration>,
    /// Only what has not changed within this time.
    #[arg(long, value_name = "TIME", value_parser = config::units::parse_duration)]
    pub older: Option<std::time::Duration>,
    /// Search only down to this depth.
    #[arg(long, value_name = "N")]
    pub max_depth: Option<usize>,
    /// Print a line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir checksum`.
#[derive(Args, Debug, Clone)]
pub struct ChecksumArgs {
    /// The files: local paths or `root://HOST[:PORT]//PATH`.
    #[arg(required = true, value_name = "PATH")]
    pub places: Vec<String>,
    /// crc32c, adler32, or others that the servers know; several are separated by commas [default: crc32c here, at a
    /// single server the one that it prefers, and of several places the best that all of them have].
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    pub algorithm: Vec<String>,
    /// Print a line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir touch`.
#[derive(Args, Debug, Clone)]
pub struct TouchArgs {
    /// The files: local paths or `root://HOST[:PORT]//PATH`.
    #[arg(required = true, value_name = "PATH")]
    pub places: Vec<String>,
}

/// Arguments of `weir ln`.
#[derive(Args, Debug, Clone)]
pub struct LnArgs {
    /// The file that the new name refers to.
    pub target: String,
    /// The new name.
    pub name: String,
    /// Create a symbolic link.
    #[arg(short, long)]
    pub symbolic: bool,
}

/// Arguments of `weir chmod`.
#[derive(Args, Debug, Clone)]
pub struct ChmodArgs {
    /// All permissions, as `640` or as `rw-r-----`.
    #[arg(value_name = "MODE", value_parser = mode)]
    pub mode: u16,
    /// The files and directories: `root://HOST[:PORT]//PATH`.
    #[arg(required = true, value_name = "PATH")]
    pub places: Vec<String>,
    /// Also everything below directories.
    #[arg(short, long)]
    pub recursive: bool,
}

/// The permission bits that a text stands for: three octal digits, or nine letters as `ls -l` has them. The protocol knows
/// no others.
fn mode(text: &str) -> Result<u16, String> {
    let digits = text.strip_prefix('0').filter(|rest| rest.len() == 3).unwrap_or(text);
    if digits.len() == 3 && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit)) {
        return u16::from_str_radix(digits, 8).map_err(|why| why.to_string());
    }
    let letters = "rwxrwxrwx".bytes();
    let bits = text.bytes().zip(letters).try_fold(0, |bits, (given, letter)| match given {
        b'-' => Some(bits << 1),
        given if given == letter => Some(bits << 1 | 1),
        _ => None,
    });
    bits.filter(|_| text.len() == 9).ok_or_else(|| "give all permissions, as 640 or as rw-r-----".to_owned())
}

/// Arguments of `weir chown`.
#[derive(Args, Debug, Clone)]
pub struct ChownArgs {
    /// OWNER, OWNER:GROUP or :GROUP, as the server knows them: names, or numbers. Only an administrator gives files away.
    #[arg(value_name = "OWNER[:GROUP]")]
    pub to: String,
    /// The files and directories: `root://HOST[:PORT]//PATH`.
    #[arg(required = true, value_name = "PATH")]
    pub places: Vec<String>,
    /// Also everything below directories.
    #[arg(short, long)]
    pub recursive: bool,
}

/// Arguments of `weir acl`.
#[derive(Args, Debug, Clone)]
pub struct AclArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: AclCommand,
}

/// What `weir acl` does.
#[derive(Subcommand, Debug, Clone)]
pub enum AclCommand {
    /// Print the ACLs of files and directories, an entry a line.
    Get {
        /// The files and directories: `root://HOST[:PORT]//PATH`.
        #[arg(required = true, value_name = "PATH")]
        places: Vec<String>,
    },
    /// Change the ACLs of files and directories. Their owners may.
    Set(AclSetArgs),
}

/// Arguments of `weir acl set`.
#[derive(Args, Debug, Clone)]
pub struct AclSetArgs {
    /// The change.
    #[command(flatten)]
    pub edit: AclEditArgs,
    /// Also everything below directories. Files get no default entries.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// The files and directories: `root://HOST[:PORT]//PATH`.
    #[arg(required = true, value_name = "PATH")]
    pub places: Vec<String>,
}

/// A change of ACLs.
#[derive(Args, Debug, Clone)]
#[group(required = true, multiple = false)]
pub struct AclEditArgs {
    /// Set these entries, and keep the others: user:ana:rw-,default:group:atlas:r-x.
    #[arg(short, long, value_name = "ENTRIES")]
    pub modify: Option<String>,
    /// Remove the entries of these users and groups: user:ana,default:group:atlas.
    #[arg(short = 'x', long, value_name = "NAMES")]
    pub remove: Option<String>,
    /// Set exactly these entries. Those of owner, owning group and others stay as they are if they are not given.
    #[arg(long, value_name = "ENTRIES")]
    pub replace: Option<String>,
    /// Remove all entries that are not in the mode.
    #[arg(short = 'b', long)]
    pub clear: bool,
    /// Remove the default ACL.
    #[arg(short = 'k', long)]
    pub clear_default: bool,
}

/// Arguments of `weir xattr`.
#[derive(Args, Debug, Clone)]
pub struct XattrArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: XattrCommand,
}

/// What `weir xattr` does.
#[derive(Subcommand, Debug, Clone)]
pub enum XattrCommand {
    /// List names and values.
    Ls {
        /// The file or directory.
        #[arg(value_name = "PATH")]
        place: String,
    },
    /// Print a value.
    Get {
        /// The file or directory.
        #[arg(value_name = "PATH")]
        place: String,
        /// The attribute's name.
        name: String,
    },
    /// Set a value.
    Set {
        /// The file or directory.
        #[arg(value_name = "PATH")]
        place: String,
        /// The attribute's name.
        name: String,
        /// The new value.
        value: String,
    },
    /// Remove an attribute.
    Rm {
        /// The file or directory.
        #[arg(value_name = "PATH")]
        place: String,
        /// The attribute's name.
        name: String,
    },
}

fn octal(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("`{text}` is no octal number up to 777"))
}

fn kind(text: &str) -> Result<transfer::tree::Kind, String> {
    match text {
        "f" => Ok(transfer::tree::Kind::File),
        "d" => Ok(transfer::tree::Kind::Directory),
        _ => Err("write f for files or d for directories".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::mode;

    #[test]
    fn modes_are_digits_or_letters() {
        for (text, bits) in
            [("640", 0o640), ("0755", 0o755), ("000", 0), ("rw-r-----", 0o640), ("rwxrwxrwx", 0o777), ("---------", 0)]
        {
            assert_eq!(mode(text), Ok(bits), "{text}");
        }
        for text in
            ["", "64", "1777", "6400", "888", "+640", "g+w", "rw-r----", "rw-r-----x", "wr-r-----", "rwsr-----", "é"]
        {
            assert!(mode(text).is_err(), "{text}");
        }
    }
}
