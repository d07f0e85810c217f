//! A list that usually has one entry. That entry is stored in the list itself, because a node reads hundreds of such
//! lists per second.

use std::ops::{Deref, DerefMut};

/// The entries in order.
#[derive(Clone, Debug)]
pub struct SmallList<T> {
    /// The only entry, if there is just one.
    one: Option<T>,
    /// All entries if there are more. `one` is `None` then.
    all: Vec<T>,
}

impl<T> Default for SmallList<T> {
    fn default() -> Self {
        Self { one: None, all: Vec::new() }
    }
}

impl<T> Deref for SmallList<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        if self.all.is_empty() { self.one.as_slice() } else { &self.all }
    }
}

impl<T> DerefMut for SmallList<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if self.all.is_empty() { self.one.as_mut_slice() } else { &mut self.all }
    }
}

impl<T: PartialEq> PartialEq for SmallList<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for SmallList<T> {}

impl<T> SmallList<T> {
    /// Inserts an entry before an index, or at the end.
    pub fn insert(&mut self, place: usize, entry: T) {
        if self.is_empty() {
            self.one = Some(entry);
            return;
        }
        self.all.extend(self.one.take());
        self.all.insert(place.min(self.all.len()), entry);
    }

    /// Removes the entry at an index, if there is one.
    pub fn remove(&mut self, place: usize) -> Option<T> {
        match self.all.is_empty() {
            true => self.one.take_if(|_| place == 0),
            false => (place < self.all.len()).then(|| self.all.remove(place)),
        }
    }

    /// Drops the entries for which `keeps` returns false.
    pub fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        self.one.take_if(|entry| !keeps(entry));
        self.all.retain(keeps);
    }

    /// Replaces all entries.
    pub fn set(&mut self, entries: &[T])
    where
        T: Clone,
    {
        self.all.clear();
        self.one = None;
        match entries {
            [one] => self.one = Some(one.clone()),
            _ => self.all.extend_from_slice(entries),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_behaves_like_a_list_of_any_length() {
        let (mut few, mut list) = (SmallList::default(), Vec::new());
        for (place, entry) in [(0, 'c'), (0, 'a'), (1, 'b'), (3, 'd')] {
            few.insert(place, entry);
            list.insert(place, entry);
            assert_eq!(*few, *list);
        }
        few[2] = 'z';
        few.retain(|entry| *entry != 'b');
        assert_eq!(*few, ['a', 'z', 'd']);
        assert_eq!(few.remove(3), None);
        for expected in ['a', 'z', 'd'] {
            assert_eq!(few.remove(0), Some(expected));
        }
        assert_eq!(few.remove(0), None);
        few.insert(0, 'e');
        assert_eq!((few.remove(1), &*few), (None, &['e'][..]));
        for entries in [&[][..], &['x'], &['x', 'y'], &['z'], &[]] {
            few.set(entries);
            assert_eq!(*few, *entries);
        }
        few.set(&['k']);
        few.retain(|_| false);
        assert!(few.is_empty());
    }

    #[test]
    fn lists_are_equal_if_their_entries_are() {
        let (mut one, mut was_two) = (SmallList::default(), SmallList::default());
        one.set(&['a']);
        was_two.set(&['a', 'b']);
        assert_ne!(one, was_two);
        was_two.remove(1);
        assert_eq!(one, was_two);
    }
}
