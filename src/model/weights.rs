//! A path's parameters: one flat f32 buffer for each level, and the tensors as views into it.
//!
//! Outer gradients, hashes, checkpoints and updates are then one pass over a level, without gathering. Every tensor is
//! a detached view and its own leaf in autograd. On the CPU this is faster than one flat leaf that is split in the
//! graph, and gradients arrive without a copy. Frozen parts are tensors besides, of which no gradient is computed. Where
//! products are computed in bfloat16, their frozen operands are kept in it.

use std::fmt;

use tch::{Device, Kind, TchError, Tensor};

use crate::config::model::levels::check_levels;
use crate::config::{LevelConfig, ModelConfig, Precision, TensorSpec, frozen_parts, level_tensors};

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
    /// The tensors of the parts that no level lists, if there are any.
    frozen: Option<Vec<Leaf>>,
    /// Whether the frozen parts have been set. Without them, the network would compute something else in silence.
    is_complete: bool,
    device: Device,
}

impl Weights {
    /// All zero until levels are set.
    pub fn new(model: &ModelConfig, levels: &[LevelConfig], device: Device) -> Result<Self, WeightsError> {
        Self::keeping(model, levels, device, Precision::F32)
    }

    /// The same. With bfloat16 as the `precision` of products, frozen tensors that [are kept in
    /// it](is_kept_narrow) are.
    pub fn keeping(
        model: &ModelConfig,
        levels: &[LevelConfig],
        device: Device,
        precision: Precision,
    ) -> Result<Self, WeightsError> {
        model.check().map_err(|error| WeightsError::Config(error.to_string()))?;
        check_levels(model, levels).map_err(|error| WeightsError::Config(error.to_string()))?;
        let frozen = frozen_parts(model, levels).map(|level| {
            let leaf = |spec: TensorSpec| {
                let is_narrow = precision == Precision::Bf16 && is_kept_narrow(model, &spec);
                let shape: Vec<i64> = spec.shape.iter().map(|size| *size as i64).collect();
                let kind = if is_narrow { Kind::BFloat16 } else { Kind::Float };
                let tensor = Tensor::f_zeros(shape.as_slice(), (kind, device))?;
                Ok(Leaf { name: spec.name, tensor, trained: false, matrices: spec.matrices })
            };
            level_tensors(model, &level).into_iter().map(leaf).collect::<Result<_, TchError>>()
        });
        let frozen = frozen.transpose()?;
        let new = |level| Level::new(level_tensors(model, level), device);
        let levels = levels.iter().map(new).collect::<Result<_, _>>()?;
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
        self.leaves().flatten().chain(self.frozen.iter().flatten()).find(|leaf| leaf.name == name)
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
            Some(frozen) => set_tensors(frozen, values)?,
            None if values.is_empty() => {}
            None => return Err(WeightsError::Count { place: Place::Frozen, expected: 0, found: values.len() }),
        }
        self.is_complete = true;
        Ok(())
    }

    /// The same tensors, with the matrices of blocks in bfloat16. The conversion is recorded by autograd: a gradient by one
    /// of them goes to the tensor here.
    pub(crate) fn narrowed(&self) -> Result<Self, TchError> {
        let leaf = |leaf: &Leaf| {
            let is_operand = !leaf.matrices.is_empty();
            let tensor = if is_operand { leaf.tensor.f_to_kind(Kind::BFloat16)? } else { leaf.tensor.shallow_clone() };
            let Leaf { name, trained, matrices, .. } = leaf;
            Ok(Leaf { name: name.clone(), tensor, trained: *trained, matrices: matrices.clone() })
        };
        let all = |leaves: &[Leaf]| leaves.iter().map(leaf).collect::<Result<Vec<_>, TchError>>();
        let level = |Level { flat, count, leaves }: &Level| {
            Ok(Level { flat: flat.shallow_clone(), count: *count, leaves: all(leaves)? })
        };
        Ok(Self {
            levels: self.levels.iter().map(level).collect::<Result<_, TchError>>()?,
            frozen: self.frozen.as_deref().map(all).transpose()?,
            ..*self
        })
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

/// Whether weights of products can be in bfloat16 when they are made, for a network of this kind: each is used once in a
/// forward pass, and in products only. Routed modules are used several times, whose gradients are added in f32, and
/// directional attention multiplies the output projection in f32.
pub fn narrow_operands(model: &ModelConfig) -> bool {
    model.dna.is_none() && model.directional.is_none()
}

/// Whether a frozen tensor is kept in bfloat16 where products are computed in it: the matrices of blocks, the head, and the
/// vectors of tokens. What a norm or a bias would save is nothing.
pub fn is_kept_narrow(model: &ModelConfig, tensor: &TensorSpec) -> bool {
    let is_large = ["embedding.tokens.weight", "head.weight"].contains(&tensor.name.as_str());
    narrow_operands(model) && (is_large || !tensor.matrices.is_empty())
}

/// Copies the values of the frozen parts, tensor by tensor.
fn set_tensors(leaves: &[Leaf], values: &[f32]) -> Result<(), WeightsError> {
    check(Place::Frozen, values, leaves.iter().map(|leaf| leaf.tensor.numel()).sum())?;
    let mut rest = values;
    for leaf in leaves {
        let (own, after) = rest.split_at(leaf.tensor.numel());
        rest = after;
        leaf.tensor.f_view([-1])?.f_copy_(&Tensor::f_from_slice(own)?)?;
    }
    Ok(())
}

/// Whether there are as many values as there should be, all of them finite.
fn check(place: Place, values: &[f32], expected: usize) -> Result<(), WeightsError> {
    if values.len() != expected {
        return Err(WeightsError::Count { place, expected, found: values.len() });
    }
    if let Some((index, value)) = values.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        return Err(WeightsError::NotFinite { place, index, value: *value });
    }
    Ok(())
}

impl Level {
    /// All zero.
    fn new(specs: Vec<TensorSpec>, device: Device) -> Result<Self, WeightsError> {
        let count = specs.iter().map(|spec| spec.count()).sum();
        let flat = Tensor::f_zeros([count as i64], (Kind::Float, device))?;
        let mut leaves = Vec::with_capacity(specs.len());
        let mut offset = 0;
        for spec in specs {
            let count = spec.count();
            let shape: Vec<i64> = spec.shape.iter().map(|size| *size as i64).collect();
            let view = flat.f_narrow(0, offset as i64, count as i64)?.f_view(shape.as_slice())?;
            let tensor = view.f_detach()?.f_set_requires_grad(spec.trained)?;
            leaves.push(Leaf { name: spec.name, tensor, trained: spec.trained, matrices: spec.matrices });
            offset += count;
        }
        Ok(Self { flat, count, leaves })
    }

    fn set(&mut self, place: Place, values: &[f32]) -> Result<(), WeightsError> {
        check(place, values, self.count)?;
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
