//! What outer steps cost: the bits that travelled, and what was lost of the values on the way.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::compress::{FrameError, decode};
use crate::experiment::plan::{Arm, Experiment};
use crate::experiment::results::outcome::Outcome;
use crate::experiment::results::spread::Spread;

/// Frames in one direction, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Frames {
    /// Values sent.
    pub values: u64,
    /// In so many bytes.
    pub bytes: u64,
    /// Sum of the squares of the values.
    pub squares: f64,
    /// Sum of the squares of what a receiver misses.
    pub lost: f64,
}

impl Frames {
    /// Counts a frame of these values, and gives what a receiver decodes.
    ///
    /// # Errors
    /// If it is no frame of as many values.
    pub fn count(&mut self, values: &[f32], frame: &[u8]) -> Result<Vec<f32>, FrameError> {
        let decoded = decode(frame, values.len())?;
        self.values += values.len() as u64;
        self.bytes += frame.len() as u64;
        for (value, decoded) in values.iter().zip(&decoded) {
            self.squares += f64::from(*value).powi(2);
            self.lost += (f64::from(*value) - f64::from(*decoded)).powi(2);
        }
        Ok(decoded)
    }

    /// Counts others.
    pub fn add(&mut self, other: &Self) {
        self.values += other.values;
        self.bytes += other.bytes;
        self.squares += other.squares;
        self.lost += other.lost;
    }

    /// A value's.
    pub fn bits(&self) -> f64 {
        8.0 * self.bytes as f64 / self.values.max(1) as f64
    }

    /// The length of what is missed, as a part of the length of what was sent.
    pub fn error(&self) -> f64 {
        if self.squares > 0.0 { (self.lost / self.squares).sqrt() } else { 0.0 }
    }
}

/// Frames in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exchanged {
    /// Outer gradients, with what the last ones lost.
    pub up: Frames,
    /// Averages.
    pub down: Frames,
}

/// A table of what travelled, and of what it did to the perplexity, beside the first arm with the same seed; nothing where
/// all arms are written alike.
pub(in crate::experiment) fn table(page: &mut String, experiment: &Experiment, outcomes: &[Outcome]) {
    let written = |arm: &Arm| (arm.run.outer.codec, arm.run.outer.average_codec());
    let differ = |first: &&Arm| experiment.arms.iter().any(|arm| written(arm) != written(first));
    let Some(first) = experiment.arms.first().filter(differ) else { return };
    *page += "\n## What travelled\n\nBits of a value in an outer step, up (an outer gradient, with what the last one lost) and \
              down (the average); what a receiver misses of it, as a part of its length; and how much more perplexity than \
              the first arm with the same seed. Paths that keep what they have not sent count as what they are with it; \
              *modules alone* are without.\n\n\
              | arm | bits up | missed | bits down | missed | perplexity | more by | modules alone |\n\
              |---|---|---|---|---|---|---|---|\n";
    for arm in &experiment.arms {
        let own = || outcomes.iter().filter(|outcome| outcome.arm == arm.name);
        let frames = || own().filter_map(|outcome| outcome.exchanged);
        let more = own().filter_map(|outcome| {
            let base = outcomes.iter().find(|base| base.arm == first.name && base.seed == outcome.seed)?;
            Some(100.0 * (outcome.early.perplexity() / base.early.perplexity() - 1.0))
        });
        let mean = |values: Vec<f64>| Spread::of(values).map_or(f64::NAN, |spread| spread.mean);
        let perplexity = Spread::of(own().map(|outcome| outcome.early.perplexity()));
        let show = |spread: Option<Spread>| spread.map_or_else(String::new, |spread| spread.show(2));
        if frames().next().is_none() {
            let trained = if own().next().is_some() { "not counted, trained before" } else { "not trained yet" };
            let (perplexity, more) = (show(perplexity), show(Spread::of(more)));
            let _ = writeln!(page, "| {} | {trained} | | | | {perplexity} | {more} % | |", arm.name);
            continue;
        }
        let _ = writeln!(
            page,
            "| {} | {:.3} | {:.1} % | {:.3} | {:.1} % | {} | {} % | {} |",
            arm.name,
            mean(frames().map(|both| both.up.bits()).collect()),
            mean(frames().map(|both| 100.0 * both.up.error()).collect()),
            mean(frames().map(|both| both.down.bits()).collect()),
            mean(frames().map(|both| 100.0 * both.down.error()).collect()),
            show(perplexity),
            show(Spread::of(more)),
            show(Spread::of(own().filter_map(|outcome| Some(outcome.modules_alone?.perplexity())))),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::encode;
    use crate::config::Codec;

    #[test]
    fn bits_and_losses_are_counted() {
        let mut frames = Frames::default();
        assert_eq!((frames.bits(), frames.error()), (0.0, 0.0));
        let values = [3.0, 0.0, 0.0, 4.0];
        let frame = encode(Codec::TopK(1), &values).unwrap();
        assert_eq!(frames.count(&values, &frame).unwrap(), [0.0, 0.0, 0.0, 4.0]);
        assert_eq!((frames.bits(), frames.error()), (2.0 * frame.len() as f64, 0.6));
        let mut both = frames;
        both.add(&frames);
        assert_eq!((both.values, both.bits(), both.error()), (8, frames.bits(), 0.6));
    }
}
