//! Batches that are halved where memory runs out.

use std::error::Error;

use crate::model::tensor_memory::{first_line, lift_profile_limit, ran_out_of_memory};

/// Calls `compute` with one batch after another of `items`, each of at most `rows` items, which is called with those that
/// are left. After an allocation that failed the batch is halved, and later ones have no more items than that.
///
/// # Errors
/// What `compute` returns, but for a failed allocation with more than one item.
pub fn in_batches<'a, T, E: Error + 'static>(
    items: &'a [T],
    rows: impl Fn(&[T]) -> usize,
    mut compute: impl FnMut(&'a [T]) -> Result<(), E>,
) -> Result<(), E> {
    let (mut rest, mut most) = (items, usize::MAX);
    while !rest.is_empty() {
        let count = rows(rest).min(most).clamp(1, rest.len());
        let (batch, later) = rest.split_at(count);
        match compute(batch) {
            Ok(()) => rest = later,
            Err(error) if ran_out_of_memory(&error) && count > 1 => {
                most = count.div_ceil(2);
                tracing::warn!(reason = %first_line(&error), sequences = most, "memory ran out: smaller batches");
            }
            Err(error) if ran_out_of_memory(&error) && lift_profile_limit() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tch::TchError;

    use super::*;

    /// The batches that are computed where so many items fit.
    fn batches(items: &[u32], rows: usize, fit: usize) -> Result<Vec<Vec<u32>>, TchError> {
        let mut found = Vec::new();
        in_batches(
            items,
            |rest| if rest[0] > 3 { rows } else { 2 * rows },
            |batch| {
                if batch.len() > fit {
                    return Err(TchError::Torch("DefaultCPUAllocator: can't allocate memory".to_owned()));
                }
                found.push(batch.to_vec());
                Ok(())
            },
        )?;
        Ok(found)
    }

    #[test]
    fn every_item_is_computed_once_in_order_in_as_many_as_fit() {
        let items = [1, 2, 3, 4, 5, 6, 7];
        assert_eq!(batches(&items, 2, 9).unwrap(), [vec![1, 2, 3, 4], vec![5, 6], vec![7]]);
        assert_eq!(batches(&items, 2, 3).unwrap(), [vec![1, 2], vec![3, 4], vec![5, 6], vec![7]]);
        assert_eq!(batches(&items, 9, 1).unwrap(), items.map(|item| vec![item]));
        assert!(ran_out_of_memory(&batches(&items, 9, 0).unwrap_err()));
        assert!(batches(&[], 9, 0).unwrap().is_empty());
    }

    #[test]
    fn other_errors_end_it() {
        let mut calls = 0;
        let compute = |_: &[u32]| {
            calls += 1;
            Err(TchError::Torch("of another shape".to_owned()))
        };
        assert!(in_batches(&[1, 2, 3], |_| 2, compute).is_err());
        assert_eq!(calls, 1);
    }
}
