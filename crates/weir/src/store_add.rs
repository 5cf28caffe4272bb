//! `weir store add`: makes a store of a disk server in a directory, and names it in the server's configuration file. The server may run; it
//! takes the store at its next start.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use config::Config;
use foundation::layout::OWN_STORE_DIR;
use foundation::{DataDir, DataDirError, DirRole, IfNew};
use types::ClusterId;

use crate::Failure;
use crate::cli::AddStoreArgs;
use crate::exit::Exit;
use crate::init::{CONFIG, Owner, Service, replace_text, store_table};

/// Runs the command.
pub(crate) fn run(args: &AddStoreArgs) -> Result<Exit, Failure> {
    let refused = |error: DataDirError| Failure::new(error.exit(), error);
    let missing = || DataDirError::Missing { path: args.data.clone() };
    let format = foundation::datadir::format_of(&args.data).map_err(refused)?.ok_or_else(missing).map_err(refused)?;
    if format.role != DirRole::Disk || format.cluster == 0 {
        return Err(Failure::message(
            Exit::DataDirectory,
            format!(
                "cannot make a store for {}: it is {}{}; give the data directory of a disk server that has joined its cluster",
                args.data.display(),
                format.role,
                if format.role == DirRole::Disk { " that has not joined a cluster yet" } else { "" }
            ),
        ));
    }
    let dir = std::path::absolute(&args.dir)
        .map_err(|error| Failure::new(Exit::Usage, error).while_doing(format!("cannot use {}", args.dir.display())))?;
    // Everything that can be refused, before something is made.
    let named = ConfigFile::of(args, &dir)?;
    let service = named.as_ref().and_then(|named| Service::of(&named.path));
    if args.restart && service.is_none() {
        let what = format!(
            "--restart needs the package's unit weir.service, its configuration file {CONFIG}, and root; nothing was made"
        );
        return Err(Failure::message(Exit::Usage, what));
    }
    let cluster = Some(ClusterId(format.cluster));
    let now = crate::serve::now();
    let store = DataDir::open_as(&dir, DirRole::Store, cluster, IfNew::Make, now).map_err(refused)?;
    let (fresh, id) = (store.fresh, store.format.store);
    drop(store);
    if let Some(owner) = Owner::of(&args.data) {
        let what = || format!("cannot give {} to the owner of {}", dir.display(), args.data.display());
        Owner::hand_over(Some(owner), &dir, fresh)
            .map_err(|error| Failure::new(Exit::Failed, error).while_doing(what()))?;
    }
    say(&format!("{}: {}; store {id}", dir.display(), if fresh { "made" } else { "is there already" }))?;
    let Some(named) = named else {
        let next = "with its [[store]] in the configuration, the disk server uses it from its next start on";
        say(&format!("next: {next}"))?;
        return Ok(Exit::Done);
    };
    named.write()?;
    if let Some(drop_in) = service.as_ref().map(|service| service.allow(&named.config)).transpose()?.flatten() {
        say(&format!("{}: written", drop_in.display()))?;
    }
    match &service {
        Some(service) if args.restart => {
            service.restart()?;
            say("weir.service has started again, and uses the store")?;
        }
        Some(_) => say("next: systemctl restart weir; the disk server uses the store from its next start on")?,
        None => say("next: start the disk server again; it uses the store from its next start on")?,
    }
    Ok(Exit::Done)
}

/// The configuration file of the disk server, as it will be.
struct ConfigFile {
    path: PathBuf,
    /// What it says then.
    config: Config,
    /// The text with the store; `None`: the store is in it already.
    text: Option<String>,
}

impl ConfigFile {
    /// The file that `--config` names, or the package's one if it is about this data directory.
    fn of(args: &AddStoreArgs, dir: &Path) -> Result<Option<Self>, Failure> {
        let path = args.config.clone().unwrap_or_else(|| CONFIG.into());
        let wrong = |error: config::ConfigError| Failure::new(Exit::Usage, error);
        if args.config.is_none() && !path.exists() {
            return Ok(None);
        }
        let config = Config::load(Some(&path)).map_err(wrong)?;
        if config.data.as_deref().is_none_or(|data| !is_same(data, &args.data)) {
            let what = || format!("{} is not about the disk server in {}", path.display(), args.data.display());
            return if args.config.is_some() { Err(Failure::message(Exit::Usage, what())) } else { Ok(None) };
        }
        if config.stores.iter().any(|table| is_same(&table.dir, dir)) {
            return Ok(Some(Self { path, config, text: None }));
        }
        let before = fs::read_to_string(&path).map_err(|error| cannot_write(&path, error))?;
        let mut text = before;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        // The first table would otherwise leave out the store that the server has without any.
        let in_data = args.data.join(OWN_STORE_DIR);
        if config.stores.is_empty() && matches!(foundation::datadir::format_of(&in_data), Ok(Some(_))) {
            text += &store_table(&in_data)?;
        }
        text += &store_table(dir)?;
        // A file in which the stores are a list in one line cannot be continued.
        let config = Config::of_text(&path, &text).map_err(|error| {
            let what = format!(
                "cannot add a [[store]] with dir = \"{}\" at the end of {}; add it yourself",
                dir.display(),
                path.display()
            );
            wrong(error).while_doing(what)
        })?;
        Ok(Some(Self { path, config, text: Some(text) }))
    }

    fn write(&self) -> Result<(), Failure> {
        let Some(text) = &self.text else {
            return say(&format!("{}: names it already", self.path.display()));
        };
        let meta = fs::metadata(&self.path).map_err(|error| cannot_write(&self.path, error))?;
        replace_text(&self.path, text, true, meta.mode() & 0o777, Owner::of(&self.path))
            .map_err(|error| cannot_write(&self.path, error))?;
        say(&format!("{}: names it now", self.path.display()))
    }
}

fn cannot_write(path: &Path, error: io::Error) -> Failure {
    Failure::new(Exit::Failed, error).while_doing(format!("cannot name the store in {}", path.display()))
}

/// Whether two paths name one directory, as far as they exist.
fn is_same(one: &Path, other: &Path) -> bool {
    let absolute =
        |path: &Path| fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.into());
    absolute(one) == absolute(other)
}

fn say(line: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{line}").map_err(|error| Failure::new(Exit::Failed, error))
}
