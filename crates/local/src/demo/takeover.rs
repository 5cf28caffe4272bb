//! The act in which the active manager is killed.

use std::sync::Arc;
use std::time::Instant;

use super::DemoError;
use super::clients::Client;
use super::files;
use super::play::{KILL_AT, PER_SECOND, RECORDING_MAX, STEP, STREAM_LEN, STREAMS, Stage};
use super::recorder::{Ended, Recorder};
use config::units::{show_duration, show_size};

/// The file that is recorded meanwhile.
const PATH: &str = "/demo/takeover";

impl Stage<'_> {
    /// Kills the active manager while a file is recorded. Another one must take over; a manager that is alone is started again.
    pub(super) fn lose_manager(&mut self) -> Result<(), DemoError> {
        self.screen.step("Kill the active manager while a file is recorded");
        let bytes = Arc::new(files::stream_bytes(STREAMS + 1, STREAM_LEN));
        let says = self.place.join("takeover.err");
        let begin = Instant::now();
        let mut recorder = Recorder::start(&self.cluster.url(PATH), Arc::clone(&bytes), PER_SECOND, &says)?;
        let mut killed: Option<(String, Instant)> = None;
        let mut successor: Option<String> = None;
        loop {
            self.stop.check()?;
            match (&killed, &successor) {
                (None, _) if recorder.fed() >= KILL_AT => killed = Some(self.kill_manager(begin)?),
                (Some((_, at)), None) => {
                    successor = self.cluster.active();
                    if let Some(name) = &successor {
                        let (now, after) = (begin.elapsed().as_secs_f64(), show_duration(at.elapsed()));
                        self.screen.note(&format!("{now:>5.1} s: {name} is active, {after} after that"));
                    }
                }
                _ => {}
            }
            match recorder.ended()? {
                Some(Ended { failed: Some(why), .. }) => {
                    return Err(DemoError::Wrong(format!("{PATH} is not whole: its weir cp ended with {why}")));
                }
                Some(_) if successor.is_some() || killed.is_none() => break,
                // The file may be complete before another manager is active.
                Some(_) | None => {}
            }
            if begin.elapsed() > RECORDING_MAX {
                let (fed, is) = (show_size(recorder.fed()), if successor.is_some() { "a" } else { "no" });
                let seconds = RECORDING_MAX.as_secs();
                return Err(DemoError::Wrong(format!(
                    "after {seconds} s {fed} of {PATH} were handed over, and {is} manager is active"
                )));
            }
            std::thread::sleep(STEP);
        }
        let Some((victim, _)) = killed else {
            return Err(DemoError::Wrong("the recording was over before a manager could be killed".into()));
        };
        self.read_back(Client::Ours, PATH, &bytes, &self.place.join("back"))?;
        self.standing(PATH)?.must_be_whole(PATH, bytes.len() as u64)?;
        self.screen.good("the recording went on to its end; read back, every byte is as it was recorded");
        if self.cluster.managers() > 1 {
            let took = self.cluster.start(&victim)?;
            self.screen.good(&format!("{victim} is back after {}, as a standby", show_duration(took)));
        }
        Ok(())
    }

    /// Returns its name, and when it was killed.
    fn kill_manager(&mut self, begin: Instant) -> Result<(String, Instant), DemoError> {
        let victim = self.cluster.active().ok_or_else(|| DemoError::Wrong("no manager is active".into()))?;
        self.cluster.kill(&victim)?;
        let at = Instant::now();
        let now = begin.elapsed().as_secs_f64();
        self.screen.note(&format!("{now:>5.1} s: KILLED {victim} (SIGKILL), the active manager"));
        if self.cluster.managers() == 1 {
            self.cluster.start(&victim)?;
        }
        Ok((victim, at))
    }
}
