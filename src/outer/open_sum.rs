//! The sum that an owner keeps open while contributions arrive.

use super::agreement::Lengths;
use super::exact_sum::{ExactSum, SumError};
use super::recount::{Gradient, Part};
use crate::names::BlobHash;

/// A sum, and what was added to it.
#[derive(Debug)]
pub struct OpenSum {
    sum: ExactSum,
    added: Vec<(BlobHash, u32)>,
    lengths: Lengths,
    running: u32,
}

impl OpenSum {
    /// An empty sum of `count` values. `running` is the running norm by which contributions are capped.
    pub fn new(count: usize, running: u32) -> Self {
        Self { sum: ExactSum::new(count), added: Vec::new(), lengths: Lengths::default(), running }
    }

    /// The running norm by which contributions are capped; 0 if there is none yet.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// Adds `weight` times a contribution.
    ///
    /// # Errors
    /// As [`ExactSum::add`]. The sum is then as before.
    pub fn add(&mut self, blob: BlobHash, gradient: &Gradient, weight: u32) -> Result<(), SumError> {
        self.sum.add(&gradient.values, weight)?;
        self.lengths.add(gradient.summed_length(), weight);
        self.added.push((blob, weight));
        Ok(())
    }

    /// The sum and the lengths of its summands, if exactly these contributions were added with these weights. If the trainers of a path are not as many
    /// as was expected when they were added, their weights differ, and the sum has to be made again.
    pub fn of(mut self, parts: &[Part]) -> Option<(ExactSum, Lengths)> {
        let mut listed: Vec<(BlobHash, u32)> = parts.iter().map(|part| (part.blob.hash, part.weight)).collect();
        listed.sort_unstable();
        self.added.sort_unstable();
        (listed == self.added).then_some((self.sum, self.lengths))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::BlobRef;

    #[test]
    fn a_sum_is_that_of_its_contributions_with_their_weights_in_any_order() {
        let part = |byte: u8, weight| Part { blob: BlobRef::of(&[byte]), weight, norm: 0 };
        let of = |values: &[f32]| Gradient::new(values.to_vec());
        let open = || {
            let mut open = OpenSum::new(1, 0);
            open.add(part(1, 3).blob.hash, &of(&[1.0]), 3).unwrap();
            open.add(part(2, 5).blob.hash, &of(&[2.0]), 5).unwrap();
            open
        };
        let (sum, lengths) = open().of(&[part(2, 5), part(1, 3)]).unwrap();
        assert_eq!((sum.weight(), lengths.of(&sum).mean_norm), (8, 13.0 / 8.0));
        assert!(open().of(&[part(1, 5), part(2, 3)]).is_none(), "of the same weight in all");
        assert!(open().of(&[part(1, 3)]).is_none());
        let mut refused = open();
        assert!(refused.add(part(3, 1).blob.hash, &of(&[f32::NAN]), 1).is_err());
        assert!(refused.of(&[part(1, 3), part(2, 5)]).is_some());
    }
}
