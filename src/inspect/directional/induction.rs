//! Induction: whether repeated text is continued. Random tokens occur twice; a network that attends to the token after
//! the earlier occurrence predicts the second half.

use rand::RngExt;
use serde::Serialize;

use super::interventions::{Intervention, Scope};
use crate::inspect::statistics::interval;
use crate::inspect::subject::{InspectError, Subject, row};
use crate::model::layers::watch::{Unwatched, Watch};
use crate::seed::Seed;

/// Number of sequences.
const SEQUENCES: usize = 32;

/// How often the repeated token is the likeliest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// The intervention.
    pub change: String,
    /// Share of the tokens in the second half without its first.
    pub accuracy: f64,
    /// The 95% Wilson interval.
    pub interval: [f64; 2],
    /// Mean loss there, in nats.
    pub nats: f64,
}

/// Accuracy as trained, with weights at 0, 0.5 and 1, and with each layer's at 0.
pub fn induction(subject: &Subject) -> Result<Vec<Accuracy>, InspectError> {
    let everywhere = |weight| Intervention::weight(Scope::default(), weight);
    let mut changes: Vec<(String, Intervention)> = [("off (0)", 0.0), ("neutral (0.5)", 0.5), ("full (1)", 1.0)]
        .map(|(name, weight)| (name.to_owned(), everywhere(weight)))
        .into();
    let layers = 0..subject.config().blocks;
    changes.extend(layers.map(|layer| (format!("layer {layer} off"), Intervention::layer_off(layer))));
    changes.iter().try_for_each(|(_, intervention)| intervention.check(subject.config()))?;
    let sequences = sequences(subject);
    let mut found = vec![accuracy(subject, &sequences, "as trained".to_owned(), &Unwatched)?];
    for (name, intervention) in changes {
        found.push(accuracy(subject, &sequences, name, &intervention.of(subject.config()))?);
    }
    Ok(found)
}

fn sequences(subject: &Subject) -> Vec<Vec<u32>> {
    let mut generator = Seed::root(0).child("repeated tokens").generator();
    let (half, vocabulary) = (subject.config().context / 2, subject.config().vocabulary as u32);
    let mut sequence = || {
        let once: Vec<u32> = (0..half).map(|_| generator.random_range(0..vocabulary)).collect();
        [once.clone(), once].concat()
    };
    (0..SEQUENCES).map(|_| sequence()).collect()
}

fn accuracy(
    subject: &Subject,
    sequences: &[Vec<u32>],
    change: String,
    watch: &dyn Watch,
) -> Result<Accuracy, InspectError> {
    let (mut hits, mut count, mut nats) = (0, 0, 0.0);
    for tokens in sequences {
        let half = tokens.len() / 2;
        let hidden = subject.model.watched(&row(&tokens[..tokens.len() - 1]), watch)?;
        let logits = subject.model.exact().linear(&hidden.f_squeeze_dim(0)?, subject.model.head(), None)?;
        let best: Vec<i64> = Vec::try_from(logits.f_argmax(-1, false)?.f_to_device(tch::Device::Cpu)?)?;
        // The second half's first token is random.
        let asked = half..tokens.len() - 1;
        hits += asked.clone().filter(|place| best[*place] == i64::from(tokens[place + 1])).count();
        count += asked.len();
        nats += subject.losses(tokens, half + 1, watch)?.iter().sum::<f64>();
    }
    let share = hits as f64 / count as f64;
    Ok(Accuracy { change, accuracy: share, interval: interval(hits, count), nats: nats / count as f64 })
}
