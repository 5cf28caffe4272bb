//! What a simulation counts.

use std::fmt;

/// Counts of events, which show whether enough happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// All events.
    pub events: u64,
    /// Messages that arrived.
    pub delivered: u64,
    /// Messages that were lost.
    pub lost: u64,
    /// Files that were closed.
    pub closed: u64,
    /// Writes that were acknowledged.
    pub writes: u64,
    /// Reads whose bytes were compared.
    pub reads: u64,
    /// Times that a client returned to the manager for a file.
    pub reopened: u64,
    /// Times that another primary took over.
    pub taken_over: u64,
    /// Times that a store was left out of an open write.
    pub left_out: u64,
    /// Files that their clients abandoned because machines had restarted.
    pub abandoned: u64,
    /// Ends of processes.
    pub kills: u64,
    /// Ends of machines.
    pub power_failures: u64,
    /// Restarts after a power failure that the manager learned of.
    pub booted: u64,
    /// Partitions.
    pub partitions: u64,
    /// Disk errors.
    pub disk_errors: u64,
    /// Bytes at rest that a disk damaged.
    pub damaged: u64,
    /// Damaged replicas that a scrub or a reader found.
    pub found_damaged: u64,
    /// Files of which a change was made on damaged replicas alone, before anybody had found the damage.
    pub hopeless: u64,
    /// Copies that differed from the primary's.
    pub differing: u64,
    /// Missing replicas that were copied.
    pub copied: u64,
    /// Files that were removed.
    pub removed: u64,
    /// Replicas that stores have deleted.
    pub deleted: u64,
    /// Clients that vanished during a write.
    pub vanished: u64,
    /// Clients that lost their connection during a write and came back.
    pub absent: u64,
    /// Clients that came back after their open write had ended.
    pub late: u64,
    /// Open writes that ended without their client.
    pub interrupted: u64,
    /// Times that a store was set to drain.
    pub drained: u64,
    /// Stores that were removed as lost.
    pub lost_stores: u64,
    /// Changes of quotas, owners, modes and ACLs that were acknowledged.
    pub access_changes: u64,
    /// Opens and writes that a quota refused.
    pub over_quota: u64,
    /// Times that a manager became active on a database.
    pub turns: u64,
    /// Faults of the database.
    pub database_faults: u64,
    /// Times that a manager stood still, or could not reach the database.
    pub stalls: u64,
    /// Batches that managers have committed in the database.
    pub batches: u64,
    /// Commits whose answer was lost.
    pub answers_lost: u64,
    /// Of them, those that turned out to be committed.
    pub found_committed: u64,
    /// Batches whose outcome the manager never learned.
    pub unknown: u64,
    /// Failovers that lost acknowledged changes.
    pub losses_of_database: u64,
    /// Of them, those of which a manager said so.
    pub said_losses: u64,
    /// Of them, those of which no manager could know any more.
    pub hidden_losses: u64,
}

impl Counts {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            events: self.events + other.events,
            delivered: self.delivered + other.delivered,
            lost: self.lost + other.lost,
            closed: self.closed + other.closed,
            writes: self.writes + other.writes,
            reads: self.reads + other.reads,
            reopened: self.reopened + other.reopened,
            taken_over: self.taken_over + other.taken_over,
            left_out: self.left_out + other.left_out,
            abandoned: self.abandoned + other.abandoned,
            kills: self.kills + other.kills,
            power_failures: self.power_failures + other.power_failures,
            booted: self.booted + other.booted,
            partitions: self.partitions + other.partitions,
            disk_errors: self.disk_errors + other.disk_errors,
            damaged: self.damaged + other.damaged,
            found_damaged: self.found_damaged + other.found_damaged,
            hopeless: self.hopeless + other.hopeless,
            differing: self.differing + other.differing,
            copied: self.copied + other.copied,
            removed: self.removed + other.removed,
            deleted: self.deleted + other.deleted,
            vanished: self.vanished + other.vanished,
            absent: self.absent + other.absent,
            late: self.late + other.late,
            interrupted: self.interrupted + other.interrupted,
            drained: self.drained + other.drained,
            lost_stores: self.lost_stores + other.lost_stores,
            access_changes: self.access_changes + other.access_changes,
            over_quota: self.over_quota + other.over_quota,
            turns: self.turns + other.turns,
            database_faults: self.database_faults + other.database_faults,
            stalls: self.stalls + other.stalls,
            batches: self.batches + other.batches,
            answers_lost: self.answers_lost + other.answers_lost,
            found_committed: self.found_committed + other.found_committed,
            unknown: self.unknown + other.unknown,
            losses_of_database: self.losses_of_database + other.losses_of_database,
            said_losses: self.said_losses + other.said_losses,
            hidden_losses: self.hidden_losses + other.hidden_losses,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { events, delivered, lost, closed, writes, reads, reopened, taken_over, left_out, .. } = self;
        let Counts { abandoned, kills, power_failures, partitions, disk_errors, differing, copied, .. } = self;
        let Counts {
            removed,
            deleted,
            vanished,
            absent,
            late,
            interrupted,
            damaged,
            found_damaged,
            hopeless,
            drained,
            lost_stores,
            access_changes,
            over_quota,
            ..
        } = self;
        write!(
            f,
            "{events} events, {delivered} messages and {lost} lost; {closed} files closed, {writes} writes, {reads} reads compared; {reopened} \
             reopened, {taken_over} taken over, {left_out} stores left out, {abandoned} files abandoned, {removed} removed, {deleted} replicas deleted, \
             {vanished} clients gone and {absent} away for a while, {late} of them for too long, {interrupted} open writes ended for them; {kills} kills, {power_failures} power \
             failures, {partitions} partitions, {disk_errors} disk errors, {damaged} bytes damaged, {found_damaged} damaged replicas found, {hopeless} files changed with damaged replicas alone; {differing} copies differed, {copied} made later; {drained} \
             times a store was drained, {lost_stores} removed as lost; {access_changes} changes of quotas and permissions, {over_quota} refusals for quotas"
        )?;
        if self.turns == 0 {
            return Ok(());
        }
        let Counts { turns, database_faults, stalls, batches, answers_lost, found_committed, unknown, .. } = self;
        let Counts { losses_of_database, said_losses, hidden_losses, .. } = self;
        write!(
            f,
            "; {turns} turns of managers, {database_faults} faults of the database and {stalls} of managers, {batches} batches, \
             {answers_lost} answers lost, {found_committed} of them of committed batches, {unknown} never known; {losses_of_database} failovers lost \
             changes, of which {said_losses} were said and {hidden_losses} could not be known"
        )
    }
}
