//! The share of the device's time that answers may take from the trainers, and the part of it for peers that are no
//! members.

use std::time::Duration;

/// Time that may be used at once after a quiet while: some answers, so that a person who asks seldom does not wait.
const BURST: Duration = Duration::from_secs(5);

/// The same for all peers together that are no members.
const BURST_OF_STRANGERS: Duration = Duration::from_secs(2);

/// Of the share, what those may take.
const SHARE_OF_STRANGERS: f64 = 0.5;

/// What an accepted query counts until its answer is made: about what one of the longest takes.
pub(super) const RESERVED: Duration = Duration::from_secs(1);

/// What answers may still take. Time is passed in.
#[derive(Debug)]
struct Budget {
    share: f64,
    burst_s: f64,
    /// Seconds; negative after an answer that took more than there was.
    left_s: f64,
    at: Duration,
}

impl Budget {
    fn new(share: f64, burst: Duration) -> Self {
        Self { share, burst_s: burst.as_secs_f64(), left_s: burst.as_secs_f64(), at: Duration::ZERO }
    }

    fn wait(&mut self, now: Duration) -> Option<Duration> {
        let gained = now.saturating_sub(self.at).as_secs_f64() * self.share;
        (self.left_s, self.at) = ((self.left_s + gained).min(self.burst_s), now.max(self.at));
        let wait_s = (-self.left_s / self.share).max(0.0);
        (self.left_s < 0.0).then(|| Duration::try_from_secs_f64(wait_s).unwrap_or(Duration::MAX))
    }

    fn add(&mut self, seconds: f64) {
        self.left_s = (self.left_s + seconds).min(self.burst_s);
    }
}

/// What all answers may still take, and what those to peers that are no members may. Time is passed in.
#[derive(Debug)]
pub(super) struct DeviceShare {
    all: Budget,
    strangers: Budget,
}

impl DeviceShare {
    /// Of this share of the time, from 0 to 1.
    pub(super) fn new(share: f64) -> Self {
        let strangers = Budget::new(SHARE_OF_STRANGERS * share, BURST_OF_STRANGERS);
        Self { all: Budget::new(share, BURST), strangers }
    }

    /// How long no query of a member, or of another peer, may be accepted.
    pub(super) fn wait(&mut self, of_member: bool, now: Duration) -> Option<Duration> {
        let (all, strangers) = (self.all.wait(now), self.strangers.wait(now));
        if of_member { all } else { all.max(strangers) }
    }

    /// A query is accepted: it counts at once, so that those behind it are not accepted on what it will take.
    pub(super) fn reserve(&mut self, of_member: bool) {
        self.add(of_member, -RESERVED.as_secs_f64());
    }

    /// An accepted query has ended, for which trainers that wanted the device have waited so long.
    pub(super) fn settle(&mut self, of_member: bool, took: Duration) {
        self.add(of_member, RESERVED.as_secs_f64() - took.as_secs_f64());
    }

    fn add(&mut self, of_member: bool, seconds: f64) {
        self.all.add(seconds);
        if !of_member {
            self.strangers.add(seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long answers take within a time in which members, strangers or both ask without end, each 500 ms, three at
    /// a time.
    fn flood(share: &mut DeviceShare, seconds: u64, members: bool, strangers: bool) -> (f64, f64) {
        let (mut now, took) = (Duration::ZERO, Duration::from_millis(500));
        let mut answering_s = [0.0; 2];
        while now < Duration::from_secs(seconds) {
            let mut accepted = Vec::new();
            for of_member in [members.then_some(true), strangers.then_some(false)].into_iter().flatten().cycle().take(4)
            {
                if share.wait(of_member, now).is_none() {
                    share.reserve(of_member);
                    accepted.push(of_member);
                }
            }
            for of_member in &accepted {
                now += took;
                answering_s[usize::from(*of_member)] += took.as_secs_f64();
                share.settle(*of_member, took);
            }
            now += Duration::from_millis(if accepted.is_empty() { 100 } else { 1 });
        }
        (answering_s[1], answering_s[0])
    }

    #[test]
    fn a_flood_of_questions_gets_its_share_and_a_single_one_does_not_wait() {
        let mut share = DeviceShare::new(0.1);
        let (answering_s, _) = flood(&mut share, 1_000, true, false);
        assert!((100.0..=107.0).contains(&answering_s), "{answering_s} of 1000 s");
        assert_eq!(share.wait(true, Duration::from_secs(1_200)), None, "after a quiet while");
        let (answering_s, _) = flood(&mut DeviceShare::new(0.1), 100, true, false);
        assert!(answering_s <= 17.0, "{answering_s} of 100 s");
    }

    #[test]
    fn strangers_get_half_of_the_share_at_most_and_members_the_rest() {
        let (_, strangers_s) = flood(&mut DeviceShare::new(0.1), 1_000, false, true);
        assert!((50.0..=54.0).contains(&strangers_s), "{strangers_s} of 1000 s");
        let (members_s, strangers_s) = flood(&mut DeviceShare::new(0.1), 1_000, true, true);
        assert!(strangers_s <= 54.0 && members_s >= 46.0, "{members_s} and {strangers_s} of 1000 s");
    }

    #[test]
    fn what_is_accepted_counts_before_it_is_answered() {
        let mut share = DeviceShare::new(0.1);
        let accepted = (0..100)
            .take_while(|_| share.wait(false, Duration::ZERO).is_none().then(|| share.reserve(false)).is_some());
        assert_eq!(accepted.count(), 3);
        assert_eq!(share.wait(true, Duration::ZERO), None, "a member does not wait for strangers");
        (0..3).for_each(|_| share.settle(false, Duration::ZERO));
        assert_eq!(share.wait(false, Duration::ZERO), None, "no trainer has waited");
    }

    #[test]
    fn without_a_share_only_what_trainers_do_not_want_is_used() {
        let mut share = DeviceShare::new(0.0);
        assert_eq!(share.wait(true, Duration::from_secs(5)), None);
        share.reserve(true);
        share.settle(true, BURST + Duration::from_secs(1));
        assert_eq!(share.wait(true, Duration::from_secs(50)), Some(Duration::MAX));
    }
}
