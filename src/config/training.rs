//! `[training]`: inner steps, their learning rate and their optimiser.

use serde::{Deserialize, Serialize};

use super::augment::Augment;
use super::{is_default, is_yes, yes};

/// The most phases of a run.
pub const MAX_PHASES: u64 = 1 << 24;

/// `[training]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingConfig {
    /// Sequences per inner step, for any micro-batch of the machine.
    pub batch_sequences: usize,
    /// `H`: inner steps per phase.
    pub inner_steps: u64,
    /// Number of outer steps.
    pub phases: u64,
    /// Phases of a first stage in which all levels are shared and text goes to paths at random, so that the swarm
    /// trains its own ancestor.
    #[serde(default)]
    pub shared_phases: u64,
    /// Inner steps of a later run that continues this one. They count in the learning rate's schedule.
    #[serde(default)]
    pub later_steps: u64,
    /// Steps of the dense ancestor from which every path starts. They count in the learning rate's schedule.
    pub ancestor_steps: u64,
    /// Peak of the inner learning rate.
    pub learning_rate: f64,
    #[serde(default)]
    pub decay: Decay,
    /// Final learning rate, as a share of the peak.
    #[serde(default = "tenth")]
    pub final_learning_rate_share: f64,
    /// Phases at whose beginning the cosine restarts from the peak, for instance after resharding (DiPaCo, figure 10).
    #[serde(default)]
    pub decay_restarts: Vec<u64>,
    /// Steps of linear warm-up, at the beginning of the ancestor.
    #[serde(default)]
    pub warmup_steps: u64,
    /// Inner steps over which the learning rate rises wherever an optimiser starts from rest: where a path starts from
    /// the ancestor, is drawn again, or is taken without the state of its trainer.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rewarm_steps: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub optimizer: Optimizer,
    /// Decoupled weight decay of matrices and embeddings. Norms and biases do not decay.
    #[serde(default = "tenth")]
    pub weight_decay: f64,
    /// Whether embeddings decay as well.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub decay_embeddings: bool,
    #[serde(default = "betas")]
    pub betas: [f64; 2],
    /// AdamW's ε, added to the square root of the second moment.
    #[serde(default = "epsilon")]
    pub epsilon: f64,
    /// Norm to which gradients are clipped.
    #[serde(default = "one_f64")]
    pub clip_norm: f64,
    /// Whether each path is scored on its held-out text before each phase but the first, and at the end. Its best
    /// parameters are then its result (DiPaCo, section 2.7).
    #[serde(default)]
    pub early_stopping: bool,
    /// Whether paths and ancestor also learn to predict the first tokens of a document, which choose its path and are
    /// not scored. In a batch with no other tokens, these always count.
    #[serde(default = "yes")]
    pub predict_prefix: bool,
    pub augment: Option<Augment>,
}

/// Decay of the inner learning rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// A cosine over all steps.
    #[default]
    Cosine,
    /// Constant at the peak, then linear over the last so many steps (warm-up, stable, decay).
    Last(u64),
}

/// The inner optimiser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    #[default]
    AdamW,
    /// Orthogonalised momentum for the matrices of blocks, AdamW for everything else.
    Muon,
}

impl TrainingConfig {
    /// Inner steps from the first of the ancestor to the last of a path, over all stages and runs.
    pub fn total_steps(&self) -> u64 {
        self.ancestor_steps + (self.shared_phases + self.phases) * self.inner_steps + self.later_steps
    }
}

fn one_f64() -> f64 {
    1.0
}

fn tenth() -> f64 {
    0.1
}

/// The default of PyTorch.
fn epsilon() -> f64 {
    1e-8
}

fn betas() -> [f64; 2] {
    [0.9, 0.95]
}
