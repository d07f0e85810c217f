//! The cache of keys and values of earlier tokens, so that generation does not compute them again.

use tch::{Device, Kind, TchError, Tensor};

/// The cache of one block.
#[derive(Default)]
pub struct Past {
    /// Keys and values, `[batch, heads, time, head]` each.
    pairs: Option<(Tensor, Tensor)>,
    /// The sum of the router's inputs, `[batch, 1, width]`, and their number.
    pub(in crate::model) sum: Option<(Tensor, i64)>,
}

/// The caches of all blocks of a path.
#[derive(Default)]
pub struct Memory {
    pub(in crate::model) blocks: Vec<Past>,
    /// Number of tokens in the cache.
    pub read: usize,
    /// Tokens that must be computed again with the next ones.
    pub(in crate::model) again: Vec<u32>,
}

impl Past {
    /// Appends keys and values, and returns all.
    pub(in crate::model) fn extended(&mut self, keys: Tensor, values: Tensor) -> Result<(Tensor, Tensor), TchError> {
        let (keys, values) = match self.pairs.take() {
            None => (keys, values),
            Some((before, of)) => (Tensor::f_cat(&[before, keys], 2)?, Tensor::f_cat(&[of, values], 2)?),
        };
        self.pairs = Some((keys.shallow_clone(), values.shallow_clone()));
        Ok((keys, values))
    }
}

/// The attention mask of the last `new` of `all` tokens: each attends to those up to itself. `None` if plain causality
/// or no mask does the same.
pub(in crate::model) fn mask(new: i64, all: i64, device: Device) -> Result<Option<Tensor>, TchError> {
    if new == all || new == 1 {
        return Ok(None);
    }
    Ok(Some(Tensor::f_ones([new, all], (Kind::Bool, device))?.f_tril(all - new)?))
}
