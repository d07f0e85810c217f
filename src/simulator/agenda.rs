//! What will happen, by time; of what happens at one time, what was put down first comes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Things that will happen.
#[derive(Debug)]
pub struct Agenda<T> {
    /// When, in which order, and where it lies.
    order: BinaryHeap<Reverse<(u64, u64, usize)>>,
    things: Vec<Option<T>>,
    free: Vec<usize>,
    put: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self { order: BinaryHeap::new(), things: Vec::new(), free: Vec::new(), put: 0 }
    }
}

impl<T> Agenda<T> {
    /// Puts something down.
    pub fn put(&mut self, at_ms: u64, thing: T) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.things.push(None);
            self.things.len() - 1
        });
        self.things[place] = Some(thing);
        self.order.push(Reverse((at_ms, self.put, place)));
        self.put += 1;
    }

    /// What comes next, and when.
    pub fn take(&mut self) -> Option<(u64, T)> {
        let Reverse((at_ms, _, place)) = self.order.pop()?;
        self.free.push(place);
        Some((at_ms, self.things[place].take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_and_then_in_the_order_in_which_it_was_put_down() {
        let mut agenda = Agenda::default();
        for (at_ms, thing) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            agenda.put(at_ms, thing);
        }
        assert_eq!(agenda.take(), Some((1, 'a')));
        agenda.put(5, 'e');
        let rest: Vec<char> = std::iter::from_fn(|| agenda.take()).map(|(_, thing)| thing).collect();
        assert_eq!(rest, ['b', 'c', 'd', 'e']);
    }
}
