//! The cache of keys and values of earlier tokens, so that generation does not compute them again.

use tch::{Device, Kind, TchError, Tensor};

/// The cache of one block.
#[derive(Default)]
pub struct Past {
    /// Keys and values, `[batch, heads, time, head]` each.
    pairs: Option<(Tensor, Tensor)>,
    /// The sum of the router's inputs, `[batch, 1, width]`, and their number.
    pub(in crate::model) sum: Option<(Tensor, i64)>,
    /// The router's output, once it no longer changes.
    pub(in crate::model) settled: Option<Tensor>,
    /// The caches of several texts that are read at once, one for each row of the batch, in place of the above.
    pub(in crate::model) rows: Vec<Past>,
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

impl Memory {
    /// A second cache with the same contents. Tensors are shared: nothing changes them, they are replaced.
    pub fn fork(&self) -> Self {
        Self { blocks: self.blocks.iter().map(Past::fork).collect(), read: self.read, again: self.again.clone() }
    }
}

/// One cache for each block, of several texts that are read at once.
pub(in crate::model) fn together(memories: &mut [&mut Memory], blocks: usize) -> Vec<Past> {
    let of_block = |block: usize| {
        let rows =
            memories.iter_mut().map(|memory| memory.blocks.get_mut(block).map(std::mem::take).unwrap_or_default());
        Past { rows: rows.collect(), ..Past::default() }
    };
    (0..blocks).map(of_block).collect()
}

/// Gives each text its caches back.
pub(in crate::model) fn apart(blocks: Vec<Past>, memories: &mut [&mut Memory]) {
    for (block, past) in blocks.into_iter().enumerate() {
        for (memory, own) in memories.iter_mut().zip(past.rows) {
            if let Some(place) = memory.blocks.get_mut(block) {
                *place = own;
            }
        }
    }
}

impl Past {
    fn fork(&self) -> Self {
        let same = Tensor::shallow_clone;
        Self {
            pairs: self.pairs.as_ref().map(|(keys, values)| (same(keys), same(values))),
            sum: self.sum.as_ref().map(|(sum, count)| (same(sum), *count)),
            settled: self.settled.as_ref().map(same),
            rows: self.rows.iter().map(Self::fork).collect(),
        }
    }

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
