//! Which tokens are learnt: a bit for each.

/// A bit for each of some ids, the first in the lowest bit of the first byte; one if the token is learnt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LearntBits {
    bytes: Vec<u8>,
    count: usize,
}

impl LearntBits {
    /// Bytes of so many bits.
    pub(super) fn bytes_of(count: u64) -> u64 {
        count.div_ceil(8)
    }

    /// So many bits in bytes; `None` if there are not exactly as many as needed, or a bit behind the last one is set.
    pub(super) fn new(bytes: Vec<u8>, count: usize) -> Option<Self> {
        let fits = bytes.len() as u64 == Self::bytes_of(count as u64);
        let spare = bytes.last().filter(|_| !count.is_multiple_of(8)).map_or(0, |last| last >> (count % 8));
        (fits && spare == 0).then_some(Self { bytes, count })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the token at a place is learnt. There are none behind the last one.
    pub(super) fn get(&self, at: usize) -> bool {
        at < self.count && self.bytes[at / 8] >> (at % 8) & 1 == 1
    }

    /// Adds a bit.
    pub(super) fn push(&mut self, learnt: bool) {
        if self.count.is_multiple_of(8) {
            self.bytes.push(0);
        }
        self.bytes[self.count / 8] |= u8::from(learnt) << (self.count % 8);
        self.count += 1;
    }

    /// Adds equal bits.
    pub(super) fn push_run(&mut self, learnt: bool, length: usize) {
        (0..length).for_each(|_| self.push(learnt));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back_from_their_bytes_and_no_others_do() {
        let mut bits = LearntBits::default();
        bits.push_run(false, 3);
        bits.push_run(true, 7);
        let found: Vec<usize> = (0..20).filter(|at| bits.get(*at)).collect();
        assert_eq!(found, (3..10).collect::<Vec<_>>());
        assert_eq!(bits.bytes(), [0b1111_1000, 0b11]);
        assert_eq!(LearntBits::new(bits.bytes().to_vec(), 10), Some(bits));
        for (bytes, count) in [(vec![0], 10), (vec![0, 4], 10), (vec![0, 0, 0], 10), (vec![0], 0)] {
            assert_eq!(LearntBits::new(bytes, count), None);
        }
        assert!(LearntBits::new(vec![255], 8).is_some());
    }
}
