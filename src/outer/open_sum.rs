//! The sum that an owner keeps open while contributions arrive.

use super::exact_sum::{ExactSum, SumError};
use super::recount::Part;
use crate::names::BlobHash;

/// A sum, and what was added to it.
#[derive(Debug)]
pub struct OpenSum {
    sum: ExactSum,
    added: Vec<(BlobHash, u32)>,
    running: u32,
}

impl OpenSum {
    /// An empty sum of `count` values. `running` is the running norm by which contributions are capped.
    pub fn new(count: usize, running: u32) -> Self {
        Self { sum: ExactSum::new(count), added: Vec::new(), running }
    }

    /// The running norm by which contributions are capped; 0 if there is none yet.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// Adds `weight` times the values of a contribution.
    ///
    /// # Errors
    /// As [`ExactSum::add`]. The sum is then as before.
    pub fn add(&mut self, blob: BlobHash, values: &[f32], weight: u32) -> Result<(), SumError> {
        self.sum.add(values, weight)?;
        self.added.push((blob, weight));
        Ok(())
    }

    /// The sum, if exactly these contributions were added with these weights. If the trainers of a path are not as many
    /// as was expected when they were added, their weights differ, and the sum has to be made again.
    pub fn of(mut self, parts: &[Part]) -> Option<ExactSum> {
        let mut listed: Vec<(BlobHash, u32)> = parts.iter().map(|part| (part.blob.hash, part.weight)).collect();
        listed.sort_unstable();
        self.added.sort_unstable();
        (listed == self.added).then_some(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::BlobRef;

    #[test]
    fn a_sum_is_that_of_its_contributions_with_their_weights_in_any_order() {
        let part = |byte: u8, weight| Part { blob: BlobRef::of(&[byte]), weight, norm: 0 };
        let open = || {
            let mut open = OpenSum::new(1, 0);
            open.add(part(1, 3).blob.hash, &[1.0], 3).unwrap();
            open.add(part(2, 5).blob.hash, &[2.0], 5).unwrap();
            open
        };
        assert_eq!(open().of(&[part(2, 5), part(1, 3)]).map(|sum| sum.weight()), Some(8));
        assert_eq!(open().of(&[part(1, 5), part(2, 3)]), None, "of the same weight in all");
        assert_eq!(open().of(&[part(1, 3)]), None);
        let mut refused = open();
        assert!(refused.add(part(3, 1).blob.hash, &[f32::NAN], 1).is_err());
        assert!(refused.of(&[part(1, 3), part(2, 5)]).is_some());
    }
}
