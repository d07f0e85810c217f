//! The networks on which a device is checked and measured, and text for them.

use rand::RngExt;

use crate::config::RunConfig;
use crate::seed::Seed;

/// A small network of one kind.
#[derive(Clone, Debug)]
pub struct Network {
    pub name: &'static str,
    pub run: RunConfig,
}

/// A transformer whose speed is measured: layer norms, rotary positions, GELU, no biases, untied head.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub name: &'static str,
    pub blocks: usize,
    pub width: usize,
    pub heads: usize,
    pub vocabulary: usize,
    pub context: usize,
    /// Sequences of a step, where the device is fast enough for them.
    pub sequences: usize,
}

/// The sizes that are measured, from small to large. The third is DiPaCo's path of 150 million parameters with an untied
/// head.
pub const SIZES: [Size; 4] = [
    Size { name: "3M", blocks: 4, width: 192, heads: 6, vocabulary: 4096, context: 256, sequences: 8 },
    Size { name: "25M", blocks: 6, width: 512, heads: 8, vocabulary: 8192, context: 512, sequences: 16 },
    Size { name: "150M", blocks: 12, width: 896, heads: 14, vocabulary: 32_000, context: 1024, sequences: 16 },
    Size { name: "400M", blocks: 24, width: 1024, heads: 16, vocabulary: 32_000, context: 1024, sequences: 16 },
];

impl Size {
    /// A run of one path of this size, with so many sequences a step.
    pub fn run(&self, sequences: usize) -> RunConfig {
        let Self { name: _, blocks, width, heads, vocabulary, context, .. } = *self;
        let model = format!(
            "blocks = {blocks}\nwidth = {width}\nheads = {heads}\nvocabulary = {vocabulary}\ncontext = {context}\n\
             positions = \"rotary\""
        );
        let parts = format!("\"embedding\", \"blocks.0-{}\", \"final-norm\", \"head\"", blocks - 1);
        run(&model, &parts, sequences)
    }

    /// Floating-point operations of training on one token: six for each parameter of a matrix product, and the scores
    /// and mixtures of causal attention (Chowdhery et al., 2022, appendix B, halved for what causal attention leaves out).
    pub fn flops_per_token(&self) -> f64 {
        let (blocks, width) = (self.blocks as f64, self.width as f64);
        let products = blocks * 12.0 * width * width + width * self.vocabulary as f64;
        6.0 * products + 6.0 * blocks * width * self.context as f64
    }
}

/// The kinds of networks: GPT-2's blocks, Llama's, Qwen's, directional routing, and a distributed neural architecture.
pub fn networks() -> Vec<Network> {
    let parts = "\"embedding\", \"blocks.0-1\", \"final-norm\", \"head\"";
    let tied = "\"embedding\", \"blocks.0-1\", \"final-norm\"";
    let of = |name, more: &str, parts: &str| {
        let model = format!("width = 64\nheads = 4\nvocabulary = 512\ncontext = 64\n{more}");
        Network { name, run: run(&model, parts, 8) }
    };
    vec![
        of("GPT-2", "blocks = 2\npositions = \"learned\"\nbiases = true\ntied_head = true", tied),
        of("Llama", "blocks = 2\nnorm = \"rms\"\ngated = true\nactivation = \"silu\"\nkv_heads = 2", parts),
        of("Qwen3", "blocks = 2\nnorm = \"rms\"\nqk_norm = \"head\"\nrotary = { base = 500.0, share = 0.5 }", parts),
        of(
            "directional",
            "blocks = 2\ndirectional = { directions = 4, pooling = \"prefix\" }",
            "\"embedding\", \"layers.0-1\", \"final-norm\", \"head\"",
        ),
        of(
            "DNA",
            "blocks = 1\narchitecture = \"dna\"\n[model.dna]\nmodules = { transformer = 3, attention = 2, mlp = 2, identity = 1 }\n\
             steps = 3\ntop_k = 2",
            "\"embedding\", \"block.0\", \"routers.0-2\", \"modules.0-6\", \"final-norm\", \"head\"",
        ),
    ]
}

fn run(model: &str, parts: &str, sequences: usize) -> RunConfig {
    let balance =
        if model.contains("[model.dna]") { "[[levels]]\nparts = [\"balance\"]\nsharing = \"shared\"\n" } else { "" };
    let text = format!(
        "name = \"device\"\n[model]\n{model}\n[[levels]]\nparts = [{parts}]\nsharing = \"shared\"\n{balance}\
         [training]\nbatch_sequences = {sequences}\ninner_steps = 100\nphases = 100\nancestor_steps = 0\n\
         learning_rate = 1e-3\n"
    );
    RunConfig::from_toml(&text).unwrap_or_else(|error| unreachable!("a run of this file: {error}\n{text}"))
}

/// Random sequences, each a token longer than `shortest` to a token longer than `longest`.
pub(super) fn text(count: usize, (shortest, longest): (usize, usize), vocabulary: usize) -> Vec<Vec<u32>> {
    let mut generator = Seed::root(2).generator();
    let mut sequence = || {
        let length = generator.random_range(shortest..=longest);
        (0..=length).map(|_| generator.random_range(0..vocabulary as u32)).collect()
    };
    (0..count).map(|_| sequence()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_and_network_is_a_run() {
        assert_eq!(networks().len(), 5);
        for size in SIZES {
            let run = size.run(1);
            assert_eq!((run.model.width, run.training.batch_sequences), (size.width, 1), "{}", size.name);
        }
    }

    #[test]
    fn the_operations_of_a_token_are_six_for_each_weight_and_those_of_attention() {
        let size = Size { name: "", blocks: 2, width: 4, heads: 1, vocabulary: 10, context: 8, sequences: 1 };
        let weights = 2 * (4 * 12 + 4 * 4 + 2 * 4 * 16) + 4 * 10;
        // Forward: a query meets 4.5 keys in the mean, about half of 8; each meeting is 2·4 operations for its score and
        // as many for its value. Backward is twice that.
        let attention = 3 * 2 * (2 * 4 + 2 * 4) * 4;
        assert_eq!(size.flops_per_token(), f64::from(6 * weights + attention));
    }
}
