//! Effects of changing routing or heads on the loss of a text: everywhere, in one layer, of one head, or with another
//! text's weights; and the sensitivity of weights to changed tokens.

use std::cell::RefCell;

use rand::RngExt;
use rand::seq::SliceRandom;
use serde::Serialize;
use tch::{TchError, Tensor};

use super::capture::Capture;
use super::interventions::{Change, Intervention, Scope};
use crate::inspect::subject::{InspectError, Passages, Subject};
use crate::model::layers::watch::{Unwatched, Watch};
use crate::seed::Seed;

/// The loss of a text under an intervention.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Effect {
    /// The intervention.
    pub change: String,
    /// Of the mean token.
    pub perplexity: f64,
    /// Additional nats a token compared with training.
    pub more_nats: f64,
}

/// All effects on a text.
#[derive(Clone, Debug, Serialize)]
pub struct Effects {
    /// As trained, and with all weights fixed.
    pub everywhere: Vec<Effect>,
    /// With the weights of each layer at 0.
    pub layers_off: Vec<Effect>,
    /// With the weights of each head at 0.
    pub heads_off: Vec<Effect>,
    /// With each head silenced.
    pub heads_silent: Vec<Effect>,
    /// The sum of the layers' single effects over their joint effect: 1 if they add up.
    pub additivity: f64,
    /// With the weights of a sequence of another document; `None` if there is none.
    pub others_weights: Option<Effect>,
    /// The user's interventions.
    pub asked: Vec<Effect>,
    /// Mean change of weights when tokens change.
    pub sensitivity: Sensitivity,
}

/// Mean change of a weight at the scored positions.
#[derive(Clone, Copy, Debug, Serialize, PartialEq)]
pub struct Sensitivity {
    /// With one in ten neighbours swapped.
    pub swapped: f64,
    /// With one in ten tokens replaced.
    pub replaced: f64,
}

/// Reads with the recorded weights of another text.
struct Others<'a> {
    weights: &'a RefCell<Vec<Tensor>>,
}

impl Watch for Others<'_> {
    fn routing(&self, block: usize, routing: Tensor) -> Result<Tensor, TchError> {
        let kept = self.weights.borrow();
        let (time, other) = (routing.size()[1], kept[block].size()[0]);
        // A shorter text repeats its last weights.
        let places: Vec<i64> = (0..time).map(|place| place.min(other - 1)).collect();
        kept[block].f_index_select(0, &Tensor::f_from_slice(&places)?.f_to_device(routing.device())?)?.f_unsqueeze(0)
    }
}

struct Measuring<'a> {
    subject: &'a Subject,
    passages: &'a Passages,
    base: f64,
}

impl Measuring<'_> {
    fn effect(&self, change: String, watch: &dyn Watch) -> Result<Effect, InspectError> {
        let (nats, tokens) = self.subject.score(self.passages, watch)?;
        let mean = nats / tokens as f64;
        Ok(Effect { change, perplexity: mean.exp(), more_nats: mean - self.base })
    }

    fn of(&self, change: String, intervention: &Intervention) -> Result<Effect, InspectError> {
        self.effect(change, &intervention.of(self.subject.config()))
    }

    /// One effect for each head.
    fn heads(&self, change: &Change) -> Result<Vec<Effect>, InspectError> {
        let config = self.subject.config();
        let all = (0..config.blocks).flat_map(|layer| (0..config.heads).map(move |head| (layer, head)));
        let one = |(layer, head)| {
            let scope = Scope { layer: Some(layer), head: Some(head), direction: None };
            self.of(format!("layer {layer}, head {head}"), &Intervention(vec![(scope, change.clone())]))
        };
        all.map(one).collect()
    }
}

/// Measures all effects; `asked` are the user's interventions, as written.
pub fn effects(
    subject: &Subject,
    passages: &Passages,
    asked: &[(String, Intervention)],
) -> Result<Effects, InspectError> {
    let off = Intervention::weight(Scope::default(), 0.0);
    asked.iter().map(|(_, one)| one).chain([&off]).try_for_each(|one| one.check(subject.config()))?;
    let (nats, tokens) = subject.score(passages, &Unwatched)?;
    let measuring = Measuring { subject, passages, base: nats / tokens as f64 };
    let mut everywhere = vec![measuring.effect("as trained".to_owned(), &Unwatched)?];
    for (name, weight) in [("off (0)", 0.0), ("0.25", 0.25), ("neutral (0.5)", 0.5), ("0.75", 0.75), ("full (1)", 1.0)]
    {
        everywhere.push(measuring.of(name.to_owned(), &Intervention::weight(Scope::default(), weight))?);
    }
    let layers = 0..subject.config().blocks;
    let layers_off: Vec<Effect> = layers
        .map(|layer| measuring.of(format!("layer {layer} off"), &Intervention::layer_off(layer)))
        .collect::<Result<_, _>>()?;
    let apart: f64 = layers_off.iter().map(|effect| effect.more_nats).sum();
    let asked = asked.iter().map(|(name, one)| measuring.of(name.clone(), one)).collect::<Result<_, _>>()?;
    Ok(Effects {
        additivity: apart / everywhere[1].more_nats,
        layers_off,
        heads_off: measuring.heads(&Change::Weight(0.0))?,
        heads_silent: measuring.heads(&Change::Silence)?,
        others_weights: others_weights(&measuring)?,
        asked,
        sensitivity: sensitivity(subject, passages)?,
        everywhere,
    })
}

fn others_weights(measuring: &Measuring<'_>) -> Result<Option<Effect>, InspectError> {
    let Measuring { subject, passages, base } = *measuring;
    let (mut nats, mut tokens) = (0.0, 0);
    for (index, own) in passages.sequences.iter().enumerate() {
        let mut after = (1..passages.sequences.len()).map(|step| (index + step) % passages.sequences.len());
        let Some(other) = after.find(|other| passages.documents[*other] != passages.documents[index]) else {
            return Ok(None);
        };
        let other = &passages.sequences[other];
        let kept = Capture::of_scored(subject, other)?;
        let weights = RefCell::new(kept.routing_of_layers());
        let losses = subject.losses(own, passages.first, &Others { weights: &weights })?;
        nats += losses.iter().sum::<f64>();
        tokens += losses.len();
    }
    let mean = nats / tokens as f64;
    let change = "another document's weights".to_owned();
    Ok(Some(Effect { change, perplexity: mean.exp(), more_nats: mean - base }))
}

fn sensitivity(subject: &Subject, passages: &Passages) -> Result<Sensitivity, InspectError> {
    let mut generator = Seed::root(0).child("changed tokens").generator();
    let (mut swapped, mut replaced, mut count) = (0.0, 0.0, 0.0);
    for tokens in &passages.sequences {
        let own = Capture::of_scored(subject, tokens)?.weights()?;
        let places = tokens.len().div_ceil(10);
        let mut chosen: Vec<usize> = (0..tokens.len() - 1).collect();
        chosen.shuffle(&mut generator);
        let (mut other, mut another) = (tokens.clone(), tokens.clone());
        for place in chosen.into_iter().take(places) {
            other.swap(place, place + 1);
            another[place] = generator.random_range(0..subject.config().vocabulary as u32);
        }
        swapped += differ(&own, &Capture::of_scored(subject, &other)?.weights()?, passages.first);
        replaced += differ(&own, &Capture::of_scored(subject, &another)?.weights()?, passages.first);
        count += 1.0;
    }
    Ok(Sensitivity { swapped: swapped / count, replaced: replaced / count })
}

/// The mean difference of two sequences' weights at the scored positions.
fn differ(one: &[Vec<Vec<f64>>], other: &[Vec<Vec<f64>>], first: usize) -> f64 {
    let (mut sum, mut count) = (0.0, 0usize);
    for (one, other) in one.iter().zip(other) {
        // One row stands for all positions.
        let from = if one.len() == 1 { 0 } else { first - 1 };
        for (one, other) in one.iter().zip(other).skip(from) {
            sum += one.iter().zip(other).map(|(a, b)| (a - b).abs()).sum::<f64>();
            count += one.len();
        }
    }
    sum / count.max(1) as f64
}
