//! A budget for each second that many authors share: while it is short, none gets more than its share.
//!
//! Without shares, a few keys that each keep to their own rate use up what there is for all. Without a bound on the number
//! of shares, thousands of keys with a share of one message each use up a multiple of it.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::network::limits::RATED_PEERS;

/// The budget, by the second. Time is passed in.
pub(crate) struct FairBudget<K> {
    per_second: u32,
    second: u64,
    used: u32,
    /// Of each author in this second.
    by: HashMap<K, u32>,
    /// How many authors there were in the second before.
    before: usize,
}

impl<K: Hash + Eq + Clone> FairBudget<K> {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second, second: 0, used: 0, by: HashMap::new(), before: 0 }
    }

    /// Authors that may have a share in one second: a share is two messages at least.
    fn most_authors(&self) -> usize {
        (self.per_second as usize / 2).clamp(1, RATED_PEERS)
    }

    /// Whether there is one more for this author. The first half of each second's budget is for whoever comes; from then
    /// on an author gets its share alone. At most one and a half budgets are used, whatever the shares.
    pub(crate) fn allows(&mut self, author: &K, now: Duration) -> bool {
        let second = now.as_secs();
        if second != self.second {
            self.before = if second == self.second + 1 { self.by.len() } else { 0 };
            (self.second, self.used) = (second, 0);
            self.by.clear();
        }
        let is_early = self.used < self.per_second / 2;
        if self.by.len() >= self.most_authors() && !self.by.contains_key(author) {
            self.used += u32::from(is_early);
            return is_early;
        }
        let own = self.by.entry(author.clone()).or_insert(0);
        let own_before = *own;
        *own = own.saturating_add(1);
        let authors = u32::try_from(self.by.len().max(self.before)).unwrap_or(u32::MAX);
        let share = (self.per_second / authors).max(1);
        let is_left = self.used < self.per_second + self.per_second / 2;
        let allowed = is_early || (own_before < share && is_left);
        self.used += u32::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_that_say_much_leave_the_share_of_those_that_say_little() {
        let mut budget = FairBudget::new(4_096);
        let (mut honest, mut greedy) = (0, 0);
        for second in 0..10 {
            let now = Duration::from_secs(second);
            for _ in 0..2_000 {
                greedy += (0..4).filter(|author| budget.allows(author, now)).count();
            }
            for _ in 0..20 {
                honest += (100..150).filter(|author| budget.allows(author, now)).count();
            }
        }
        assert_eq!(honest, 10 * 20 * 50);
        assert!(honest + greedy <= 10 * 4_096 * 3 / 2, "{greedy}");
    }

    #[test]
    fn thousands_of_keys_use_no_more_than_one_and_a_half_budgets() {
        let mut budget = FairBudget::new(1_024);
        for second in 1..4 {
            let now = Duration::from_secs(second);
            let allowed = (0..3).flat_map(|_| 0..4 * RATED_PEERS).filter(|author| budget.allows(author, now)).count();
            assert!(allowed <= 1_536, "{allowed} in second {second}");
        }
        // Also where shares become smaller within a second.
        let now = Duration::from_secs(9);
        let alone = (0..1_024).filter(|_| budget.allows(&0, now)).count();
        let after = (0..3).flat_map(|_| 0..RATED_PEERS).filter(|author| budget.allows(author, now)).count();
        assert!(alone + after <= 1_536, "{alone} and {after}");
    }

    #[test]
    fn who_is_alone_gets_all() {
        let mut budget = FairBudget::new(1_000);
        let allowed = |budget: &mut FairBudget<u8>, second| {
            (0..2_000).filter(|_| budget.allows(&1, Duration::from_secs(second))).count()
        };
        assert_eq!([5, 6, 9].map(|second| allowed(&mut budget, second)), [1_000; 3]);
    }

    #[test]
    fn names_that_are_made_up_do_not_fill_the_memory() {
        let mut budget = FairBudget::new(10);
        for author in 0..3 * RATED_PEERS {
            budget.allows(&author, Duration::ZERO);
            assert!(budget.by.len() <= 5);
        }
    }
}
