//! What a path remembers of the tokens that it has read: their keys and values, so that it goes on without reading them
//! again.

use tch::{Device, Kind, TchError, Tensor};

/// Keys and values of one block, `[batch, heads, time, head]` each.
#[derive(Default)]
pub struct Past(Option<(Tensor, Tensor)>);

/// Those of all blocks of a path.
#[derive(Default)]
pub struct Memory {
    pub(super) blocks: Vec<Past>,
    pub(super) read: usize,
}

impl Memory {
    /// How many tokens were read.
    pub fn read(&self) -> usize {
        self.read
    }
}

impl Past {
    /// Adds what comes next, and gives all keys and values.
    ///
    /// # Errors
    /// If shapes do not fit or memory is short.
    pub(super) fn extended(&mut self, keys: Tensor, values: Tensor) -> Result<(Tensor, Tensor), TchError> {
        let (keys, values) = match self.0.take() {
            None => (keys, values),
            Some((before, of)) => (Tensor::f_cat(&[before, keys], 2)?, Tensor::f_cat(&[of, values], 2)?),
        };
        self.0 = Some((keys.shallow_clone(), values.shallow_clone()));
        Ok((keys, values))
    }
}

/// Which of `all` tokens each of the last `new` ones attends to: those up to itself. Nothing if that is plain causality, or
/// all of them.
///
/// # Errors
/// If memory is short.
pub(super) fn mask(new: i64, all: i64, device: Device) -> Result<Option<Tensor>, TchError> {
    if new == all || new == 1 {
        return Ok(None);
    }
    Ok(Some(Tensor::f_ones([new, all], (Kind::Bool, device))?.f_tril(all - new)?))
}
