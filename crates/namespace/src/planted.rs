//! Named bugs for tests. With the feature `planted`, a test switches one on and shows that the other tests find it. Without the feature, every
//! question is answered "no" at compile time.

/// The bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Bug {
    /// A run takes its first range of numbers below what earlier runs took.
    ReuseAObjectNumber = 1,
    /// Removing a file does not queue its object.
    ForgetTheDeletion = 2,
    /// A fenced handle can still commit.
    CommitIgnoresEpoch = 3,
    /// A directory can be moved below itself.
    RenameIntoItself = 4,
    /// A repeated numbered request runs again.
    RepeatRequestTwice = 5,
    /// A commit does not add its bytes to the directory's totals.
    TotalsDrift = 6,
    /// A re-open for update during the client's own overwrite reaches the old visible object.
    ReopenReachesOldObject = 7,
    /// The commit of an upload does not check whether the name has appeared meanwhile.
    CommitOverwritesNewName = 8,
    /// The completion at the end of a grace period takes the name, whatever has happened to it.
    LateCommitUndoes = 9,
    /// Removing a directory leaves its policy behind.
    RmdirLeavesThePolicy = 10,
    /// Named entries of an ACL grant what its mask withholds.
    MaskIsIgnored = 11,
    /// The first entry of one of the actor's groups decides, whatever the others grant.
    FirstGroupDecides = 12,
    /// A new inode gets all of the default ACL, whatever mode was asked for.
    InheritedAclIgnoresMode = 13,
    /// A new directory does not get the default ACL of its parent.
    DirectoriesInheritNoDefaultAcl = 14,
    /// An upload forgets the ACL that its file inherits.
    UploadForgetsItsAcl = 15,
    /// A new group gets the number of the user with its name.
    GroupGetsTheNumberOfAUser = 16,
    /// Giving a number to a principal does not count it.
    PrincipalNumberIsGivenTwice = 17,
    /// A renamed principal is still found by its old name.
    RenamedPrincipalKeepsItsOldName = 18,
    /// A principal can be renamed to a name that another one has.
    RenameTakesThePrincipalsName = 19,
    /// The limits of a credential are not checked after symbolic links.
    LimitsEndAtLinks = 20,
    /// A rename asks the limits of a credential only about the new name.
    LimitsForgetTheOldName = 21,
    /// A credential that may create files may replace them too.
    CreatingReplaces = 22,
    /// A client returns to its open write wherever the file has moved, whatever its credential may do there.
    LimitsForgetWhereTheFileIs = 23,
    /// A path may make missing directories where its credential may make a file.
    LimitsForgetMissingDirectories = 24,
    /// What goes away still counts in the usage.
    UsageIsForgotten = 25,
    /// The end of an open write does not end its reservation.
    ReservationsStay = 26,
    /// An open write may grow beyond a full quota.
    GrowthIgnoresTheQuota = 27,
    /// A file that moves to another tree counts in its old one.
    MovedUsageStays = 28,
    /// A file that gets another owner counts for the old one.
    GivenUsageStays = 29,
    /// A full quota does not refuse new files.
    NewFilesIgnoreTheQuota = 30,
    /// A file that is being written may move to where another quota counts it.
    OpenFilesMove = 31,
    /// A client that returns to its open write, as after a crash, finds its reservation forgotten.
    ReturnForgetsTheReservation = 32,
}

#[cfg(feature = "planted")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Switches one bug on, or all off.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |bug| bug as u8), std::sync::atomic::Ordering::SeqCst);
}

#[cfg(feature = "planted")]
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == bug as u8
}

#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_bug: Bug) -> bool {
    false
}
