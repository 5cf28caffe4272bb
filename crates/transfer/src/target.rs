//! Where a source goes: into the target under its own name, or onto the target itself. This module only decides.
//!
//! The rules are those of `cp`, with two of `rsync`: a source directory that ends in a slash stands for what is in it,
//! and a target that ends in a slash is a directory.

/// What is known of the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// It exists, and is a directory.
    pub(crate) is_directory: bool,
    /// It was given with a slash at its end.
    pub(crate) has_slash: bool,
    /// `--no-target-directory`: it is what the copy is called.
    pub(crate) is_copy: bool,
    /// `--resume`
    pub(crate) resumes: bool,
}

/// What is known of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// It is a directory that is copied with everything in it.
    pub(crate) is_tree: bool,
    /// It was given with a slash at its end.
    pub(crate) has_slash: bool,
    /// It is the only one.
    pub(crate) is_alone: bool,
    /// Whether something in it has its own name.
    pub(crate) has_own_name_in_it: bool,
    /// Whether a directory in the target has its name.
    pub(crate) is_in_target: bool,
}

/// Where a source goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Goes {
    /// Into the target, under its own name.
    Into,
    /// The target itself is its copy. A tree is merged into an existing directory.
    Onto,
    /// An earlier copy may have gone either way.
    Unclear,
}

impl Target {
    /// Whether the decision needs to know more of a tree than its place: only a copy that continues an earlier one
    /// must find it again.
    pub(crate) fn must_find_earlier(&self, is_tree: bool, has_slash: bool, is_alone: bool) -> bool {
        self.resumes && self.is_directory && is_tree && !has_slash && is_alone && !self.is_copy
    }

    /// Decides.
    pub(crate) fn of(&self, source: &Source) -> Goes {
        let Source { is_tree, has_slash, is_alone, has_own_name_in_it, is_in_target } = *source;
        if self.is_copy || is_tree && has_slash {
            return Goes::Onto;
        }
        if self.must_find_earlier(is_tree, has_slash, is_alone) {
            return match (is_in_target, has_own_name_in_it) {
                (true, true) => Goes::Unclear,
                (true, false) => Goes::Into,
                (false, _) => Goes::Onto,
            };
        }
        if self.is_directory || self.has_slash || !is_alone { Goes::Into } else { Goes::Onto }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Target = Target { is_directory: false, has_slash: false, is_copy: false, resumes: false };
    const DIRECTORY: Target = Target { is_directory: true, ..NEW };
    const FILE: Source =
        Source { is_tree: false, has_slash: false, is_alone: true, has_own_name_in_it: false, is_in_target: false };
    const TREE: Source = Source { is_tree: true, ..FILE };

    #[test]
    fn a_source_goes_into_a_directory_and_onto_a_new_name() {
        assert_eq!([NEW.of(&FILE), NEW.of(&TREE)], [Goes::Onto; 2]);
        assert_eq!([DIRECTORY.of(&FILE), DIRECTORY.of(&TREE)], [Goes::Into; 2]);
        let slash = Target { has_slash: true, ..NEW };
        assert_eq!([slash.of(&FILE), slash.of(&TREE)], [Goes::Into; 2], "a slash makes it a directory");
        assert_eq!(NEW.of(&Source { is_alone: false, ..FILE }), Goes::Into);
    }

    #[test]
    fn a_source_with_a_slash_is_what_is_in_it() {
        let content = Source { has_slash: true, ..TREE };
        for target in [NEW, DIRECTORY, Target { has_slash: true, ..DIRECTORY }, Target { resumes: true, ..DIRECTORY }] {
            assert_eq!(target.of(&content), Goes::Onto);
            assert_eq!(target.of(&Source { is_alone: false, ..content }), Goes::Onto);
        }
    }

    #[test]
    fn the_target_is_the_copy_if_one_says_so() {
        let copy = Target { is_copy: true, ..DIRECTORY };
        assert_eq!([copy.of(&FILE), copy.of(&TREE)], [Goes::Onto; 2]);
    }

    #[test]
    fn a_tree_is_continued_where_an_earlier_copy_put_it() {
        let resumed = Target { resumes: true, ..DIRECTORY };
        assert_eq!(resumed.of(&TREE), Goes::Onto, "the target is what the earlier copy made");
        assert_eq!(resumed.of(&Source { is_in_target: true, ..TREE }), Goes::Into, "it was there before");
        let both = Source { is_in_target: true, has_own_name_in_it: true, ..TREE };
        assert_eq!(resumed.of(&both), Goes::Unclear);
        assert_eq!(resumed.of(&FILE), Goes::Into);
        assert_eq!(resumed.of(&Source { is_alone: false, ..TREE }), Goes::Into);
        assert_eq!(Target { is_directory: false, ..resumed }.of(&TREE), Goes::Onto);
    }
}
