//! Work that can wait: merging tables, making checkpoints.
//!
//! It takes seconds on end of a processor, while the committer needs one for some microseconds thousands of times a second, and
//! everybody waits for it. A scheduler that is fair to both makes each commit wait for a time slice.

use std::sync::OnceLock;

use thread_priority::unix::{NormalThreadSchedulePolicy, ThreadSchedulePolicy};
use thread_priority::{ThreadPriority, set_thread_priority_and_policy, thread_native_id};

/// Runs `work` on a thread of its own, in the time that others leave (`SCHED_IDLE`, sched(7); without a privilege at nice 10), unless it is `urgent`: what has piled
/// up has to be done even on a machine that is never idle. Locks that others wait for are taken after [`come_back`] only.
pub(crate) fn in_spare_time<T: Send>(name: &str, urgent: bool, work: impl Fn() -> T + Sync) -> T {
    if urgent {
        return work();
    }
    std::thread::scope(|scope| {
        // A thread for each piece of work, because without privileges there is no way back to the normal policy.
        let idle = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, || {
            give_way();
            work()
        });
        match idle {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // No thread is to be had: then here, in everybody's way.
            Err(_) => work(),
        }
    })
}

/// Nice levels as this crate counts priorities (0 to 99).
const NICE_0: u8 = 47;
const NICE_10: u8 = 22;

/// Lets others go before the present thread: all, if it can come back for what they wait for; else it only takes the smaller share.
pub(crate) fn give_way() {
    if can_come_back() {
        schedule(NormalThreadSchedulePolicy::Idle, ThreadPriority::Min);
    } else {
        schedule(NormalThreadSchedulePolicy::Other, nice(NICE_10));
    }
}

/// Ends that, for a part of the work that others wait for: on a machine that is never idle it would take very long.
pub(crate) fn come_back() {
    if can_come_back() {
        schedule(NormalThreadSchedulePolicy::Other, nice(NICE_0));
    }
}

/// Whether a thread that gave way may come back: it takes a privilege, or a limit (`LimitNICE=+0` of a service).
fn can_come_back() -> bool {
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

    /// Nice level and scheduling policy of the present thread: fields 19 and 41 of its `stat` (proc(5)).
    fn priority() -> (i32, u32) {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        (fields[16].parse().unwrap(), fields[38].parse().unwrap())
    }

    const NORMAL: (i32, u32) = (0, 0);

    #[test]
    fn it_gives_way_unless_it_is_urgent_and_the_caller_keeps_its_priority() {
        let own = priority();
        let (idle, back) = if can_come_back() { ((0, 5), NORMAL) } else { ((10, 0), (10, 0)) };
        assert_eq!(in_spare_time("test", false, priority), idle);
        let returned = || {
            come_back();
            priority()
        };
        assert_eq!(in_spare_time("test", false, returned), back);
        assert_eq!(in_spare_time("test", true, priority), own);
        assert_eq!(priority(), own);
        assert_eq!(
            std::thread::spawn(|| (schedule(NormalThreadSchedulePolicy::Other, nice(NICE_10)), priority()))
                .join()
                .unwrap(),
            (true, (10, 0))
        );
    }

    #[test]
    fn a_panic_comes_through_as_it_is() {
        let caught = std::panic::catch_unwind(|| in_spare_time("test", false, || panic!("as it is")));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "as it is");
    }
}
