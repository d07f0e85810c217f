//! The tensors of each part, in the order of a module's flat buffer, and how they begin.

use crate::config::model::ModelConfig;
use crate::config::model::blocks::{NormKind, Positions, QkNorm};
use crate::config::model::dna::ModuleKind;
use crate::config::model::parts::{Initial, Part, TensorList, TensorSpec};

impl ModelConfig {
    /// Number of blocks that a token goes through.
    fn depth(&self) -> usize {
        self.blocks + self.dna.as_ref().map_or(0, |dna| dna.steps)
    }

    /// The tensors of a part, in the order of the flat buffer.
    ///
    /// Linear weights are `[out, in]` and start at 1/√width, which preserves the size of their input. Weights that
    /// write into the residual stream start smaller by √(2·blocks), as in GPT-2, so that its variance does not grow
    /// with depth. An embedding starts at 1, or at 1/√width if it is also the head. The usual 0.02 suits wider models:
    /// after 100 steps of the 3.3M path at a learning rate of 2e-3, perplexity was 345 with these values and 409 with
    /// 0.02 (one seed, a fifth of a test text).
    pub fn tensors(&self, part: Part) -> Vec<TensorSpec> {
        let narrow = self.starting(1.0 / (self.width.max(1) as f64).sqrt());
        let embedding = if self.tied_head { narrow } else { self.starting(1.0) };
        let mut list = TensorList::of(part);
        match part {
            Part::Embedding => match self.images {
                Some(images) => self.patch_tensors(images, narrow, &mut list),
                None => {
                    list.add("tokens.weight", &[self.vocabulary, self.width], embedding);
                    if self.positions == Positions::Learned {
                        list.add("positions.weight", &[self.context, self.width], narrow);
                    }
                }
            },
            Part::Block(_) => self.module_tensors(ModuleKind::Transformer, &mut list),
            Part::Adapter(_) => {
                return self.adapter.map(|adapter| self.adapter_tensors(part, adapter.rank)).unwrap_or_default();
            }
            Part::Module(index) => {
                if let Some(dna) = &self.dna {
                    self.module_tensors(dna.modules.kind(index), &mut list);
                }
            }
            Part::Router(_) | Part::Directions(_) | Part::Balance => {
                if let Some(directional) = &self.directional {
                    directional.tensors(part, self.around(), &mut list);
                }
                if let Some(dna) = &self.dna {
                    dna.tensors(part, self.width, narrow, &mut list);
                }
            }
            Part::FinalNorm => self.norm(&mut list, ""),
            Part::Head => list.add("weight", &[self.vocabulary, self.width], narrow),
        }
        list.done()
    }

    /// The tensors of a block, or of the half of it that a module has.
    pub(super) fn module_tensors(&self, kind: ModuleKind, list: &mut TensorList) {
        let keeping = 1.0 / (self.width.max(1) as f64).sqrt();
        let (narrow, residual) =
            (self.starting(keeping), self.starting(keeping / (2.0 * self.depth().max(1) as f64).sqrt()));
        let (inner, kv_inner) = (self.heads * self.head_width(), self.kv_heads() * self.head_width());
        if matches!(kind, ModuleKind::Transformer | ModuleKind::Attention) {
            self.norm(list, "attention-norm");
            let rows = [inner, kv_inner, kv_inner];
            list.stacked("attention.qkv", (&rows, self.width), narrow, self.biases.of_qkv());
            if let Some(norm) = self.qk_norm {
                let widths = match norm {
                    QkNorm::Head => [self.head_width(); 2],
                    QkNorm::Whole => [inner, kv_inner],
                };
                list.add("attention.q-norm.weight", &widths[..1], Initial::Ones);
                list.add("attention.k-norm.weight", &widths[1..], Initial::Ones);
            }
            list.stacked("attention.out", (&[self.width], inner), residual, self.biases.of_output());
        }
        if matches!(kind, ModuleKind::Transformer | ModuleKind::Mlp) {
            self.norm(list, "feed-forward-norm");
            let hidden = self.feed_forward();
            let rows = vec![hidden; if self.gated { 2 } else { 1 }];
            list.stacked("feed-forward.in", (&rows, self.width), narrow, self.biases.elsewhere());
            list.stacked("feed-forward.out", (&[self.width], hidden), residual, self.biases.elsewhere());
        }
    }

    /// A norm of the stream.
    fn norm(&self, list: &mut TensorList, name: &str) {
        list.norm(name, self.width, self.norm == NormKind::Layer && self.biases.elsewhere());
    }

    /// The initial distribution of a weight: this deviation, unless `initial_deviation` is set.
    pub(super) fn starting(&self, deviation: f64) -> Initial {
        self.initial_deviation.map_or(Initial::Normal(deviation), Initial::Truncated)
    }

    /// Number of parameters of a part.
    pub fn parameters(&self, part: Part) -> usize {
        self.tensors(part).iter().map(TensorSpec::count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Biases;

    fn small() -> ModelConfig {
        ModelConfig { positions: Positions::Learned, biases: Biases::All, ..ModelConfig::of([2, 8, 2], 300, 16) }
    }

    #[test]
    fn every_tensor_has_one_place() {
        let model = small();
        let names: Vec<String> =
            model.parts().into_iter().flat_map(|part| model.tensors(part)).map(|tensor| tensor.name).collect();
        let mut distinct = names.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len());
        assert!(names.contains(&"block.1.attention.qkv.bias".to_owned()));
        assert!(names.contains(&"final-norm.weight".to_owned()));
        assert_eq!(model.parameters(Part::Block(0)), 16 + (24 * 8 + 24) + (64 + 8) + 16 + (256 + 32) + (256 + 8));
    }

    /// Shapes of the tensors of a block whose names have this in them.
    fn shapes(model: &ModelConfig, part: &str) -> Vec<Vec<usize>> {
        let tensors = model.tensors(Part::Block(0)).into_iter();
        tensors.filter(|tensor| tensor.name.contains(part)).map(|tensor| tensor.shape).collect()
    }

    #[test]
    fn blocks_of_today_have_their_tensors() {
        let llama = ModelConfig {
            norm: NormKind::Rms,
            gated: true,
            heads: 4,
            kv_heads: Some(2),
            head_width: Some(6),
            biases: Biases::All,
            ..small()
        };
        assert_eq!(llama.check(), Ok(()));
        assert_eq!(shapes(&llama, "qkv"), [vec![24 + 2 * 12, 8], vec![48]]);
        assert_eq!(shapes(&llama, "feed-forward.in"), [vec![64, 8], vec![64]]);
        assert_eq!(shapes(&llama, "-norm"), [vec![8], vec![8]], "an RMSNorm has no bias");
        let of = |biases| shapes(&ModelConfig { biases, ..llama.clone() }, "bias").len();
        assert_eq!([Biases::None, Biases::Qkv, Biases::Attention, Biases::All].map(of), [0, 1, 2, 4]);
        let normed = |qk_norm| shapes(&ModelConfig { qk_norm, ..llama.clone() }, "k-norm");
        assert_eq!((normed(Some(QkNorm::Head)), normed(Some(QkNorm::Whole))), (vec![vec![6]], vec![vec![12]]));
    }
}
