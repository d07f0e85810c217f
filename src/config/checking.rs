//! Checks of a run's configuration that its types do not make.

use super::key_error::{KeyError, from_zero_to_below, require, within};
use super::outer::{Codec, OuterMode};
use super::routing::RoutingMethod;
use super::run::{RunConfig, RunConfigError, TextFormat};
use super::training::{Decay, MAX_PHASES};
use crate::config::model::levels::{check_balance, check_levels};
use crate::grid::{Grid, Sharing, halves};

/// An update counts at most this many contributions. In the synchronous mode an update is a round, so a module with
/// more paths would miss some of them in every round.
pub const MOST_IN_A_ROUND: u32 = 1_024;

/// The longest chat template, in bytes: the manifest has it.
const MAX_TEMPLATE_BYTES: usize = 1 << 16;

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
        let rate = outer.learning_rate;
        require(rate > 0.0 && rate <= 10.0, "outer.learning_rate", rate, "above 0, at most 10")?;
        from_zero_to_below("outer.momentum", outer.momentum, 1.0)?;
        self.check_unsent()?;
        if let Some(streaming) = outer.streaming {
            let found = format!("{{ mix = {}, overlap = {} }}", streaming.mix, streaming.overlap);
            let expected = "mix from 0 to below 1, overlap from 1 to the number of levels less one";
            require(streaming.fits(self.levels.len()), "outer.streaming", &found, expected)?;
            let excluded = outer.mode == OuterMode::Asynchronous
                || self.sample.is_some()
                || self.training.early_stopping
                || !self.routing.reshard.is_empty()
                || self.training.inner_steps < self.levels.len() as u64;
            let expected = "must be unset where outer.mode is asynchronous, paths are sampled, text is resharded, \
                paths stop early, or a phase has fewer inner steps than levels";
            require(!excluded, "outer.streaming", found, expected)?;
        }
        let cap = outer.cap();
        let expected = "from 1 to 1000 times the running norm, or 0 for no cap";
        require(cap == 0.0 || (1.0..=1_000.0).contains(&cap), "outer.norm_cap", cap, expected)?;
        let share = outer.audit_share;
        require((0.0..=64.0).contains(&share), "outer.audit_share", share, "0 to 64 members for each update")?;
        require(
            outer.can_clip() || !outer.centred_clipping,
            "outer.centred_clipping",
            true,
            "false where outer.mode is asynchronous or outer.codec is top-k",
        )?;
        let time_decides = outer.mode == OuterMode::Asynchronous
            || outer.streaming.is_some()
            || self.sample.is_some()
            || !self.routing.reshard.is_empty();
        require(
            !(outer.deterministic && time_decides),
            "outer.deterministic",
            true,
            "false where outer.mode is asynchronous, outer.streaming is set, paths are sampled, or text is resharded",
        )?;
        for (key, codec) in [("outer.codec", Some(outer.codec)), ("outer.average_codec", outer.average_codec)] {
            let Some(Codec::TopK(kept)) = codec else { continue };
            require((1..=4096).contains(&kept), key, format!("{{ top-k = {kept} }}"), "1 to 4096 of each 4096 values")?;
        }
        Ok(())
    }

    fn check_unsent(&self) -> Result<(), KeyError> {
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
        let fits = !self.slots()?.are_drawn_anew() || self.outer.mode == OuterMode::Synchronous;
        let expected = "must be 0 where outer.mode is asynchronous: only a synchronous run draws paths again";
        Ok(require(fits, "sample.hold_phases", sample.hold_phases, expected)?)
    }

    /// Whether a round can count every path that goes through a module.
    fn check_rounds(&self, grid: &Grid) -> Result<(), KeyError> {
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
        within("text.document_bytes", text.document_bytes, 64..=1 << 20)?;
        from_zero_to_below("text.test_share", text.test_share, 0.5)?;
        from_zero_to_below("text.held_out_share", text.held_out_share, 0.5)?;
        self.check_format()?;
        let (prefix, context) = (self.routing.prefix_tokens, self.model.context);
        let (fits, expected) = if self.model.reads_images() {
            (prefix == context, "must be model.context, the whole image, where images are read")
        } else {
            ((1..context).contains(&prefix), "at least 1 and below model.context")
        };
        require(fits, "routing.prefix_tokens", prefix, expected)?;
        let paths = self.grid()?.path_count();
        let splits = self.routing.method != RoutingMethod::ProductKmeans || halves(paths).is_some();
        let expected = "a product of two numbers above 1 where routing.method is product-kmeans";
        require(splits, "paths", paths, expected)?;
        let (overlap, expected) = (self.routing.overlap, format!("1 to {paths}, the number of paths"));
        require((1..=paths as usize).contains(&overlap), "routing.overlap", overlap, expected)?;
        within("routing.kmeans_rounds", self.routing.kmeans_rounds, 1..=10_000)?;
        Ok(self.check_resharding(paths)?)
    }

    fn check_format(&self) -> Result<(), KeyError> {
        let (text, plain) = (&self.text, self.text.format == TextFormat::Text);
        let expected = "must be \"text\", or left out, where images are read";
        require(plain || !self.model.reads_images(), "text.format", text.format.name(), expected)?;
        let Some(chat) = &text.chat else { return Ok(()) };
        let expected = "must be left out where text.format is \"text\", which has no conversations";
        require(!plain, "text.chat", "set", expected)?;
        let (bytes, key) = (chat.template.len(), "text.chat.template");
        require(bytes <= MAX_TEMPLATE_BYTES, key, format!("{bytes} bytes"), format!("at most {MAX_TEMPLATE_BYTES}"))?;
        for (key, token) in [("text.chat.bos_token", &chat.bos_token), ("text.chat.eos_token", &chat.eos_token)] {
            require(token.len() <= 256, key, format!("{} bytes", token.len()), "at most 256, the name of a token")?;
        }
        Ok(())
    }

    fn check_resharding(&self, paths: u32) -> Result<(), KeyError> {
        let phases = &self.routing.reshard;
        from_zero_to_below("routing.slice_share", self.routing.slice_share, 0.5)?;
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

    fn check_augment(&self) -> Result<(), KeyError> {
        let Some(augment) = &self.training.augment else { return Ok(()) };
        let expected = "must be left out where text is read: only images are augmented";
        require(self.model.reads_images(), "training.augment", "{ … }", expected)?;
        augment.check(self.model.side())
    }

    fn check_training(&self) -> Result<(), KeyError> {
        let training = &self.training;
        self.check_augment()?;
        within("training.batch_sequences", training.batch_sequences, 1..=1 << 20)?;
        within("training.inner_steps", training.inner_steps, 1..=1 << 32)?;
        within("training.phases", training.phases, 1..=MAX_PHASES)?;
        within("training.shared_phases", training.shared_phases, 0..=MAX_PHASES)?;
        within("training.ancestor_steps", training.ancestor_steps, 0..=1 << 40)?;
        within("training.later_steps", training.later_steps, 0..=1 << 40)?;
        let (shared, expected) = (training.shared_phases, "must be fewer: all steps together are at most 2^40");
        require(shared == 0 || training.total_steps() <= 1 << 40, "training.shared_phases", shared, expected)?;
        let stops = !training.early_stopping || (self.text.held_out_share > 0.0 && self.sample.is_none());
        let expected = "false where text.held_out_share is 0 or paths are sampled";
        require(stops, "training.early_stopping", true, expected)?;
        check_phases("training.decay_restarts", &training.decay_restarts, training.phases)?;
        let rate = training.learning_rate;
        require(rate > 0.0 && rate < 1.0, "training.learning_rate", rate, "above 0, below 1")?;
        within("training.final_learning_rate_share", training.final_learning_rate_share, 0.0..=1.0)?;
        let warmup = training.warmup_steps;
        require(warmup <= training.total_steps(), "training.warmup_steps", warmup, "at most all steps")?;
        within("training.rewarm_steps", training.rewarm_steps, 0..=1 << 40)?;
        from_zero_to_below("training.weight_decay", training.weight_decay, 1.0)?;
        if let Decay::Last(steps) = training.decay {
            let fits = (1..=training.total_steps()).contains(&steps);
            require(fits, "training.decay", format!("{{ last = {steps} }}"), "1 to the number of inner steps")?;
        }
        let epsilon = training.epsilon;
        require(epsilon > 0.0 && epsilon <= 1e-2, "training.epsilon", epsilon, "above 0, at most 0.01")?;
        let betas_fit = training.betas.iter().all(|beta| (0.0..1.0).contains(beta));
        require(betas_fit, "training.betas", format!("{:?}", training.betas), "two numbers from 0 to below 1")?;
        let norm = training.clip_norm;
        require(norm > 0.0 && norm.is_finite(), "training.clip_norm", norm, "above 0")
    }
}

/// Checks a list of phases before which something happens.
fn check_phases(key: &'static str, phases: &[u64], all: u64) -> Result<(), KeyError> {
    let fit = phases.iter().all(|phase| (1..all).contains(phase)) && phases.is_sorted_by(|a, b| a < b);
    require(fit, key, format!("{phases:?}"), "phases from 1 to the last but one, each after the one before")
}
