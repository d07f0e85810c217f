//! A path with adapters as a path without: each product is added to the matrix beside which it was trained (2106.09685,
//! section 4.1). What it computes is the same, but for rounding.

use std::collections::HashMap;

use tch::{TchError, Tensor};

use crate::config::{LevelConfig, ModelConfig, Part, TensorSpec, frozen_parts, level_tensors};
use crate::grid::Sharing;
use crate::model::weights::to_values;

/// A path of a model without adapters.
pub struct Merged {
    pub model: ModelConfig,
    /// One level with all parts, in the order of computation.
    pub level: LevelConfig,
    pub values: Vec<f32>,
}

/// Merges the adapters of a path into its `frozen` parts. `values` has its levels' flat buffers.
///
/// # Errors
/// If libtorch fails.
///
/// # Panics
/// If the values are those of another model.
pub fn merged(
    model: &ModelConfig,
    levels: &[LevelConfig],
    values: &[Vec<f32>],
    frozen: &[f32],
) -> Result<Merged, TchError> {
    let frozen_level = frozen_parts(model, levels);
    let buffers = values.iter().map(Vec::as_slice).chain(frozen_level.iter().map(|_| frozen));
    let tensors: HashMap<String, &[f32]> = levels
        .iter()
        .chain(&frozen_level)
        .zip(buffers)
        .flat_map(|(level, values)| by_name(model, level, values))
        .collect();
    let plain = model.without_adapter();
    let level = LevelConfig { parts: plain.parts().iter().map(Part::to_string).collect(), sharing: Sharing::Shared };
    let scale = model.adapter.map_or(0.0, |adapter| adapter.scale());
    let mut all = Vec::new();
    for tensor in level_tensors(&plain, &level) {
        let own = tensors[tensor.name.as_str()];
        match of_adapter(&tensor).map(|[a, b]| (tensors.get(a.as_str()), tensors.get(b.as_str()))) {
            Some((Some(a), Some(b))) => all.extend(with_product(&tensor, own, (a, b), scale)?),
            _ => all.extend_from_slice(own),
        }
    }
    Ok(Merged { model: plain, level, values: all })
}

fn by_name<'a>(model: &ModelConfig, level: &LevelConfig, values: &'a [f32]) -> Vec<(String, &'a [f32])> {
    let mut rest = values;
    let mut named = Vec::new();
    for tensor in level_tensors(model, level) {
        let (own, after) = rest.split_at(tensor.count());
        rest = after;
        named.push((tensor.name, own));
    }
    named
}

/// The names of the narrow matrices beside a layer's weight.
fn of_adapter(weight: &TensorSpec) -> Option<[String; 2]> {
    let place = weight.name.strip_prefix("block.")?.strip_suffix(".weight")?;
    (!weight.matrices.is_empty()).then(|| ["a", "b"].map(|narrow| format!("adapter.{place}.{narrow}")))
}

/// `W + scale · B A`, matrix by matrix.
fn with_product(weight: &TensorSpec, own: &[f32], (a, b): (&[f32], &[f32]), scale: f64) -> Result<Vec<f32>, TchError> {
    let (outputs, inputs) = (weight.shape[0] as i64, weight.shape[1] as i64);
    let rank = b.len() as i64 / outputs;
    let whole = Tensor::f_from_slice(own)?.f_view([outputs, inputs])?;
    let (a, b) = (Tensor::f_from_slice(a)?.f_view([-1, inputs])?, Tensor::f_from_slice(b)?.f_view([outputs, rank])?);
    let mut first = 0;
    for (matrix, rows) in weight.matrices.iter().enumerate() {
        let rows = *rows as i64;
        let product = b.f_narrow(0, first, rows)?.f_matmul(&a.f_narrow(0, matrix as i64 * rank, rank)?)?;
        let _ = whole.f_narrow(0, first, rows)?.f_add_(&product.f_mul_scalar(scale)?)?;
        first += rows;
    }
    to_values(&whole)
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;
    use crate::config::{AdapterConfig, NormKind, Precision};
    use crate::model::weights::is_kept_narrow;
    use crate::model::{PathModel, initial_levels};
    use crate::seed::Seed;

    fn level(parts: &[&str]) -> LevelConfig {
        LevelConfig { parts: parts.iter().map(|part| (*part).to_owned()).collect(), sharing: Sharing::Shared }
    }

    /// A path with adapters that are not zero, and its frozen parts.
    fn adapted() -> (ModelConfig, Vec<LevelConfig>, Vec<Vec<f32>>, Vec<f32>) {
        let model = ModelConfig {
            adapter: Some(AdapterConfig { rank: 3, alpha: Some(5.0) }),
            gated: true,
            kv_heads: Some(1),
            norm: NormKind::Rms,
            ..ModelConfig::of([2, 16, 2], 300, 24)
        };
        let levels = vec![level(&["adapters.0-0"]), level(&["adapter.1", "final-norm"])];
        let frozen = frozen_parts(&model, &levels).unwrap();
        let mut values = initial_levels(&model, &levels, Seed::root(1));
        for (index, value) in values.iter_mut().flatten().enumerate() {
            *value += 0.1 * (index as f32 * 0.7).sin();
        }
        let frozen = initial_levels(&model, &[frozen], Seed::root(2)).remove(0);
        (model, levels, values, frozen)
    }

    fn logits(model: &ModelConfig, levels: &[LevelConfig], values: &[Vec<f32>], frozen: &[f32]) -> Tensor {
        let mut path = PathModel::new(model, levels, Device::Cpu, Precision::F32).unwrap();
        values.iter().enumerate().for_each(|(level, values)| path.set_level(level, values).unwrap());
        path.set_frozen(frozen).unwrap();
        let tokens: Vec<i64> = (0..20).map(|token| 7 * token % 300).collect();
        path.logits(&Tensor::from_slice(&tokens).unsqueeze(0)).unwrap()
    }

    #[test]
    fn merged_adapters_compute_what_they_computed_beside_their_layers() {
        let (model, levels, values, frozen) = adapted();
        let beside = logits(&model, &levels, &values, &frozen);
        let Merged { model: plain, level, values: whole } = merged(&model, &levels, &values, &frozen).unwrap();
        let within = logits(&plain, &[level], &[whole], &[]);
        let apart = (&beside - &within).abs().max().double_value(&[]);
        assert!(apart < 1e-5, "{apart}");
        let mut silent = values.clone();
        silent.iter_mut().flatten().for_each(|value| *value = 0.0);
        let silent = logits(&model, &levels[..], &silent, &frozen);
        assert!((&beside - silent).abs().max().double_value(&[]) > 0.01, "and that is not what they were beside");
    }

    #[test]
    fn a_frozen_model_in_bfloat16_computes_what_its_rounded_values_compute() {
        let (model, levels, values, frozen) = adapted();
        let computed = |precision, frozen: &[f32]| {
            let mut path = PathModel::new(&model, &levels, Device::Cpu, precision).unwrap();
            values.iter().enumerate().for_each(|(level, values)| path.set_level(level, values).unwrap());
            path.set_frozen(frozen).unwrap();
            let tokens: Vec<i64> = (0..20).map(|token| 7 * token % 300).collect();
            path.logits(&Tensor::from_slice(&tokens).unsqueeze(0)).unwrap()
        };
        let narrow = computed(Precision::Bf16, &frozen);
        let mut rounded = Vec::new();
        for tensor in level_tensors(&model, &frozen_parts(&model, &levels).unwrap()) {
            let own = &frozen[rounded.len()..][..tensor.count()];
            let narrow = Tensor::from_slice(own).to_kind(Kind::BFloat16).to_kind(Kind::Float);
            rounded.extend(if is_kept_narrow(&model, &tensor) { to_values(&narrow).unwrap() } else { own.to_vec() });
        }
        assert_ne!(rounded, frozen);
        assert_eq!(narrow, computed(Precision::F32, &rounded), "no bit differs where nothing was lost");
        assert_eq!(narrow, computed(Precision::Bf16, &rounded));
        let apart = (&narrow - computed(Precision::F32, &frozen)).abs().max().double_value(&[]);
        assert!(apart < 0.05, "{apart}");
    }

    #[test]
    fn adapters_without_what_they_were_trained_beside_compute_nothing() {
        let (model, levels, values, _) = adapted();
        let mut path = PathModel::new(&model, &levels, Device::Cpu, Precision::F32).unwrap();
        values.iter().enumerate().for_each(|(level, values)| path.set_level(level, values).unwrap());
        let error = path.logits(&Tensor::from_slice(&[1i64, 2]).unsqueeze(0)).unwrap_err().to_string();
        assert!(error.contains("frozen parts"), "{error}");
        assert!(path.set_frozen(&[0.0]).unwrap_err().to_string().contains("what is frozen has"));
    }
}
