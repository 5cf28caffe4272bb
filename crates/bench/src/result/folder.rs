//! The folder of a run: `run.json` has the common data of all trials, and `trials.jsonl` a line for each trial,
//! added when it is done.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use super::record::{RunHead, TrialRecord, VERSION};

const HEAD: &str = "run.json";
const TRIALS: &str = "trials.jsonl";
/// The folder of the figures, in the folder of a run.
pub const FIGURES_FOLDER: &str = "figures";
/// The beginning of each file of a figure. Other files are not removed.
pub const FIGURE_START: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- made by weir bench -->\n";
/// The most files that are looked at in the folder of figures.
const FIGURES_MAX: usize = 100_000;

/// Why a folder of results cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file system error.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The folder belongs to something else.
    #[error("{path} is not empty and holds no run of `weir bench`; give a new folder")]
    NotOurs {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is of another campaign.
    #[error("{path} holds a run of another campaign, or of this one before it was changed; give a new folder")]
    Other {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is of a newer version.
    #[error("{path} was written by a newer version (records of version {version}, this program knows {VERSION})")]
    Newer {
        /// The folder.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// A file is damaged.
    #[error("{path}, line {line}: {source}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The reason.
        source: serde_json::Error,
    },
}

/// A file beside the trials that can be made from them again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DerivedFile {
    /// The page.
    Page,
    /// All figures as JSON.
    Summary,
    /// All figures as CSV.
    Table,
}

impl DerivedFile {
    fn name(self) -> &'static str {
        match self {
            Self::Page => "report.html",
            Self::Summary => "summary.json",
            Self::Table => "table.csv",
        }
    }
}

/// A folder of results.
#[derive(Debug)]
pub struct ResultFolder {
    path: PathBuf,
    /// The common data of all trials.
    pub head: RunHead,
    /// The trials that are done.
    pub trials: Vec<TrialRecord>,
}

/// Whether a file is a figure of a report.
fn is_figure(path: &Path) -> bool {
    let mut start = [0; FIGURE_START.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *FIGURE_START.as_bytes()
}

fn io<T>(what: &'static str, path: &Path, result: io::Result<T>) -> Result<T, FolderError> {
    result.map_err(|source| FolderError::Io { what, path: path.to_owned(), source })
}

impl ResultFolder {
    /// Reads a folder. An incomplete last line belongs to a trial that was not recorded, and is ignored.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn read(path: &Path) -> Result<Self, FolderError> {
        let at = path.join(HEAD);
        let text = io("read", &at, std::fs::read_to_string(&at))?;
        let damaged = |path: &Path, line, source| FolderError::Damaged { path: path.to_owned(), line, source };
        let head: RunHead = serde_json::from_str(&text).map_err(|source| damaged(&at, source.line(), source))?;
        if head.version > VERSION {
            return Err(FolderError::Newer { path: path.to_owned(), version: head.version });
        }
        let at = path.join(TRIALS);
        let mut trials = Vec::new();
        let mut reader = BufReader::new(io("read", &at, File::open(&at))?);
        let mut text = String::new();
        for line in 1.. {
            text.clear();
            if io("read", &at, reader.read_line(&mut text))? == 0 || !text.ends_with('\n') {
                break;
            }
            trials.push(serde_json::from_str(&text).map_err(|source| damaged(&at, line, source))?);
        }
        Ok(Self { path: path.to_owned(), head, trials })
    }

    /// Creates a folder for a run, or continues the existing one if it is of the same campaign.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn open(path: &Path, head: RunHead) -> Result<Self, FolderError> {
        if path.join(HEAD).exists() {
            let found = Self::read(path)?;
            if found.head.campaign != head.campaign {
                return Err(FolderError::Other { path: path.to_owned() });
            }
            found.cut_off_torn_line()?;
            return Ok(found);
        }
        io("make the folder", path, std::fs::create_dir_all(path))?;
        if io("list", path, std::fs::read_dir(path))?.next().is_some() {
            return Err(FolderError::NotOurs { path: path.to_owned() });
        }
        let trials = path.join(TRIALS);
        io("make", &trials, File::create_new(&trials))?;
        // The head is written last and atomically, so a folder with a head is a run.
        let (at, new) = (path.join(HEAD), path.join("run.json.new"));
        let text = serde_json::to_string_pretty(&head).map_err(io::Error::from);
        io("write", &new, text.and_then(|text| std::fs::write(&new, text + "\n")))?;
        io("rename", &at, std::fs::rename(&new, &at))?;
        Ok(Self { path: path.to_owned(), head, trials: Vec::new() })
    }

    fn cut_off_torn_line(&self) -> Result<(), FolderError> {
        let at = self.path.join(TRIALS);
        let bytes = io("read", &at, std::fs::read(&at))?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole < bytes.len() {
            let file = io("open", &at, OpenOptions::new().write(true).open(&at))?;
            io("cut", &at, file.set_len(whole as u64))?;
        }
        Ok(())
    }

    /// Records a trial.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn add(&mut self, trial: TrialRecord) -> Result<(), FolderError> {
        let at = self.path.join(TRIALS);
        let mut file = io("open", &at, OpenOptions::new().append(true).open(&at))?;
        let line = serde_json::to_string(&trial).map_err(io::Error::from);
        io("write", &at, line.and_then(|line| file.write_all((line + "\n").as_bytes())))?;
        io("sync", &at, file.sync_data())?;
        self.trials.push(trial);
        Ok(())
    }

    /// Writes a file beside the trials, atomically.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn write_beside(&self, file: DerivedFile, text: &str) -> Result<(), FolderError> {
        let at = self.path.join(file.name());
        let new = self.path.join(format!("{}.new", file.name()));
        io("write", &new, std::fs::write(&new, text))?;
        io("rename", &at, std::fs::rename(&new, &at))
    }

    /// Writes the figures (names and texts) into a folder of their own, each atomically. Figures of an earlier report
    /// that are no longer made are removed.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn write_figures<'a>(&self, figures: impl Iterator<Item = (&'a str, &'a str)>) -> Result<(), FolderError> {
        let folder = self.path.join(FIGURES_FOLDER);
        let mut written = BTreeSet::new();
        for (name, text) in figures {
            assert_eq!(Path::new(name).file_name(), Some(name.as_ref()), "a figure is a file in the folder");
            if written.is_empty() {
                io("make the folder", &folder, std::fs::create_dir_all(&folder))?;
            }
            let (at, new) = (folder.join(name), folder.join(format!("{name}.new")));
            io("write", &new, std::fs::write(&new, text))?;
            io("rename", &at, std::fs::rename(&new, &at))?;
            written.insert(name);
        }
        let entries = std::fs::read_dir(&folder).into_iter().flatten().take(FIGURES_MAX).flatten();
        for entry in entries.filter(|entry| entry.file_name().to_str().is_none_or(|name| !written.contains(name))) {
            let at = entry.path();
            if at.extension().is_some_and(|extension| extension == "svg") && is_figure(&at) {
                io("remove", &at, std::fs::remove_file(&at))?;
            }
        }
        Ok(())
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::Trial;
    use crate::result::{latest, whole};
    use crate::sampling::Settings;

    fn head(campaign: &str) -> RunHead {
        RunHead {
            version: VERSION,
            name: "x".into(),
            campaign: campaign.into(),
            began: 1,
            program: "weir".into(),
            memory_bytes: 0,
            machine: Settings::new(),
        }
    }

    fn record(work: usize) -> TrialRecord {
        let trial = Trial { system: 0, work, repeat: 0 };
        TrialRecord {
            trial,
            system: "a".into(),
            work: "w".into(),
            parameters: vec![],
            phases: vec![],
            ended: None,
            not_done: vec![],
            left: None,
            settings: vec![],
        }
    }

    #[test]
    fn a_run_can_continue_after_an_interruption_at_any_point() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let mut run = ResultFolder::open(&path, head("c")).unwrap();
        run.add(record(1)).unwrap();
        run.add(record(2)).unwrap();
        let file = path.join(TRIALS);
        let all = std::fs::read(&file).unwrap();
        std::fs::write(&file, &all[..all.len() - 3]).unwrap();
        let mut again = ResultFolder::open(&path, head("c")).unwrap();
        assert_eq!(again.trials, vec![record(1)]);
        again.add(record(3)).unwrap();
        assert_eq!(ResultFolder::read(&path).unwrap().trials, vec![record(1), record(3)]);
    }

    #[test]
    fn a_trial_that_ended_early_is_repeated_and_replaced() {
        let ended = TrialRecord { ended: Some("no agent is left".into()), not_done: vec![0], ..record(1) };
        let mut trials = vec![ended.clone(), record(2), TrialRecord { left: Some("x".into()), ..record(3) }];
        let works = |trials: &[TrialRecord]| whole(trials).into_iter().map(|trial| trial.work).collect::<Vec<_>>();
        assert_eq!(works(&trials), [2, 3]);
        trials.extend([ended, record(1)]);
        assert_eq!(works(&trials), [1, 2, 3]);
        assert_eq!(latest(&trials).into_iter().map(|(line, _)| line).collect::<Vec<_>>(), [1, 2, 4]);
    }

    #[test]
    fn figures_replace_those_of_an_earlier_report_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let run = ResultFolder::open(&path, head("c")).unwrap();
        let figure = |what: &str| format!("{FIGURE_START}<svg>{what}</svg>");
        let write = |names: &[&str], what: &str| {
            let text = figure(what);
            run.write_figures(names.iter().map(|name| (*name, text.as_str()))).unwrap();
        };
        write(&[], "");
        assert!(!path.join(FIGURES_FOLDER).exists());
        write(&["a.svg", "b.svg"], "first");
        let own = path.join(FIGURES_FOLDER).join("own.svg");
        std::fs::write(&own, "<svg/>").unwrap();
        write(&["b.svg", "c.svg"], "second");
        let mut found: Vec<_> =
            std::fs::read_dir(path.join(FIGURES_FOLDER)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        found.sort();
        assert_eq!(found, ["b.svg", "c.svg", "own.svg"]);
        assert_eq!(std::fs::read_to_string(path.join(FIGURES_FOLDER).join("b.svg")).unwrap(), figure("second"));
        assert_eq!(ResultFolder::read(&path).unwrap().head, head("c"));
    }

    #[test]
    fn files_of_other_runs_are_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        ResultFolder::open(&path, head("c")).unwrap();
        assert!(matches!(ResultFolder::open(&path, head("d")), Err(FolderError::Other { .. })));
        std::fs::write(path.join(HEAD), serde_json::to_string(&RunHead { version: 99, ..head("c") }).unwrap()).unwrap();
        assert!(matches!(ResultFolder::open(&path, head("c")), Err(FolderError::Newer { version: 99, .. })));
        std::fs::write(folder.path().join("precious"), b"x").unwrap();
        assert!(matches!(ResultFolder::open(folder.path(), head("c")), Err(FolderError::NotOurs { .. })));
        std::fs::write(path.join(HEAD), serde_json::to_string(&head("c")).unwrap()).unwrap();
        std::fs::write(path.join(TRIALS), "nonsense\n").unwrap();
        assert!(matches!(ResultFolder::read(&path), Err(FolderError::Damaged { line: 1, .. })));
    }
}
