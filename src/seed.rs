//! One seed for a run; every use of chance has a named child of it, so that adding one disturbs no other.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// A seed from which others are derived by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed([u8; 32]);

impl Seed {
    /// The root of a run.
    pub fn root(number: u64) -> Self {
        Self(blake3::derive_key("pathswarm 2026 run seed", &number.to_le_bytes()))
    }

    /// The child for one purpose: `seed.child("initial parameters")`.
    pub fn child(&self, purpose: &str) -> Self {
        Self(*blake3::keyed_hash(&self.0, purpose.as_bytes()).as_bytes())
    }

    /// The child for one numbered thing: `seed.child("batches").number(path)`.
    pub fn number(&self, number: u64) -> Self {
        Self(*blake3::keyed_hash(&self.0, &number.to_le_bytes()).as_bytes())
    }

    /// A generator that gives the same values on every machine.
    pub fn generator(&self) -> ChaCha8Rng {
        ChaCha8Rng::from_seed(self.0)
    }

    /// Sixty-four bits, for libraries that take a seed as a number.
    pub fn to_u64(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_differ_by_name_and_number_and_repeat() {
        let root = Seed::root(1);
        assert_eq!(root.child("a"), Seed::root(1).child("a"));
        assert_ne!(root.child("a"), root.child("b"));
        assert_ne!(root.child("a").number(0), root.child("a").number(1));
        assert_ne!(root, Seed::root(2));
    }
}
