//! `[training]`: inner steps, their learning rate and their optimiser.

use serde::{Deserialize, Serialize};

use super::augment::Augment;

/// `[training]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingConfig {
    /// Sequences per inner step, whatever the machine's micro-batch.
    pub batch_sequences: usize,
    /// `H`: inner steps per phase.
    pub inner_steps: u64,
    /// Outer steps.
    pub phases: u64,
    /// Outer steps before these in which all levels are shared, and text goes to paths by chance: the swarm grows its own
    /// ancestor, from which routing and paths then begin.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shared_phases: u64,
    /// Inner steps that another run makes from where this one ends; they count in the learning rate's schedule.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub later_steps: u64,
    /// Steps of the dense ancestor that every path starts from; they count in the learning rate's schedule.
    pub ancestor_steps: u64,
    /// Peak of the inner learning rate.
    pub learning_rate: f64,
    /// How the learning rate falls after the warm-up.
    #[serde(default, skip_serializing_if = "Decay::is_cosine")]
    pub decay: Decay,
    /// In the end the learning rate is this share of the peak.
    #[serde(default = "tenth")]
    pub final_learning_rate_share: f64,
    /// From the beginning of each of these phases the cosine falls anew, from the peak: as where the text is shared out anew
    /// (DiPaCo, figure 10).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decay_restarts: Vec<u64>,
    /// Steps of linear warm-up, at the start of the ancestor.
    #[serde(default)]
    pub warmup_steps: u64,
    /// AdamW's decoupled weight decay.
    #[serde(default = "tenth")]
    pub weight_decay: f64,
    /// AdamW's beta1 and beta2.
    #[serde(default = "betas")]
    pub betas: [f64; 2],
    /// Added by AdamW to the root of the second moment.
    #[serde(default = "epsilon", skip_serializing_if = "is_usual_epsilon")]
    pub epsilon: f64,
    /// Gradients are scaled down to this norm.
    #[serde(default = "one_f64")]
    pub clip_norm: f64,
    /// Each path is scored on its held-out text before each phase but the first and in the end, and what it was best with is
    /// what it counts as when it is done: evaluated, asked and collected (DiPaCo, section 2.4.4).
    #[serde(default, skip_serializing_if = "is_false")]
    pub early_stopping: bool,
    /// Whether paths and ancestor also learn to predict a document's first tokens, which choose its path and do not count in
    /// evaluation. Those of a batch that has no others count always.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub predict_prefix: bool,
    /// So many tokens at the beginning of each sequence are not learnt, whatever it begins with: a control for networks that
    /// see them before they predict them.
    #[serde(default, skip_serializing_if = "is_none_at_all")]
    pub unscored_tokens: usize,
    /// How images are changed by chance before each step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub augment: Option<Augment>,
}

/// How the inner learning rate falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// As a cosine, all the way.
    #[default]
    Cosine,
    /// It stays at the peak, and falls in a line over the last so many steps (warm-up, stable, decay).
    Last(u64),
}

impl Decay {
    fn is_cosine(&self) -> bool {
        *self == Self::Cosine
    }
}

impl TrainingConfig {
    /// Inner steps from the ancestor's first to the last of a path, in whichever stage or run it is made.
    pub fn total_steps(&self) -> u64 {
        self.ancestor_steps + (self.shared_phases + self.phases) * self.inner_steps + self.later_steps
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_none_at_all(count: &usize) -> bool {
    *count == 0
}

fn is_false(truth: &bool) -> bool {
    !*truth
}

fn is_true(truth: &bool) -> bool {
    *truth
}

fn yes() -> bool {
    true
}

fn one_f64() -> f64 {
    1.0
}

fn tenth() -> f64 {
    0.1
}

/// PyTorch's.
fn epsilon() -> f64 {
    1e-8
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_usual_epsilon(found: &f64) -> bool {
    *found == epsilon()
}

fn betas() -> [f64; 2] {
    [0.9, 0.95]
}
