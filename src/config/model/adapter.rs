//! Low-rank adapters (LoRA, 2106.09685): beside each linear layer of a block, a product of two narrow matrices that is
//! added to its output. They are trained in place of the pretrained weights, which stay frozen.

use serde::{Deserialize, Serialize};

use crate::config::key_error::{KeyError, require, within};
use crate::config::model::ModelConfig;
use crate::config::model::dna::ModuleKind;
use crate::config::model::parts::{Initial, Part, TensorList, TensorSpec};

/// `[model.adapter]`
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterConfig {
    /// Rank of the product beside each matrix of a block.
    pub rank: usize,
    /// The product is multiplied by `alpha / rank`; `alpha` is twice the rank if absent.
    pub alpha: Option<f64>,
}

impl AdapterConfig {
    pub fn alpha(&self) -> f64 {
        self.alpha.unwrap_or(2.0 * self.rank as f64)
    }

    /// The factor of the product.
    pub fn scale(&self) -> f64 {
        self.alpha() / self.rank as f64
    }

    pub(super) fn check(&self, model: &ModelConfig) -> Result<(), KeyError> {
        within("model.adapter.rank", self.rank, 1..=1024)?;
        let alpha = self.alpha();
        require(alpha > 0.0 && alpha <= 1e4, "model.adapter.alpha", alpha, "above 0, at most 10000")?;
        let excludes = "excludes [model.directional] and [model.dna], which compute with the weights themselves";
        let is_plain = model.directional.is_none() && model.dna.is_none();
        require(is_plain, "model.adapter", "{ … }", excludes)
    }
}

impl ModelConfig {
    /// The same model without adapters.
    pub fn without_adapter(&self) -> Self {
        Self { adapter: None, ..self.clone() }
    }

    /// The tensors of a block's adapter: for each of its linear layers `a`, `[matrices · rank, inputs]`, and `b`,
    /// `[outputs, rank]`, with the matrices of a stacked layer below each other. `b` starts at zero, so that the network
    /// starts as the one that was pretrained; `a` starts as a linear layer of PyTorch, as in PEFT.
    pub(super) fn adapter_tensors(&self, part: Part, rank: usize) -> Vec<TensorSpec> {
        let mut layers = TensorList::of(part);
        self.module_tensors(ModuleKind::Transformer, &mut layers);
        let mut list = TensorList::of(part);
        for layer in layers.done().iter().filter(|tensor| !tensor.matrices.is_empty()) {
            let (outputs, inputs) = (layer.shape[0], layer.shape[1]);
            let prefix = format!("{part}.");
            let name = layer.name.strip_prefix(&prefix).and_then(|name| name.strip_suffix(".weight"));
            let name = name.unwrap_or(&layer.name);
            let bound = 1.0 / (inputs as f64).sqrt();
            list.add(&format!("{name}.a"), &[layer.matrices.len() * rank, inputs], Initial::Uniform(bound));
            list.add(&format!("{name}.b"), &[outputs, rank], Initial::Zeros);
        }
        list.done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DirectionalConfig, LevelConfig, frozen_parts, level_parameters};
    use crate::grid::Sharing;

    fn model() -> ModelConfig {
        let adapter = Some(AdapterConfig { rank: 3, alpha: None });
        ModelConfig { adapter, gated: true, kv_heads: Some(1), ..ModelConfig::of([2, 8, 2], 300, 16) }
    }

    #[test]
    fn every_matrix_of_a_block_has_a_product_of_its_own() {
        let shapes: Vec<(String, Vec<usize>)> =
            model().tensors(Part::Adapter(1)).into_iter().map(|tensor| (tensor.name, tensor.shape)).collect();
        let named = |name: &str, shape: [usize; 2]| (format!("adapter.1.{name}"), shape.to_vec());
        let expected = [
            named("attention.qkv.a", [9, 8]),
            named("attention.qkv.b", [16, 3]),
            named("attention.out.a", [3, 8]),
            named("attention.out.b", [8, 3]),
            named("feed-forward.in.a", [6, 8]),
            named("feed-forward.in.b", [64, 3]),
            named("feed-forward.out.a", [3, 32]),
            named("feed-forward.out.b", [8, 3]),
        ];
        assert_eq!(shapes, expected);
        assert!(
            model().parts().contains(&Part::Adapter(1))
                && !model().without_adapter().parts().contains(&Part::Adapter(1))
        );
    }

    #[test]
    fn what_no_level_lists_is_frozen_beside_adapters_and_missing_without_them() {
        let level = |parts: &[&str]| LevelConfig {
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
            sharing: Sharing::Shared,
        };
        let levels = [level(&["adapter.0"]), level(&["adapters.1-1", "final-norm"])];
        let frozen = frozen_parts(&model(), &levels).unwrap();
        assert_eq!(frozen.parts, ["embedding", "block.0", "block.1", "head"]);
        let all: usize = model().parts().into_iter().map(|part| model().parameters(part)).sum();
        let listed: usize = levels.iter().map(|level| level_parameters(&model(), level)).sum();
        assert_eq!(level_parameters(&model(), &frozen), all - listed);
        assert_eq!(frozen_parts(&model().without_adapter(), &levels), None);
        let missing = crate::config::model::levels::check_levels(&model(), &levels[..1]).unwrap_err().to_string();
        assert!(missing.contains("adapter.1"), "{missing}");
        let unknown = crate::config::model::levels::check_levels(&model().without_adapter(), &levels).unwrap_err();
        assert!(unknown.to_string().contains("adapter.0"), "{unknown}");
    }

    #[test]
    fn what_cannot_be_adapted_is_refused_with_its_key() {
        let refused = |model: ModelConfig| model.check().unwrap_err().key;
        let of = |rank, alpha| ModelConfig { adapter: Some(AdapterConfig { rank, alpha }), ..model() };
        assert_eq!(refused(of(0, None)), "model.adapter.rank");
        assert_eq!(refused(of(4, Some(0.0))), "model.adapter.alpha");
        let directional = toml::from_str::<DirectionalConfig>("directions = 2").unwrap();
        assert_eq!(refused(ModelConfig { directional: Some(directional), ..model() }), "model.adapter");
        assert_eq!(of(4, None).check(), Ok(()));
    }
}
