//! Long lists, one page at a time, so that memory does not grow with them.

/// Iterates over a list that comes in pages. `page` gets the last item of the previous page and returns the next items in order. An empty page ends
/// the list.
pub struct Paged<T, E, F>
where
    F: FnMut(Option<&T>) -> Result<Vec<T>, E>,
{
    page: F,
    waiting: std::vec::IntoIter<T>,
    last: Option<T>,
    done: bool,
}

impl<T: Clone, E, F> Paged<T, E, F>
where
    F: FnMut(Option<&T>) -> Result<Vec<T>, E>,
{
    /// Starts at the beginning.
    pub fn new(page: F) -> Self {
        Self { page, waiting: Vec::new().into_iter(), last: None, done: false }
    }
}

impl<T: Clone, E, F> Iterator for Paged<T, E, F>
where
    F: FnMut(Option<&T>) -> Result<Vec<T>, E>,
{
    type Item = Result<T, E>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.waiting.next() {
                return Some(Ok(item));
            }
            if self.done {
                return None;
            }
            match (self.page)(self.last.as_ref()) {
                Ok(page) => {
                    self.done = page.is_empty();
                    if let Some(last) = page.last() {
                        self.last = Some(last.clone());
                    }
                    self.waiting = page.into_iter();
                }
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_are_read_and_errors_are_passed_on() {
        let list: Vec<u32> = (0..10).collect();
        let page = |after: Option<&u32>| {
            let from = after.map_or(0, |after| *after as usize + 1);
            Ok::<_, ()>(list[from..list.len().min(from + 3)].to_vec())
        };
        let all: Result<Vec<u32>, ()> = Paged::new(page).collect();
        assert_eq!(all, Ok(list.clone()));
        let mut broken = Paged::new(|after: Option<&u32>| if after.is_none() { Ok(vec![1]) } else { Err("broken") });
        assert_eq!((broken.next(), broken.next(), broken.next()), (Some(Ok(1)), Some(Err("broken")), None));
    }
}
