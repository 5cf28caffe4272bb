//! Several directories as one system. Files are spread by the numbers in their names, like a job would spread them
//! over several servers or disks.

use std::sync::Arc;

use super::{Entry, IoOptions, OpenFile, Purpose, RelName, Session, SystemSpace, Target, TargetError};

/// Several targets.
pub(super) struct Spread {
    targets: Vec<Arc<dyn Target>>,
}

impl Spread {
    pub(super) fn new(targets: Vec<Arc<dyn Target>>) -> Self {
        Self { targets }
    }
}

impl Target for Spread {
    fn window_max(&self) -> usize {
        self.targets.iter().map(|target| target.window_max()).min().unwrap_or(1)
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        let sessions = self.targets.iter().map(|target| target.session()).collect::<Result<Vec<_>, _>>()?;
        Ok(Box::new(SpreadSession { sessions }))
    }
}

struct SpreadSession {
    sessions: Vec<Box<dyn Session>>,
}

/// The sum of all numbers in a name. Consecutive files and directories go to consecutive targets.
fn number_of(name: &RelName) -> u64 {
    let numbers = name.as_str().split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|digits| digits.parse::<u64>().ok()).fold(0, u64::wrapping_add)
}

impl SpreadSession {
    fn of(&mut self, name: &RelName) -> Result<&mut Box<dyn Session>, TargetError> {
        let place =
            number_of(name).checked_rem(self.sessions.len() as u64).and_then(|place| usize::try_from(place).ok());
        let none = TargetError::Unsupported { what: "work on a system without places", by: "several places" };
        place.and_then(|place| self.sessions.get_mut(place)).ok_or(none)
    }

    fn all(&mut self, mut each: impl FnMut(&mut dyn Session) -> Result<(), TargetError>) -> Result<(), TargetError> {
        self.sessions.iter_mut().try_for_each(|session| each(&mut **session))
    }
}

impl Session for SpreadSession {
    fn make_home(&mut self) -> Result<(), TargetError> {
        for place in 0..self.sessions.len() {
            if let Err(error) = self.sessions[place].make_home() {
                // The created folders are empty and ours. The other error matters more.
                self.sessions[..place].iter_mut().for_each(|session| drop(session.remove_home()));
                return Err(error);
            }
        }
        Ok(())
    }

    fn remove_home(&mut self) -> Result<(), TargetError> {
        self.all(|session| session.remove_home())
    }

    fn open(
        &mut self,
        name: &RelName,
        purpose: Purpose,
        io_options: IoOptions,
    ) -> Result<Box<dyn OpenFile>, TargetError> {
        self.of(name)?.open(name, purpose, io_options)
    }

    fn open_stdio(
        &mut self,
        name: &RelName,
        purpose: Purpose,
        io_options: IoOptions,
    ) -> Result<Box<dyn OpenFile>, TargetError> {
        self.of(name)?.open_stdio(name, purpose, io_options)
    }

    fn make_directory(&mut self, name: &RelName) -> Result<(), TargetError> {
        self.all(|session| session.make_directory(name))
    }

    fn len_of(&mut self, name: &RelName) -> Result<Option<u64>, TargetError> {
        self.of(name)?.len_of(name)
    }

    fn list(&mut self, name: &RelName, each: &mut dyn FnMut(Entry)) -> Result<(), TargetError> {
        self.all(|session| session.list(name, each))
    }

    fn remove(&mut self, name: &RelName) -> Result<(), TargetError> {
        self.of(name)?.remove(name)
    }

    fn remove_directory(&mut self, name: &RelName) -> Result<(), TargetError> {
        self.all(|session| session.remove_directory(name))
    }

    /// Files are spread evenly, so the target with the least room limits all.
    fn room(&mut self) -> Result<Option<SystemSpace>, TargetError> {
        let mut least: Option<SystemSpace> = None;
        let count = self.sessions.len() as u64;
        for session in &mut self.sessions {
            let Some(room) = session.room()? else { return Ok(None) };
            if least.is_none_or(|least| room.free < least.free) {
                least = Some(room);
            }
        }
        let all = |bytes: u64| bytes.saturating_mul(count);
        Ok(least.map(|room| SystemSpace { free: all(room.free), total: all(room.total) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::TargetDir;

    #[test]
    fn files_are_spread_over_all_directories() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let places = folders.each_ref().map(|folder| TargetDir::Path(folder.path().to_owned()));
        let run = RelName::new("run").unwrap();
        let target = TargetDir::targets(&places, &run, &client::Settings::default());
        let mut session = target.session().unwrap();
        session.make_home().unwrap();
        let directory = RelName::numbered('d', 0);
        session.make_directory(&directory).unwrap();
        let io_options = IoOptions {
            direct: false,
            durability: super::super::Durability::None,
            window: super::super::Window::Fixed(1),
        };
        let names: Vec<RelName> = (0..6).map(|number| directory.join(&RelName::numbered('f', number))).collect();
        for name in &names {
            session.open(name, Purpose::Create { len: 0 }, io_options).unwrap().close().unwrap();
        }
        for folder in &folders {
            assert_eq!(std::fs::read_dir(folder.path().join("run/d000000")).unwrap().count(), 3);
        }
        let mut listed = 0;
        session.list(&directory, &mut |_| listed += 1).unwrap();
        assert_eq!((listed, session.len_of(&names[3]).unwrap()), (6, Some(0)));
        names.iter().for_each(|name| session.remove(name).unwrap());
        session.remove_directory(&directory).unwrap();
        session.remove_home().unwrap();
        // An existing folder belongs to somebody else, so the folders created before it are removed.
        std::fs::create_dir(folders[1].path().join("run")).unwrap();
        assert!(session.make_home().is_err() && !folders[0].path().join("run").exists());
    }
}
