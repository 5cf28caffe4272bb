//! The path of a walk after symbolic links, for actors with limits on paths. Walks of other actors build none.

use types::{NameError, NsPath};

use crate::planted::{self, Bug};
use crate::{Actor, NsError, PathOperation};

/// The path of the directory that a walk has reached, without symbolic links and `..`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Trail(Vec<u8>);

impl Trail {
    /// The path with these names, from the root down.
    pub(crate) fn of<'a>(names: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut trail = Self::default();
        names.for_each(|name| trail.enter(name));
        trail
    }

    /// Goes to an entry of the directory.
    pub(crate) fn enter(&mut self, name: &[u8]) {
        self.0.push(b'/');
        self.0.extend_from_slice(name);
    }

    /// Goes to the directory above. The root is its own.
    pub(crate) fn leave(&mut self) {
        let parent = self.0.iter().rposition(|&byte| byte == b'/');
        self.0.truncate(parent.unwrap_or(0));
    }

    /// Goes to the root.
    pub(crate) fn restart(&mut self) {
        self.0.clear();
    }

    /// The path.
    ///
    /// # Errors
    /// It is too long for a path.
    pub(crate) fn path(&self) -> Result<NsPath, NameError> {
        if self.0.is_empty() { Ok(NsPath::root()) } else { NsPath::parse(&self.0) }
    }

    /// The place of an entry of the directory.
    pub(crate) fn place_of(mut self, name: &[u8]) -> Result<Place, NameError> {
        if !name.is_empty() {
            self.enter(name);
        }
        self.path().map(|path| Place(Some(path)))
    }

    /// Denies a walk on `asked` that goes on from here with `names`, unless the actor may do one of `wanted` where it ends. If names come before a
    /// `..`, the actor must be allowed to see what they lead to. So nothing is looked up that the actor may not know of.
    pub(crate) fn permit_ahead<'a>(
        &self,
        actor: &Actor,
        asked: &NsPath,
        wanted: &[PathOperation],
        names: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), NsError> {
        if actor.limits.is_none() || planted::is(Bug::LimitsEndAtLinks) {
            return Ok(());
        }
        let mut ahead = self.clone();
        let mut turns_back = false;
        for name in names {
            if name == b".." {
                turns_back = true;
                break;
            }
            ahead.enter(name);
        }
        if !turns_back {
            return actor.permit_path(wanted, &ahead.path()?, asked);
        }
        if ahead == *self {
            // The walk goes up from a directory that it has passed.
            return Ok(());
        }
        actor.permit_path(&[PathOperation::Stat], &ahead.path()?, asked)
    }
}

/// Where a path leads after symbolic links. `None`: it has none, or the actor has no limits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place(Option<NsPath>);

impl Place {
    /// This path.
    pub(crate) fn at(path: &[u8]) -> Result<Self, NameError> {
        NsPath::parse(path).map(|path| Self(Some(path)))
    }

    /// Denies a request for `asked`, which leads here, unless the limits of the actor permit one of `operations` on both paths.
    pub(crate) fn permit(&self, actor: &Actor, operations: &[PathOperation], asked: &NsPath) -> Result<(), NsError> {
        if actor.limits.is_none() {
            return Ok(());
        }
        let mut denied = None;
        for operation in operations {
            let here = |path: &NsPath| actor.permit_path(&[*operation], path, asked);
            match here(asked).and_then(|()| self.0.as_ref().map_or(Ok(()), here)) {
                Ok(()) => return Ok(()),
                Err(error) => denied = denied.or(Some(error)),
            }
        }
        denied.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trail_goes_down_and_up_by_whole_names() {
        let shown = |trail: &Trail| trail.path().unwrap().to_string();
        let mut trail = Trail::of([b"a".as_slice(), b"bc"].into_iter());
        assert_eq!(shown(&trail), "/a/bc");
        trail.enter(b"d");
        trail.leave();
        trail.leave();
        assert_eq!(shown(&trail), "/a");
        trail.leave();
        assert_eq!(shown(&trail), "/");
        trail.leave();
        trail.enter(b"x");
        assert_eq!(shown(&trail), "/x", "the directory above the root is the root");
        trail.restart();
        assert_eq!(trail.clone().place_of(b"").unwrap(), Place(Some(NsPath::root())));
        assert_eq!(trail.place_of(b"y").unwrap(), Place::at(b"/y").unwrap());
    }
}
