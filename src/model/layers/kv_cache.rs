//! What a path remembers of the tokens that it has read: their keys and values, so that it goes on without reading them
//! again.

use tch::{Device, Kind, TchError, Tensor};

/// What one block remembers.
#[derive(Default)]
pub struct Past {
    /// Keys and values, `[batch, heads, time, head]` each.
    pairs: Option<(Tensor, Tensor)>,
    /// The sum of what its router has looked at, `[batch, 1, width]`, and of how many tokens.
    pub(in crate::model) sum: Option<(Tensor, i64)>,
    /// What its router has said for good.
    pub(in crate::model) settled: Option<Tensor>,
}

/// What all blocks of a path remember.
#[derive(Default)]
pub struct Memory {
    pub(in crate::model) blocks: Vec<Past>,
    pub(in crate::model) read: usize,
    /// What must be read again with whatever comes next.
    pub(in crate::model) again: Vec<u32>,
}

impl Memory {
    /// How many tokens were read.
    pub fn read(&self) -> usize {
        self.read
    }
}

impl Past {
    /// Adds what comes next, and gives all keys and values.
    pub(in crate::model) fn extended(&mut self, keys: Tensor, values: Tensor) -> Result<(Tensor, Tensor), TchError> {
        let (keys, values) = match self.pairs.take() {
            None => (keys, values),
            Some((before, of)) => (Tensor::f_cat(&[before, keys], 2)?, Tensor::f_cat(&[of, values], 2)?),
        };
        self.pairs = Some((keys.shallow_clone(), values.shallow_clone()));
        Ok((keys, values))
    }
}

/// Which of `all` tokens each of the last `new` ones attends to: those up to itself. Nothing if that is plain causality, or
/// all of them.
pub(in crate::model) fn mask(new: i64, all: i64, device: Device) -> Result<Option<Tensor>, TchError> {
    if new == all || new == 1 {
        return Ok(None);
    }
    Ok(Some(Tensor::f_ones([new, all], (Kind::Bool, device))?.f_tril(all - new)?))
}
