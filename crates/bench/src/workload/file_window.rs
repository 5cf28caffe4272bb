//! How many requests may be under way on a worker's present file.

use crate::load::Tally;
use crate::target::{OpenFile, Window};

pub(super) struct FileWindow {
    window: Window,
    /// The most for any file.
    max: usize,
    allowed: usize,
}

impl FileWindow {
    /// `driver_max`: how many the driver supports. An automatic window is 1 until a file is open.
    pub fn new(window: Window, driver_max: usize) -> Self {
        let max = window.most(driver_max);
        Self { window, max, allowed: if window == Window::Auto { 1 } else { max } }
    }

    /// Returns how many requests may be under way.
    pub fn allowed(&self) -> usize {
        self.allowed
    }

    /// `file` was opened for requests of `len` bytes. Notes its window, if it is automatic.
    pub fn opened(&mut self, file: &dyn OpenFile, len: usize, tally: &mut Tally) {
        if self.window == Window::Auto {
            self.allowed = file.window_for(len).clamp(1, self.max);
            tally.add_auto_window(self.allowed);
        }
    }
}
