//! `pathswarm inspect dna --dream`: images whose patches take the routes of a given one.

use clap::Args;

use crate::cli::mistake::Mistake;
use crate::cli::swarm::research::inspect::explain;
use crate::cli::swarm::research::inspect::patches::{bytes, class_name, tile};
use crate::cli::swarm::research::inspect::shown::DnaView;
use crate::inspect::dna::{Dreamt, Wish, dream};
use crate::inspect::plots::sheet::{Tile, sheet};
use crate::seed::Seed;

/// Flags of dreams.
#[derive(Args)]
pub(super) struct Dreams {
    /// Dream an image whose patches take the routes of this one; its number among the images read, from 0. With --out,
    /// it is drawn as dreams.png after the original.
    #[arg(long, value_name = "IMAGE")]
    dream: Option<usize>,
    /// The last step whose choices count, from 0; by default the network's last.
    #[arg(long, value_name = "STEP", requires = "dream")]
    dream_step: Option<usize>,
    /// Count only the choices of that step.
    #[arg(long, requires = "dream")]
    dream_alone: bool,
    /// Count only the choices of these patches, and dream only them; row by row, from 0.
    #[arg(long, value_name = "PATCH", value_delimiter = ',', requires = "dream")]
    dream_patches: Vec<usize>,
    /// Surround them with the image instead of grey.
    #[arg(long, requires = "dream_patches")]
    dream_context: bool,
    /// Number of gradient steps.
    #[arg(long, value_name = "COUNT", default_value_t = 256, requires = "dream", value_parser = clap::value_parser!(u32).range(1..))]
    dream_rounds: u32,
    /// Seed of the dream.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "dream")]
    dream_seed: u64,
}

impl Dreams {
    pub(super) fn show(&self, view: &DnaView<'_>) -> anyhow::Result<()> {
        let Some(image) = self.dream else { return Ok(()) };
        let (model, passages) = (view.subject.config(), view.passages);
        if !model.reads_images() {
            let hint = "--dream is for runs with [model.images], such as configs/dna/swarm-images.toml";
            return Err(Mistake::new("this run reads text, and dreams are images").hint(hint).into());
        }
        if image >= passages.sequences.len() {
            let message = format!("there is no image {image}; {} are read, from 0", passages.sequences.len());
            return Err(Mistake::new(message).hint("give another number, or more --sequences").into());
        }
        let wish = Wish {
            step: self.dream_step.unwrap_or(view.dna.steps.saturating_sub(1)),
            alone: self.dream_alone,
            patches: self.dream_patches.clone(),
            context: self.dream_context,
            rounds: self.dream_rounds as usize,
            learning_rate: 0.05,
            noise: 0.2,
            total_variation: 0.3,
            shift: 1.0,
            seed: Seed::root(self.dream_seed).child("dream"),
        };
        let dreamt = dream(&view.subject.model, &bytes(passages, image), &wish).map_err(explain)?;
        view.shown.event("dream", &dreamt)?;
        let Dreamt { shared, shared_before, losses, .. } = &dreamt;
        let row = |(step, (before, after)): (usize, (&f64, &f64))| {
            vec![step.to_string(), format!("{:.1}%", 100.0 * before), format!("{:.1}%", 100.0 * after)]
        };
        let rows: Vec<Vec<String>> = shared_before.iter().zip(shared).enumerate().map(row).collect();
        let class = passages.sequences[image].last().map_or_else(String::new, |class| class_name(passages, *class));
        let title = format!("Choices of image {image} ({class}) that a dream of it shares, by step");
        view.shown.table(&title, &["step", "before", "dreamt"], &rows)?;
        view.shown.line(&format!("mean of -log of what routers give them: {:.3}, then {:.3}", losses[0], losses[1]))?;
        let side = model.side();
        let tiles = vec![tile(passages, image, side), Tile::of_planes(&dreamt.bytes, side)];
        view.shown.image("dreams.png", "The image, and a dream of it", || sheet(&[tiles], 256))
    }
}
