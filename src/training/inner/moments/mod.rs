//! The moments of the inner optimiser, as a machine keeps them between steps: in f32, in bfloat16, or in 8 bits
//! ([`blocks`]). In a step they are widened piece by piece, updated in f32 and rounded again ([`rounding`]).
//!
//! What another machine gets, and what a checkpoint has, is always f32. Values that were rounded once are rounded to
//! themselves, so that training goes on from there with the same bits.

pub mod blocks;
pub mod by_tensor_ops;
#[cfg(test)]
mod measurements;
pub mod rounding;
pub mod store;
#[cfg(test)]
mod tests;

use rayon::ThreadPool;
use tch::{Device, TchError, Tensor};

use crate::config::MomentFormat;
use crate::model::host_values::host_values;
use crate::model::weights::to_values;
use crate::training::inner::moments::blocks::Which;
use crate::training::inner::moments::rounding::Rounding;
use crate::training::inner::moments::store::Store;

/// The moments of one tensor.
pub struct TensorMoments {
    /// The average of the gradient.
    pub first: Store,
    /// The average of its square; none where Muon acts.
    pub second: Option<Store>,
    count: usize,
}

/// The moments of one level, in the order of its buffer.
pub struct Moments(pub Vec<TensorMoments>);

impl TensorMoments {
    /// Of a tensor with so many values, before the first step.
    pub fn zeros(count: usize, has_second: bool, format: MomentFormat, device: Device) -> Result<Self, TchError> {
        let zeros = |which| Store::zeros(format, which, count, device);
        Ok(Self { first: zeros(Which::First)?, second: has_second.then(|| zeros(Which::Second)).transpose()?, count })
    }
}

impl Moments {
    /// Takes the moments of a level's flat buffer. Second moments that are not kept are passed over.
    pub fn set(&mut self, pool: &ThreadPool, level: &[Vec<f32>; 2], device: Device) -> Result<(), TchError> {
        let mut from = 0;
        for tensor in &mut self.0 {
            let place = |values: &[f32]| Tensor::f_from_slice(&values[from..from + tensor.count])?.f_to_device(device);
            tensor.first.set(pool, &place(&level[0])?, Rounding::Nearest)?;
            if let Some(second) = &mut tensor.second {
                second.set(pool, &place(&level[1])?, Rounding::Nearest)?;
            }
            from += tensor.count;
        }
        Ok(())
    }

    /// The moments of the level's flat buffer, with zeros for second moments that are not kept.
    pub fn values(&self) -> Result<[Vec<f32>; 2], TchError> {
        let count = self.0.iter().map(|tensor| tensor.count).sum();
        let mut level = [(); 2].map(|()| Vec::with_capacity(count));
        for tensor in &self.0 {
            append(&mut level[0], &tensor.first)?;
            match &tensor.second {
                Some(second) => append(&mut level[1], second)?,
                None => level[1].resize(level[1].len() + tensor.count, 0.0),
            }
        }
        Ok(level)
    }
}

fn append(all: &mut Vec<f32>, store: &Store) -> Result<(), TchError> {
    let values = store.wide()?;
    match values.device() {
        Device::Cpu => all.extend_from_slice(host_values(&values)),
        _ => all.extend(to_values(&values)?),
    }
    Ok(())
}
