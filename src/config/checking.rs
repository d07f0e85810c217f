//! Checks of a run's configuration that its types do not make.

use super::outer::{Codec, OuterMode};
use super::routing::RoutingMethod;
use super::run::{RunConfig, RunConfigError};
use super::training::Decay;
use crate::config::model::levels::{check_balance, check_levels};
use crate::grid::{Grid, Sharing, halves};

/// An update counts at most this many contributions. In the synchronous mode an update is a round, so a module with
/// more paths would miss some of them in every round.
pub const MOST_IN_A_ROUND: u32 = 1_024;

/// A run of more paths does not reshard its text: each path scores the whole slice, and each member fits all of them.
const MOST_RESHARDED: u32 = 64;

impl RunConfig {
    pub fn check(&self) -> Result<(), RunConfigError> {
        self.model.check()?;
        check_levels(&self.model, &self.levels)?;
        check_balance(&self.levels)?;
        let grid = self.grid()?;
        let declared = self.paths.unwrap_or_else(|| grid.path_count());
        require(
            declared == grid.path_count(),
            "paths",
            declared,
            "must be the product of the levels' experts, or unset",
        )?;
        let sane_name = !self.name.is_empty()
            && self.name.len() <= 64
            && self.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        require(sane_name, "name", &self.name, "1 to 64 letters, digits, - and _")?;
        self.check_sample(&grid)?;
        self.check_rounds(&grid)?;
        self.check_trainers()?;
        self.check_text()?;
        self.check_training()?;
        let outer = &self.outer;
        require(
            outer.learning_rate > 0.0 && outer.learning_rate <= 10.0,
            "outer.learning_rate",
            outer.learning_rate,
            "above 0, at most 10",
        )?;
        require(
            (0.0..1.0).contains(&outer.momentum),
            "outer.momentum",
            outer.momentum,
            "from 0 up to, but not including, 1",
        )?;
        self.check_unsent()?;
        if let Some(streaming) = outer.streaming {
            let expected = "mix from 0 to below 1, overlap from 1 to the number of levels less one";
            require(streaming.fits(self.levels.len()), "outer.streaming", format!("{streaming:?}"), expected)?;
            let excluded = outer.mode == OuterMode::Asynchronous
                || self.sample.is_some()
                || self.training.early_stopping
                || !self.routing.reshard.is_empty()
                || self.training.inner_steps < self.levels.len() as u64;
            let expected = "must be unset where outer.mode is asynchronous, paths are sampled, text is resharded, \
                paths stop early, or a phase has fewer inner steps than levels";
            require(!excluded, "outer.streaming", format!("{streaming:?}"), expected)?;
        }
        let cap = outer.cap();
        require(
            cap == 0.0 || (1.0..=1_000.0).contains(&cap),
            "outer.norm_cap",
            cap,
            "from 1 to 1000 times the running norm, or 0 for no cap",
        )?;
        let share = outer.audit_share;
        require((0.0..=64.0).contains(&share), "outer.audit_share", share, "0 to 64 members for each update")?;
        require(
            outer.can_clip() || !outer.centred_clipping,
            "outer.centred_clipping",
            true,
            "false where outer.mode is asynchronous or outer.codec is top-k",
        )?;
        for (key, codec) in [("outer.codec", Some(outer.codec)), ("outer.average_codec", outer.average_codec)] {
            let Some(Codec::TopK(kept)) = codec else { continue };
            require((1..=4096).contains(&kept), key, format!("{{ top-k = {kept} }}"), "1 to 4096 of each 4096 values")?;
        }
        Ok(())
    }

    fn check_unsent(&self) -> Result<(), RunConfigError> {
        let outer = &self.outer;
        if let Some(decay) = outer.residual_decay {
            let expected = "above 0, at most 1; error_feedback = false keeps nothing";
            require(decay > 0.0 && decay <= 1.0, "outer.residual_decay", decay, expected)?;
        }
        let alone = outer.error_feedback && outer.residual_decay.is_none() && outer.streaming.is_none();
        require(
            !outer.keep_unsent || (alone && self.sample.is_none() && self.routing.reshard.is_empty()),
            "outer.keep_unsent",
            outer.keep_unsent,
            "false where outer.error_feedback is false, outer.residual_decay or outer.streaming is set, paths are \
             sampled, or text is resharded",
        )
    }

    fn check_sample(&self, grid: &Grid) -> Result<(), RunConfigError> {
        let Some(sample) = self.sample else { return Ok(()) };
        let has_experts = self.levels.iter().any(|level| matches!(level.sharing, Sharing::Experts(_)));
        require(has_experts, "sample.paths", sample.paths, "must be unset where no level has experts to draw from")?;
        require(sample.paths <= grid.path_count(), "sample.paths", sample.paths, "at most the paths of the grid")?;
        require(
            !self.slots()?.are_drawn_anew() || self.outer.mode == OuterMode::Synchronous,
            "sample.hold_phases",
            sample.hold_phases,
            "must be 0 where outer.mode is asynchronous: only a synchronous run draws paths again",
        )
    }

    /// Whether a round can count every path that goes through a module.
    fn check_rounds(&self, grid: &Grid) -> Result<(), RunConfigError> {
        if self.outer.mode == OuterMode::Asynchronous {
            return Ok(());
        }
        let trained = self.sample.map_or(grid.path_count(), |sample| sample.paths);
        for (at, level) in self.levels.iter().enumerate() {
            let through = match level.sharing {
                Sharing::Shared => trained,
                Sharing::Experts(experts) => trained.div_ceil(experts),
                Sharing::Path => 1,
            };
            let found = format!("{through} paths through a module of level {at}");
            let expected = "at most 1024, which is what a round can count; use more experts in this level, sample fewer \
                paths, or set outer.mode = \"asynchronous\"";
            require(through <= MOST_IN_A_ROUND, "levels", found, expected)?;
        }
        Ok(())
    }

    fn check_text(&self) -> Result<(), RunConfigError> {
        let text = &self.text;
        require(
            (64..=1 << 20).contains(&text.document_bytes),
            "text.document_bytes",
            text.document_bytes,
            "64 to 1048576",
        )?;
        require((0.0..0.5).contains(&text.test_share), "text.test_share", text.test_share, "from 0 to below 0.5")?;
        require(
            (0.0..0.5).contains(&text.held_out_share),
            "text.held_out_share",
            text.held_out_share,
            "from 0 to below 0.5",
        )?;
        let (prefix, context) = (self.routing.prefix_tokens, self.model.context);
        let (fits, expected) = if self.model.reads_images() {
            (prefix == context, "must be model.context, the whole image, where images are read")
        } else {
            ((1..context).contains(&prefix), "at least 1 and below model.context")
        };
        require(fits, "routing.prefix_tokens", prefix, expected)?;
        let unscored = self.training.unscored_tokens;
        require(unscored < self.model.context, "training.unscored_tokens", unscored, "below model.context")?;
        let paths = self.grid()?.path_count();
        require(
            self.routing.method != RoutingMethod::ProductKmeans || halves(paths).is_some(),
            "paths",
            paths,
            "a product of two numbers above 1 where routing.method is product-kmeans",
        )?;
        require(
            (1..=paths as usize).contains(&self.routing.overlap),
            "routing.overlap",
            self.routing.overlap,
            "1 to the number of paths",
        )?;
        require(
            (1..=10_000).contains(&self.routing.kmeans_rounds),
            "routing.kmeans_rounds",
            self.routing.kmeans_rounds,
            "1 to 10000",
        )?;
        self.check_resharding(paths)
    }

    fn check_resharding(&self, paths: u32) -> Result<(), RunConfigError> {
        let (phases, share) = (&self.routing.reshard, self.routing.slice_share);
        require((0.0..0.5).contains(&share), "routing.slice_share", share, "from 0 to below 0.5")?;
        check_phases("routing.reshard", phases, self.training.phases)?;
        let refused = !(2..=MOST_RESHARDED).contains(&paths)
            || self.sample.is_some()
            || self.outer.mode != OuterMode::Synchronous;
        require(
            phases.is_empty() || !refused,
            "routing.reshard",
            format!("{phases:?}"),
            "must be unset where there are fewer than 2 or more than 64 paths, paths are sampled, or outer.mode is \
             asynchronous",
        )
    }

    fn check_augment(&self) -> Result<(), RunConfigError> {
        let Some(augment) = &self.training.augment else { return Ok(()) };
        let expected = "must be left out where text is read: only images are augmented";
        require(self.model.reads_images(), "training.augment", format!("{augment:?}"), expected)?;
        Ok(augment.check(self.model.side())?)
    }

    fn check_training(&self) -> Result<(), RunConfigError> {
        let training = &self.training;
        self.check_augment()?;
        require(
            (1..=1 << 20).contains(&training.batch_sequences),
            "training.batch_sequences",
            training.batch_sequences,
            "1 to 1048576",
        )?;
        require(
            (1..=1 << 32).contains(&training.inner_steps),
            "training.inner_steps",
            training.inner_steps,
            "1 or more",
        )?;
        require((1..=1 << 24).contains(&training.phases), "training.phases", training.phases, "1 to 16777216")?;
        require(
            training.ancestor_steps <= 1 << 40,
            "training.ancestor_steps",
            training.ancestor_steps,
            "at most 2^40",
        )?;
        require(
            !training.early_stopping || (self.text.held_out_share > 0.0 && self.sample.is_none()),
            "training.early_stopping",
            true,
            "false where text.held_out_share is 0 or paths are sampled",
        )?;
        let shared = training.shared_phases;
        require(shared <= 1 << 24, "training.shared_phases", shared, "at most 16777216")?;
        require(training.later_steps <= 1 << 40, "training.later_steps", training.later_steps, "at most 2^40")?;
        require(
            shared == 0 || training.total_steps() <= 1 << 40,
            "training.shared_phases",
            shared,
            "must be fewer: all steps together are at most 2^40",
        )?;
        check_phases("training.decay_restarts", &training.decay_restarts, training.phases)?;
        let rate = training.learning_rate;
        require(rate > 0.0 && rate < 1.0, "training.learning_rate", rate, "above 0, below 1")?;
        let share = training.final_learning_rate_share;
        require((0.0..=1.0).contains(&share), "training.final_learning_rate_share", share, "0 to 1")?;
        require(
            training.warmup_steps <= training.total_steps(),
            "training.warmup_steps",
            training.warmup_steps,
            "at most all steps",
        )?;
        require(
            (0.0..1.0).contains(&training.weight_decay),
            "training.weight_decay",
            training.weight_decay,
            "from 0 to below 1",
        )?;
        if let Decay::Last(steps) = training.decay {
            let fits = (1..=training.total_steps()).contains(&steps);
            require(fits, "training.decay", format!("{{ last = {steps} }}"), "1 to the number of inner steps")?;
        }
        let epsilon = training.epsilon;
        require(epsilon > 0.0 && epsilon <= 1e-2, "training.epsilon", epsilon, "above 0, at most 0.01")?;
        let betas_fit = training.betas.iter().all(|beta| (0.0..1.0).contains(beta));
        require(betas_fit, "training.betas", format!("{:?}", training.betas), "two numbers from 0 to below 1")?;
        require(
            training.clip_norm > 0.0 && training.clip_norm.is_finite(),
            "training.clip_norm",
            training.clip_norm,
            "above 0",
        )
    }
}

/// Checks a list of phases before which something happens.
fn check_phases(key: &'static str, phases: &[u64], all: u64) -> Result<(), RunConfigError> {
    let fit = phases.iter().all(|phase| (1..all).contains(phase)) && phases.is_sorted_by(|a, b| a < b);
    require(fit, key, format!("{phases:?}"), "phases from 1 to the last but one, each after the one before")
}

pub(super) fn require(
    holds: bool,
    key: &'static str,
    found: impl ToString,
    expected: &'static str,
) -> Result<(), RunConfigError> {
    if holds { Ok(()) } else { Err(RunConfigError::Range { key, found: found.to_string(), expected }) }
}
