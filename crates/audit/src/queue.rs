//! Lines that wait to be written: a bounded queue, without threads and clocks.

/// Bytes that wait at most. A further line is lost.
pub(crate) const QUEUE_BYTES: usize = 4 << 20;

/// What the writer takes at a time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Batch {
    /// Whole lines.
    pub(crate) bytes: Vec<u8>,
    /// How many lines were lost before them.
    pub(crate) lost_before: u64,
}

/// What a new line found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Added {
    /// The queue was empty: the writer may sleep.
    First,
    /// Others wait already.
    Further,
    /// The queue is half full: the writer should not wait for more.
    Enough,
    /// There was no room. The line is lost.
    Lost,
    /// The rest of the room is for more important lines.
    Reserved,
}

/// The queue. It takes lines until it is full, and then loses all until the writer has taken them: so the lost lines are in
/// one place, and the log can say where.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    bytes: Vec<u8>,
    /// Lines that were lost since the writer has taken the last batch, all after those that wait.
    lost_after: u64,
    /// Lines that were lost before those that wait.
    lost_before: u64,
}

impl Queue {
    /// Adds a line that must leave half of the queue to others.
    pub(crate) fn add_below_half(&mut self, line: &[u8]) -> Added {
        if self.lost_after > 0 || self.bytes.len() + line.len() > QUEUE_BYTES / 2 {
            return Added::Reserved;
        }
        self.add(line)
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, line: &[u8]) -> Added {
        if self.lost_after > 0 || self.bytes.len() + line.len() > QUEUE_BYTES {
            self.lost_after += 1;
            return Added::Lost;
        }
        let (before, half) = (self.bytes.len(), QUEUE_BYTES / 2);
        self.bytes.extend_from_slice(line);
        match before {
            0 => Added::First,
            _ if before < half && self.bytes.len() >= half => Added::Enough,
            _ => Added::Further,
        }
    }

    /// Takes all that waits. `into` gets its memory back to use.
    pub(crate) fn take(&mut self, into: &mut Batch) {
        into.bytes.clear();
        std::mem::swap(&mut self.bytes, &mut into.bytes);
        into.lost_before = self.lost_before;
        self.lost_before = std::mem::take(&mut self.lost_after);
    }

    /// Lines of the last batch could not be written, and were lost.
    pub(crate) fn lost_of_batch(&mut self, lines: u64) {
        self.lost_before += lines;
    }

    /// Whether nothing waits, not even to be told that lines are lost.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.lost_before == 0
    }

    /// Whether it is half full.
    pub(crate) fn is_enough(&self) -> bool {
        self.bytes.len() >= QUEUE_BYTES / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_counted_in_its_place() {
        let mut queue = Queue::default();
        let line = vec![b'x'; QUEUE_BYTES / 4];
        assert_eq!(queue.add(&line), Added::First);
        assert_eq!(queue.add(&line), Added::Enough);
        assert_eq!(queue.add(&line), Added::Further);
        assert_eq!(queue.add(&line), Added::Further);
        assert_eq!(queue.add(b"y\n"), Added::Lost);
        let mut batch = Batch::default();
        queue.take(&mut batch);
        assert_eq!((batch.bytes.len(), batch.lost_before), (QUEUE_BYTES, 0), "they were lost after these");
        assert!(!queue.is_empty(), "the log must tell that a line was lost, even if none follows");
        assert_eq!(queue.add(b"z\n"), Added::First);
        queue.take(&mut batch);
        assert_eq!(batch, Batch { bytes: b"z\n".to_vec(), lost_before: 1 });
        assert!(queue.is_empty());
        queue.lost_of_batch(2);
        queue.take(&mut batch);
        assert_eq!(batch, Batch { bytes: Vec::new(), lost_before: 2 });
    }

    #[test]
    fn half_of_the_queue_is_for_important_lines() {
        let mut queue = Queue::default();
        let line = vec![b'x'; QUEUE_BYTES / 4];
        assert_eq!(queue.add_below_half(&line), Added::First);
        assert_eq!(queue.add_below_half(&line), Added::Enough);
        assert_eq!(queue.add_below_half(b"y\n"), Added::Reserved);
        assert_eq!(queue.add(&line), Added::Further, "and none was lost");
        let mut batch = Batch::default();
        queue.take(&mut batch);
        assert_eq!((batch.bytes.len(), queue.lost_after, queue.lost_before), (3 * line.len(), 0, 0));
        assert_eq!(queue.add_below_half(b"y\n"), Added::First);
    }

    #[test]
    fn a_full_queue_takes_no_shorter_line_in_between() {
        let mut queue = Queue::default();
        assert_eq!(queue.add(&vec![b'x'; QUEUE_BYTES - 4]), Added::First);
        assert_eq!(queue.add(b"too long\n"), Added::Lost);
        assert_eq!(queue.add(b"s\n"), Added::Lost, "otherwise the log would tell the gap in the wrong place");
    }
}
