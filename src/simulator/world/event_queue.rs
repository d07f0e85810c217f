//! The event queue, by time. Events of the same time are in the order of insertion.

use std::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
pub struct EventQueue<T> {
    /// The events of each time, in order. In a large swarm a thousand events share a millisecond, so searches by time
    /// are rare.
    times: BTreeMap<u64, VecDeque<T>>,
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self { times: BTreeMap::new() }
    }
}

impl<T> EventQueue<T> {
    pub fn put(&mut self, at_ms: u64, thing: T) {
        self.times.entry(at_ms).or_default().push_back(thing);
    }

    /// The next event and its time.
    pub fn take(&mut self) -> Option<(u64, T)> {
        let mut first = self.times.first_entry()?;
        let (at_ms, thing) = (*first.key(), first.get_mut().pop_front());
        if first.get().is_empty() {
            first.remove();
        }
        Some((at_ms, thing?))
    }

    /// The next events of the same time, in order.
    pub fn coming(&self) -> impl Iterator<Item = &T> {
        self.times.first_key_value().into_iter().flat_map(|(_, things)| things)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_order_of_insertion() {
        let mut queue = EventQueue::default();
        for (at_ms, thing) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            queue.put(at_ms, thing);
        }
        assert_eq!(queue.take(), Some((1, 'a')));
        queue.put(5, 'e');
        assert!(queue.coming().eq(&['b']));
        let rest: Vec<char> = std::iter::from_fn(|| queue.take()).map(|(_, thing)| thing).collect();
        assert_eq!(rest, ['b', 'c', 'd', 'e']);
        queue.put(2, 'f');
        assert_eq!((queue.take(), queue.take()), (Some((2, 'f')), None));
    }
}
