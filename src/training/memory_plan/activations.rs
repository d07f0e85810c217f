//! What a token leaves behind in each block for the backward pass, as autograd keeps it.

use crate::config::{
    DirectionalConfig, ModelConfig, ModuleKind, NormKind, Part, Pooling, Positions, Precision, TensorSpec,
};
use crate::model::weights::is_kept_narrow;

/// Bytes of a token, by what keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBytes {
    /// The input of a segment.
    pub input: u128,
    /// Activations of all blocks and routed steps.
    pub all: u128,
    /// Of the segment with most.
    pub most: u128,
    /// Of the first segment.
    pub least: u128,
    /// Intermediate values of the backward pass in a block.
    pub passing: u128,
    /// The final norm, the hidden states and their gradients.
    pub ends: u128,
}

/// Bytes of values of each kind.
#[derive(Clone, Copy)]
struct Widths {
    /// A value of a product.
    product: u64,
    /// The residual stream.
    stream: u64,
    /// A value that a norm keeps besides its input: the normalised stream before the weight.
    normed: u64,
}

impl TokenBytes {
    /// Of a token that goes through the whole network.
    pub fn of(model: &ModelConfig, precision: Precision, cuda: bool) -> Self {
        let narrow = precision == Precision::Bf16;
        let width = model.width as u64;
        let widths = Widths {
            product: if narrow { 2 } else { 4 },
            stream: 4 * width,
            // CUDA has one kernel for an RMSNorm, the CPU several.
            normed: if model.norm == NormKind::Rms && !cuda { 4 * width } else { 0 },
        };
        let block = widths.attention(model) + widths.feed_forward(model) + widths.directional(model);
        let routed = model.dna.as_ref().map_or(0, |dna| {
            let pool = dna.modules;
            let of = |kind| match kind {
                ModuleKind::Transformer => widths.attention(model) + widths.feed_forward(model),
                ModuleKind::Attention => widths.attention(model),
                ModuleKind::Mlp => widths.feed_forward(model),
                ModuleKind::Identity => 0,
            };
            let mean = (0..pool.count()).map(|module| of(pool.kind(module))).sum::<u64>() / pool.count().max(1) as u64;
            // Besides the modules, each step gathers their tokens and adds their weighted outputs to a new stream.
            dna.steps as u64 * (dna.top_k as u64 * (mean + 3 * widths.stream) + widths.stream)
        });
        let inner = (model.feed_forward() * if model.gated { 3 } else { 2 }) as u64;
        let first = if model.blocks > 0 { block } else { routed };
        Self {
            input: widths.stream.into(),
            all: model.blocks as u128 * u128::from(block) + u128::from(routed),
            most: block.max(routed).into(),
            least: first.into(),
            passing: (2 * widths.stream + widths.product * inner).into(),
            ends: (2 * widths.stream + widths.normed).into(),
        }
    }
}

impl Widths {
    /// The norm of a branch. Before it, the norm keeps the stream, which the addition before has made; after it, its own
    /// input, and the product keeps the stream.
    fn norm(self) -> u64 {
        self.stream + self.normed
    }

    /// Attention, with its norm.
    fn attention(self, model: &ModelConfig) -> u64 {
        let (width, head) = (model.width as u64, model.head_width() as u64);
        let (queries, keys) = (model.heads as u64 * head, model.kv_heads() as u64 * head);
        let (rotates, shares) = (model.positions == Positions::Rotary, queries != keys);
        // Queries, keys and values lie in one tensor, which a view of any of them keeps.
        let mut kept = 0;
        let keeps_all = !(rotates && shares) || model.qk_norm.is_some();
        if keeps_all {
            kept += queries + 2 * keys;
        }
        if rotates {
            kept += queries + keys;
        }
        if shares {
            kept += 2 * queries;
        }
        let normalised = if model.qk_norm.is_some() { 4 * 2 * (queries + keys) } else { 0 };
        let sums = 4 * model.heads as u64;
        // Of adapters, the narrow products of queries, keys and values, and of the output.
        let narrow = 4 * adapter_rank(model);
        self.norm() + self.product * (width + kept + queries + narrow) + normalised + sums
    }

    /// The feed-forward part, with its norm. In parallel to attention it reads the stream that attention's norm has kept.
    fn feed_forward(self, model: &ModelConfig) -> u64 {
        let inner = model.feed_forward() as u64 * if model.gated { 4 } else { 2 };
        let norm = self.norm() - if model.parallel_residual { self.stream } else { 0 };
        let narrow = if model.gated { 3 } else { 2 } * adapter_rank(model);
        norm + self.product * (model.width as u64 + inner + narrow)
    }

    /// The router of directions and what it takes from the heads.
    fn directional(self, model: &ModelConfig) -> u64 {
        let Some(DirectionalConfig { directions, pooling, .. }) = model.directional else { return 0 };
        let suppressed = (model.heads * directions) as u64;
        let router = match pooling {
            Pooling::Sequence => 0,
            Pooling::Token => 4 * (model.width as u64 + suppressed),
            Pooling::Prefix => 4 * (2 * model.width as u64 + suppressed),
        };
        router + 3 * self.product * suppressed
    }
}

fn adapter_rank(model: &ModelConfig) -> u64 {
    model.adapter.map_or(0, |adapter| adapter.rank as u64)
}

/// Bytes of copies of weights that the backward pass keeps, of all blocks and of one: products in bfloat16 have their
/// weights in it, and rotary positions need the rows of queries and keys in another order. Of what is `frozen` and is
/// kept in bfloat16, only the second.
pub fn copied_weight_bytes(model: &ModelConfig, precision: Precision, frozen: &[Part]) -> [u64; 2] {
    let of = |part: Part| -> u64 {
        let (tensors, is_frozen) = (model.tensors(part), frozen.contains(&part));
        let bytes = |tensor: &TensorSpec| match precision {
            Precision::Bf16 if is_frozen && is_kept_narrow(model, tensor) => {
                let is_reordered = model.positions == Positions::Rotary && tensor.name.contains("qkv.weight");
                if is_reordered { 2 * tensor.count() as u64 } else { 0 }
            }
            Precision::Bf16 if tensor.shape.len() > 1 => 2 * tensor.count() as u64,
            Precision::F32 if model.positions == Positions::Rotary && tensor.name.contains("qkv.weight") => {
                4 * tensor.count() as u64
            }
            _ => 0,
        };
        tensors.iter().map(bytes).sum()
    };
    let is_computed = |part: &Part| !matches!(part, Part::Embedding | Part::Head | Part::FinalNorm | Part::Balance);
    let each: Vec<u64> = model.parts().into_iter().filter(is_computed).map(of).collect();
    [each.iter().sum(), each.iter().copied().max().unwrap_or(0)]
}
