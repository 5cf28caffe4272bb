//! Work that can wait: merging tables, making checkpoints.
//!
//! This work uses a processor for seconds at a time. The committer needs one for some microseconds, thousands of times
//! a second, and every client waits for it. A scheduler that is fair to both would make each commit wait for a time
//! slice.

use std::sync::OnceLock;

use thread_priority::unix::{NormalThreadSchedulePolicy, ThreadSchedulePolicy};
use thread_priority::{ThreadPriority, set_thread_priority_and_policy, thread_native_id};

/// Runs `work` on its own thread in otherwise idle time (`SCHED_IDLE`, sched(7); at nice 10 without a privilege).
/// `urgent` work runs at normal priority: a backlog must shrink even on a machine that is never idle. `work` must call
/// [`restore_priority`] before it takes a lock that others wait for.
pub(crate) fn at_low_priority<T: Send>(name: &str, urgent: bool, work: impl Fn() -> T + Sync) -> T {
    if urgent {
        return work();
    }
    std::thread::scope(|scope| {
        // One thread per job: without privileges a thread cannot return to the normal policy.
        let idle = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, || {
            lower_priority();
            work()
        });
        match idle {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // No thread is available: run here at normal priority.
            Err(_) => work(),
        }
    })
}

/// Nice levels as this crate counts priorities (0 to 99).
const NICE_0: u8 = 47;
const NICE_10: u8 = 22;

/// Lowers this thread's priority: to idle time if it can return to normal, otherwise to a smaller share.
pub(crate) fn lower_priority() {
    if can_restore_priority() {
        schedule(NormalThreadSchedulePolicy::Idle, ThreadPriority::Min);
    } else {
        schedule(NormalThreadSchedulePolicy::Other, nice(NICE_10));
    }
}

/// Restores normal priority for work that others wait for: on a busy machine it would take very long otherwise.
pub(crate) fn restore_priority() {
    if can_restore_priority() {
        schedule(NormalThreadSchedulePolicy::Other, nice(NICE_0));
    }
}

/// Whether a thread can return to normal priority. This needs a privilege or a limit (`LimitNICE=+0` of a service).
fn can_restore_priority() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let tried = std::thread::spawn(|| {
            schedule(NormalThreadSchedulePolicy::Idle, ThreadPriority::Min)
                && schedule(NormalThreadSchedulePolicy::Other, nice(NICE_0))
        });
        tried.join().unwrap_or(false)
    })
}

fn nice(level: u8) -> ThreadPriority {
    ThreadPriority::Crossplatform(level.try_into().unwrap_or_default())
}

fn schedule(policy: NormalThreadSchedulePolicy, priority: ThreadPriority) -> bool {
    let set = set_thread_priority_and_policy(thread_native_id(), priority, ThreadSchedulePolicy::Normal(policy));
    if let Err(error) = &set {
        tracing::debug!("the priority of a thread in the background stays as it is: {error:?}");
    }
    set.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nice level and scheduling policy of this thread: fields 19 and 41 of its `stat` (proc(5)).
    fn priority() -> (i32, u32) {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        (fields[16].parse().unwrap(), fields[38].parse().unwrap())
    }

    const NORMAL: (i32, u32) = (0, 0);

    #[test]
    fn only_urgent_work_keeps_its_priority_and_the_caller_keeps_its_own() {
        let own = priority();
        let (idle, back) = if can_restore_priority() { ((0, 5), NORMAL) } else { ((10, 0), (10, 0)) };
        assert_eq!(at_low_priority("test", false, priority), idle);
        let returned = || {
            restore_priority();
            priority()
        };
        assert_eq!(at_low_priority("test", false, returned), back);
        assert_eq!(at_low_priority("test", true, priority), own);
        assert_eq!(priority(), own);
        assert_eq!(
            std::thread::spawn(|| (schedule(NormalThreadSchedulePolicy::Other, nice(NICE_10)), priority()))
                .join()
                .unwrap(),
            (true, (10, 0))
        );
    }

    #[test]
    fn a_panic_reaches_the_caller_unchanged() {
        let caught = std::panic::catch_unwind(|| at_low_priority("test", false, || panic!("as it is")));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "as it is");
    }
}
