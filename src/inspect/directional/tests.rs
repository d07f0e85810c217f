//! Tests of the analyses on a small untrained network.

use super::attribution::attribute;
use super::distribution::{distribution, mean_weights};
use super::effects::effects;
use super::induction::induction;
use super::interventions::Intervention;
use super::similarity::similarity;
use super::vocabulary::vocabulary;
use crate::config::{DirectionalConfig, ModelConfig, Pooling};
use crate::inspect::subject::InspectError;
use crate::inspect::{Passages, Subject};
use crate::model::samples::{modern_models, small_levels, small_model, small_path};
use crate::text::Tokenizer;

fn subject_of(directional: Option<DirectionalConfig>) -> Subject {
    subject_with(directional, &small_model())
}

fn subject_with(directional: Option<DirectionalConfig>, plain: &ModelConfig) -> Subject {
    let layers = |index: usize| if directional.is_some() { format!("layer.{index}") } else { format!("block.{index}") };
    let mut levels = small_levels();
    levels[0].parts[1] = layers(0);
    levels[1].parts[0] = layers(1);
    let model = ModelConfig { directional, ..plain.clone() };
    let tokenizer = Tokenizer::train(&["some words and other words".to_owned()], 300).unwrap();
    Subject { model: small_path(&model, &levels), tokenizer }
}

fn subject() -> Subject {
    subject_of(Some(DirectionalConfig::of(2)))
}

/// Of two domains with different tokens.
fn passages(count: u32) -> Passages {
    let sequence = |text: u32| (0..20).map(|place| (text % 2) * 128 + (text * 31 + place * place * 7) % 128).collect();
    Passages {
        sequences: (0..count).map(sequence).collect(),
        documents: (0..count).collect(),
        domains: (0..count).map(|text| Some(text % 2)).collect(),
        names: vec!["low".to_owned(), "high".to_owned()],
        first: 4,
    }
}

fn intervention(text: &str) -> Intervention {
    text.parse().unwrap()
}

#[test]
fn what_parts_say_adds_up_to_the_logit() {
    // Biases of attention's output and of feed-forward are of no part.
    let is_possible = |(name, _): &(&str, ModelConfig)| !["olmo2", "pythia"].contains(name);
    let modern = modern_models().into_iter().filter(is_possible).map(|(_, model)| (Pooling::Prefix, model));
    let plain = [Pooling::Prefix, Pooling::Sequence].map(|pooling| (pooling, small_model()));
    for (pooling, model) in plain.into_iter().chain(modern) {
        let subject = subject_with(Some(DirectionalConfig { pooling, ..DirectionalConfig::of(2) }), &model);
        let found = attribute(&subject, &[5, 6, 7, 200, 9], 42).unwrap();
        let sum: f64 = found.parts.iter().map(|share| share.logit).sum();
        assert!((sum - found.logit).abs() < 1e-4 * found.logit.abs().max(1.0), "{sum} {}", found.logit);
        let named = |name: &str| found.parts.iter().find(|share| share.part == name).unwrap().logit;
        for layer in 0..2 {
            let own = found.top_heads.iter().filter(|share| share.part.starts_with(&format!("layer {layer},")));
            let heads: f64 = own.map(|share| share.logit).sum();
            assert!((heads - named(&format!("heads of layer {layer}"))).abs() < 1e-4, "{heads}");
        }
        assert!(named("routing of layer 1") != 0.0 && (0.0..1.0).contains(&found.probability));
    }
}

#[test]
fn effects_are_those_of_what_is_named_and_of_nothing_else() {
    let (subject, passages) = (subject(), passages(4));
    let asked = ["layer=0:off", "layer=1,head=1:silent", "0.25"].map(|text| (text.to_owned(), intervention(text)));
    let found = effects(&subject, &passages, &asked).unwrap();
    assert_eq!(found.everywhere[0].more_nats, 0.0);
    assert_eq!((found.layers_off.len(), found.heads_off.len(), found.heads_silent.len()), (2, 4, 4));
    assert_eq!(found.asked[0].perplexity, found.layers_off[0].perplexity);
    assert_eq!(found.asked[1].perplexity, found.heads_silent[3].perplexity);
    assert_eq!(found.asked[2].perplexity, found.everywhere[2].perplexity);
    let apart: f64 = found.layers_off.iter().map(|effect| effect.more_nats).sum();
    assert!((found.additivity * found.everywhere[1].more_nats - apart).abs() < 1e-9);
    assert!(found.others_weights.unwrap().more_nats != 0.0);
    assert!(found.sensitivity.swapped > 0.0 && found.sensitivity.replaced > found.sensitivity.swapped / 10.0);
    let refused = effects(&subject, &passages, &[("layer=7:off".to_owned(), intervention("layer=7:off"))]).unwrap_err();
    assert_eq!(refused.to_string(), "there is no layer 7; this model has 2, from 0");
}

#[test]
fn only_another_documents_weights_are_anothers() {
    let subject = subject();
    assert_eq!(effects(&subject, &passages(1), &[]).unwrap().others_weights, None);
    let mut twins = passages(2);
    twins.sequences[1] = twins.sequences[0].clone();
    let found = effects(&subject, &twins, &[]).unwrap().others_weights.unwrap();
    assert!(found.more_nats.abs() < 1e-6, "the other document says the same: {found:?}");
}

#[test]
fn weights_are_told_by_layer_domain_and_position() {
    let (subject, passages) = (subject(), passages(6));
    let found = distribution(&subject, &passages).unwrap();
    assert_eq!((found.layers.len(), found.specialists.len()), (2, 1));
    for layer in &found.layers {
        assert!(layer.quantiles.is_sorted() && (0.0..=1.0).contains(&layer.mean) && layer.deviation > 0.0);
        assert!(layer.between_domains.unwrap() > 0.0);
    }
    let weights = mean_weights(&subject, &passages).unwrap();
    assert_eq!((weights.len(), weights[0].len()), (6, 2 * 2 * 2));
    // All positions together give the joint effect.
    let off = effects(&subject, &passages, &[]).unwrap().everywhere[1].more_nats;
    let counted = |from: usize, to: usize| passages.sequences.iter().map(|own| own.len().min(to) - from).sum::<usize>();
    let (mut sum, mut count) = (0.0, 0);
    for part in &found.benefit {
        sum += part.nats * counted(part.from, part.to) as f64;
        count += counted(part.from, part.to);
    }
    assert!((sum / count as f64 - off).abs() < 1e-9, "{} {off}", sum / count as f64);
}

#[test]
fn each_direction_has_its_tokens_and_each_change_its_accuracy() {
    let subject = subject();
    let found = vocabulary(&subject).unwrap();
    assert_eq!((found.directions.len(), found.heads.len()), (2 * 2 * 2, 4));
    for direction in &found.directions {
        assert!(direction.tokens.len() == 10 && direction.tokens.is_sorted_by(|a, b| a.1 >= b.1));
    }
    assert!(found.heads.iter().all(|head| (1.0..=2.0).contains(&head.effective_rank)));
    let found = induction(&subject).unwrap();
    let names: Vec<&str> = found.iter().map(|one| one.change.as_str()).collect();
    assert_eq!(names, ["as trained", "off (0)", "neutral (0.5)", "full (1)", "layer 0 off", "layer 1 off"]);
    assert!(found.iter().all(|one| one.interval[0] <= one.accuracy && one.accuracy <= one.interval[1]));
}

#[test]
fn a_network_is_like_itself_and_not_like_another_vocabulary() {
    let (one, passages) = (subject(), passages(3));
    let found = similarity(&one, &subject(), &passages).unwrap();
    assert!(found.layers.iter().all(|cka| (cka - 1.0).abs() < 1e-9), "{:?}", found.layers);
    assert!(found.sureness[0] == found.sureness[1] && found.sureness[0].entropy > 0.0);
    let mut other = subject();
    other.tokenizer = Tokenizer::train(&["quite different letters".to_owned()], 300).unwrap();
    assert!(matches!(similarity(&one, &other, &passages), Err(InspectError::Differ("their tokenizers"))));
}

#[test]
fn in_plain_attention_there_is_nothing_to_look_at() {
    let (plain, passages) = (subject_of(None), passages(2));
    assert!(matches!(effects(&plain, &passages, &[]), Err(InspectError::Plain)));
    assert!(matches!(induction(&plain), Err(InspectError::Plain)));
    assert!(matches!(distribution(&plain, &passages), Err(InspectError::Plain)));
    assert!(matches!(vocabulary(&plain), Err(InspectError::Plain)));
}
