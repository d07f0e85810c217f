//! A path's parameters: one flat f32 buffer for each level, and the tensors as views into it.
//!
//! Outer gradients, hashes, checkpoints and updates are then one pass over a level, without gathering. Every tensor is
//! a detached view and its own leaf in autograd. On the CPU this is faster than one flat leaf that is split in the
//! graph, and gradients arrive without a copy. Frozen parts have a buffer besides, of which no gradient is computed.

use std::fmt;

use tch::{Device, Kind, TchError, Tensor};

use crate::config::model::levels::check_levels;
use crate::config::{LevelConfig, ModelConfig, TensorSpec, frozen_parts, level_tensors};

#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("{0}")]
    Config(String),
    #[error("level {level} does not exist; this model has {levels}")]
    NoLevel { level: usize, levels: usize },
    #[error("{place} has {expected} parameters, found {found}")]
    Count { place: Place, expected: usize, found: usize },
    #[error("{place}: parameter {index} is {value}; parameters must be finite")]
    NotFinite { place: Place, index: usize, value: f32 },
    #[error("parameters: {0}")]
    Tensor(#[from] TchError),
}

/// A buffer of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Level(usize),
    Frozen,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => write!(f, "level {level}"),
            Self::Frozen => f.write_str("what is frozen"),
        }
    }
}

/// One tensor of a level.
pub struct Leaf {
    /// For instance `block.3.attention.qkv.weight`.
    pub name: String,
    /// A view into the level's buffer.
    pub tensor: Tensor,
    /// Whether gradients change it.
    pub trained: bool,
    /// The rows of each matrix of a block that is stacked in it; empty for all other tensors.
    pub matrices: Vec<usize>,
}

struct Level {
    flat: Tensor,
    count: usize,
    leaves: Vec<Leaf>,
}

/// The parameters of one path.
pub struct Weights {
    levels: Vec<Level>,
    /// The parts that no level lists.
    frozen: Option<Level>,
    /// Whether the frozen parts have been set. Without them, the network would compute something else in silence.
    is_complete: bool,
    device: Device,
}

impl Weights {
    /// All zero until levels are set.
    pub fn new(model: &ModelConfig, levels: &[LevelConfig], device: Device) -> Result<Self, WeightsError> {
        model.check().map_err(|error| WeightsError::Config(error.to_string()))?;
        check_levels(model, levels).map_err(|error| WeightsError::Config(error.to_string()))?;
        let new = |level: &LevelConfig, trained| Level::new(level_tensors(model, level), trained, device);
        let frozen = frozen_parts(model, levels).map(|level| new(&level, false)).transpose()?;
        let levels = levels.iter().map(|level| new(level, true)).collect::<Result<_, _>>()?;
        Ok(Self { levels, is_complete: frozen.is_none(), frozen, device })
    }

    pub fn device(&self) -> Device {
        self.device
    }

    /// Number of values of each level.
    pub fn sizes(&self) -> Vec<usize> {
        self.levels.iter().map(|level| level.count).collect()
    }

    /// Whether nothing is missing: the frozen parts have been set.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The tensors of each level, in the order of its buffer, without the frozen ones.
    pub fn leaves(&self) -> impl Iterator<Item = &[Leaf]> {
        self.levels.iter().map(|level| level.leaves.as_slice())
    }

    /// The tensor with this name; it shares the buffer.
    pub fn tensor(&self, name: &str) -> Result<Tensor, WeightsError> {
        self.leaf(name)
            .map(|leaf| leaf.tensor.shallow_clone())
            .ok_or_else(|| WeightsError::Config(format!("the model has no tensor {name:?}")))
    }

    /// The rows of each matrix that is stacked in a tensor.
    pub(crate) fn matrices(&self, name: &str) -> &[usize] {
        self.leaf(name).map_or(&[], |leaf| &leaf.matrices)
    }

    fn leaf(&self, name: &str) -> Option<&Leaf> {
        let frozen = self.frozen.iter().flat_map(|frozen| &frozen.leaves);
        self.leaves().flatten().chain(frozen).find(|leaf| leaf.name == name)
    }

    /// As [`Weights::tensor`], for one that a model may lack.
    pub fn optional(&self, name: &str) -> Option<Tensor> {
        self.tensor(name).ok()
    }

    /// Copies values into a level's buffer.
    pub fn set(&mut self, level: usize, values: &[f32]) -> Result<(), WeightsError> {
        let levels = self.levels.len();
        let buffer = self.levels.get_mut(level).ok_or(WeightsError::NoLevel { level, levels })?;
        buffer.set(Place::Level(level), values)
    }

    /// Copies the values of the frozen parts.
    pub fn set_frozen(&mut self, values: &[f32]) -> Result<(), WeightsError> {
        match &mut self.frozen {
            Some(frozen) => frozen.set(Place::Frozen, values)?,
            None if values.is_empty() => {}
            None => return Err(WeightsError::Count { place: Place::Frozen, expected: 0, found: values.len() }),
        }
        self.is_complete = true;
        Ok(())
    }

    /// A level's values.
    pub fn get(&self, level: usize) -> Result<Vec<f32>, WeightsError> {
        let place = self.levels.get(level).ok_or(WeightsError::NoLevel { level, levels: self.levels.len() })?;
        Ok(to_values(&place.flat)?)
    }

    /// Copies of the tensors of a level that are not trained, with their index among the level's tensors.
    pub(crate) fn fixed(&self, level: usize) -> Result<Vec<(usize, Tensor)>, TchError> {
        let leaves = self.levels[level].leaves.iter().enumerate().filter(|(_, leaf)| !leaf.trained);
        leaves.map(|(index, leaf)| Ok((index, leaf.tensor.f_detach_copy()?))).collect()
    }

    /// Restores the tensors from [`Weights::fixed`].
    pub(crate) fn put_back(&mut self, level: usize, fixed: &[(usize, Tensor)]) -> Result<(), TchError> {
        fixed.iter().try_for_each(|(index, value)| self.levels[level].leaves[*index].tensor.f_copy_(value).map(drop))
    }

    /// Sets a tensor that is not trained, such as `balance.usage`, to as many values as it has.
    pub(crate) fn write(&mut self, name: &str, values: &[f32]) -> Result<(), WeightsError> {
        let tensor = self.tensor(name)?;
        debug_assert!(!tensor.requires_grad(), "{name} is moved by gradients");
        tensor.f_view([-1])?.f_copy_(&Tensor::f_from_slice(values)?)?;
        Ok(())
    }

    /// A level's buffer, which the optimiser changes in place.
    pub(crate) fn flat_mut(&mut self, level: usize) -> &mut Tensor {
        &mut self.levels[level].flat
    }
}

impl Level {
    /// All zero. Gradients are computed of its tensors if it is `trained`.
    fn new(specs: Vec<TensorSpec>, trained: bool, device: Device) -> Result<Self, WeightsError> {
        let count = specs.iter().map(|spec| spec.count()).sum();
        let flat = Tensor::f_zeros([count as i64], (Kind::Float, device))?;
        let mut leaves = Vec::with_capacity(specs.len());
        let mut offset = 0;
        for spec in specs {
            let count = spec.count();
            let shape: Vec<i64> = spec.shape.iter().map(|size| *size as i64).collect();
            let view = flat.f_narrow(0, offset as i64, count as i64)?.f_view(shape.as_slice())?;
            let trained = trained && spec.trained;
            let tensor = view.f_detach()?.f_set_requires_grad(trained)?;
            leaves.push(Leaf { name: spec.name, tensor, trained, matrices: spec.matrices });
            offset += count;
        }
        Ok(Self { flat, count, leaves })
    }

    fn set(&mut self, place: Place, values: &[f32]) -> Result<(), WeightsError> {
        if values.len() != self.count {
            return Err(WeightsError::Count { place, expected: self.count, found: values.len() });
        }
        if let Some((index, value)) = values.iter().enumerate().find(|(_, value)| !value.is_finite()) {
            return Err(WeightsError::NotFinite { place, index, value: *value });
        }
        self.flat.f_copy_(&Tensor::f_from_slice(values)?)?;
        Ok(())
    }
}

/// Copies an f32 tensor, of any shape and on any device, to the host.
pub(crate) fn to_values(tensor: &Tensor) -> Result<Vec<f32>, TchError> {
    let flat = tensor.f_detach()?.f_to_device(Device::Cpu)?.f_contiguous()?;
    let mut values = vec![0.0; flat.numel()];
    let count = values.len();
    flat.f_copy_data(&mut values, count)?;
    Ok(values)
}

/// The values of a contiguous f32 tensor on the CPU, without a copy.
///
/// # Panics
/// If it is not one.
pub(crate) fn host_values(tensor: &Tensor) -> &[f32] {
    assert_host(tensor);
    // SAFETY: a contiguous f32 tensor on the CPU is `numel` floats at `data_ptr`, which live as long as the tensor. No
    // one writes to them in the meantime: operations on tensors that share the storage run only on this thread.
    unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast(), tensor.numel()) }
}

/// As [`host_values`], to write.
///
/// # Panics
/// If it is not a contiguous f32 tensor on the CPU.
pub(crate) fn host_values_mut(tensor: &mut Tensor) -> &mut [f32] {
    assert_host(tensor);
    // SAFETY: as above. The callers hold no other slice of the same storage, and no graph that saved these values is
    // used after they change.
    unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast(), tensor.numel()) }
}

fn assert_host(tensor: &Tensor) {
    assert!(
        tensor.device() == Device::Cpu && tensor.kind() == Kind::Float && tensor.is_contiguous(),
        "only a contiguous f32 tensor on the CPU has values on the host"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::{small_levels, small_model};

    #[test]
    fn tensors_view_their_levels_buffer() {
        let mut weights = Weights::new(&small_model(), &small_levels(), Device::Cpu).unwrap();
        let sizes = weights.sizes();
        let values: Vec<f32> = (0..sizes[0]).map(|index| index as f32).collect();
        weights.set(0, &values).unwrap();
        let second = weights.levels[0].leaves[0].tensor.numel();
        let name = weights.levels[0].leaves[1].name.clone();
        assert_eq!(weights.tensor(&name).unwrap().flatten(0, -1).double_value(&[0]), second as f64);
        assert_eq!(weights.get(0).unwrap(), values);
    }

    #[test]
    fn wrong_values_are_refused_and_change_nothing() {
        let mut weights = Weights::new(&small_model(), &small_levels(), Device::Cpu).unwrap();
        let mut values = vec![1.0; weights.sizes()[1]];
        assert!(matches!(weights.set(9, &values), Err(WeightsError::NoLevel { .. })));
        assert!(matches!(weights.set(1, &values[1..]), Err(WeightsError::Count { .. })));
        values[3] = f32::NAN;
        assert!(matches!(weights.set(1, &values), Err(WeightsError::NotFinite { index: 3, .. })));
        assert!(weights.get(1).unwrap().iter().all(|value| *value == 0.0));
    }

    #[test]
    fn impossible_sizes_are_refused_in_words() {
        let model = ModelConfig { heads: 3, ..small_model() };
        assert!(Weights::new(&model, &small_levels(), Device::Cpu).is_err());
    }
}
