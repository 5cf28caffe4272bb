//! Work that can wait: merging tables, making checkpoints.
//!
//! It takes seconds on end of a processor, while the committer needs one for some microseconds thousands of times a second, and
//! everybody waits for it. A scheduler that is fair to both makes each commit wait for a time slice.

use thread_priority::unix::{NormalThreadSchedulePolicy, ThreadSchedulePolicy};
use thread_priority::{ThreadPriority, set_thread_priority_and_policy, thread_native_id};

/// Runs `work` on a thread of its own, in the time that others leave (`SCHED_IDLE`, sched(7)), unless it is `urgent`: what has piled
/// up has to be done even on a machine that is never idle.
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

/// Lets all others go before the present thread.
fn give_way() {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    if let Err(error) = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle) {
        tracing::debug!("a background thread keeps its priority: {error:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scheduling policy of the present thread: field 41 of its `stat` (proc(5)).
    fn policy() -> u32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        rest.split_whitespace().nth(38).unwrap().parse().unwrap()
    }

    const NORMAL: u32 = 0;
    const IDLE: u32 = 5;

    #[test]
    fn it_gives_way_unless_it_is_urgent_and_the_caller_keeps_its_priority() {
        assert_eq!(in_spare_time("test", false, policy), IDLE);
        assert_eq!(in_spare_time("test", true, policy), NORMAL);
        assert_eq!(policy(), NORMAL);
    }

    #[test]
    fn a_panic_comes_through_as_it_is() {
        let caught = std::panic::catch_unwind(|| in_spare_time("test", false, || panic!("as it is")));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "as it is");
    }
}
