//! Tests of the analyses on a small network.

use tch::Device;

use super::*;
use crate::config::{ImagesConfig, ModelConfig, Precision};
use crate::inspect::subject::InspectError;
use crate::inspect::{Passages, Subject};
use crate::model::samples::{dna_levels, dna_model};
use crate::model::{PathModel, initial_levels};
use crate::seed::Seed;
use crate::text::Tokenizer;

fn subject() -> Subject {
    let mut model = dna_model();
    model.dna.iter_mut().for_each(|dna| dna.top_k = 2);
    let mut path = PathModel::new(&model, &dna_levels(), Device::Cpu, Precision::F32).unwrap();
    for (level, values) in initial_levels(&model, &dna_levels(), Seed::root(1)).iter().enumerate() {
        path.set_level(level, values).unwrap();
    }
    let tokenizer = Tokenizer::train(&["any text will do for this".to_owned()], 258).unwrap();
    Subject { model: path, tokenizer }
}

fn passages() -> Passages {
    let sequences: Vec<Vec<u32>> =
        (0..4u32).map(|row| (0..10 + row).map(|at| (row * 31 + at * at * 7) % 250).collect()).collect();
    Passages { documents: vec![0, 1, 2, 3], domains: vec![None; 4], names: Vec::new(), sequences, first: 1 }
}

fn model(subject: &Subject) -> &ModelConfig {
    subject.config()
}

/// A network that reads images of 8 x 8 pixels in 16 patches, with weights so large that patches differ.
fn seeing() -> PathModel {
    let images = Some(ImagesConfig { patch: 2 });
    let model = ModelConfig { images, vocabulary: 5, context: 192, ..dna_model() };
    let mut path = PathModel::new(&model, &dna_levels(), Device::Cpu, Precision::F32).unwrap();
    for (level, values) in initial_levels(&model, &dna_levels(), Seed::root(1)).iter().enumerate() {
        let wide: Vec<f32> = values.iter().map(|value| if *value == 1.0 { 1.0 } else { value * 3.0 }).collect();
        path.set_level(level, &wide).unwrap();
    }
    path
}

fn wish() -> Wish {
    let seed = Seed::root(2);
    let (patches, context, step, alone) = (Vec::new(), false, 2, false);
    Wish {
        step,
        alone,
        patches,
        context,
        rounds: 60,
        learning_rate: 0.1,
        noise: 0.1,
        total_variation: 0.0,
        shift: 0.5,
        seed,
    }
}

fn image() -> Vec<u8> {
    (0..192u32).map(|at| ((at * 89 + at * at * 7) % 256) as u8).collect()
}

#[test]
fn a_dream_takes_more_of_the_routes_of_its_image_and_the_same_seed_dreams_the_same() {
    let path = seeing();
    for alone in [false, true] {
        let dreamt = dream(&path, &image(), &Wish { alone, ..wish() }).unwrap();
        let sum = |shared: &[f64]| shared.iter().skip(if alone { 2 } else { 0 }).sum::<f64>();
        assert!(sum(&dreamt.shared) > sum(&dreamt.shared_before), "{dreamt:?}");
        assert!(dreamt.losses[1] < dreamt.losses[0], "{:?}", dreamt.losses);
        assert_eq!(dream(&path, &image(), &Wish { alone, ..wish() }).unwrap(), dreamt);
    }
}

#[test]
fn around_patches_that_are_dreamt_is_the_image_or_grey() {
    let path = seeing();
    let inside = |at: usize| {
        let (row, column) = (at % 64 / 8, at % 8);
        (row / 2, column / 2) == (1, 2)
    };
    for (context, expected) in [(true, image()), (false, vec![128; 192])] {
        let wish = Wish { patches: vec![6], context, rounds: 5, ..wish() };
        let bytes = dream(&path, &image(), &wish).unwrap().bytes;
        let outside =
            |all: &[u8]| all.iter().enumerate().filter(|(at, _)| !inside(*at)).map(|(_, byte)| *byte).collect();
        let (found, expected): (Vec<u8>, Vec<u8>) = (outside(&bytes), outside(&expected));
        assert_eq!(found, expected);
        assert_ne!(bytes, image());
    }
    for wrong in [Wish { step: 3, ..wish() }, Wish { patches: vec![16], ..wish() }] {
        assert!(matches!(dream(&path, &image(), &wrong), Err(InspectError::Unknown { .. })));
    }
    assert!(dream(&subject().model, &image(), &wish()).is_err(), "text is not dreamt");
}

#[test]
fn every_token_has_a_route_and_shares_add_up() {
    let (subject, passages) = (subject(), passages());
    let dna = model(&subject).dna.clone().unwrap();
    let token_routes = TokenRoutes::of(&subject.model, &passages).unwrap();
    assert_eq!(token_routes.all.len(), 9 + 10 + 11 + 12);
    assert!(token_routes.all.iter().all(|one| one.chosen.len() == 3 && one.chosen.iter().all(|step| step.len() == 2)));
    let flow = flow(&token_routes, &dna);
    for step in &flow.shares {
        assert!((step.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
    assert!(flow.moves.iter().all(|step| (step.iter().flatten().sum::<f64>() - 1.0).abs() < 1e-9));
    assert!(flow.effective.len() == 3 && flow.effective.iter().all(|number| (1.0..=5f64.sqrt()).contains(number)));
    let ranks = ranks(&token_routes, &dna);
    assert_eq!(ranks.routes.iter().map(|route| route.count).sum::<u64>(), ranks.tokens);
    assert!(ranks.routes.is_sorted_by(|a, b| a.count >= b.count));
    assert_eq!(
        ranks.of(&token_routes.all[0], &dna),
        ranks.by_route().get(&token_routes.all[0].route(&dna)[..]).copied()
    );
    let compute = compute(&token_routes, model(&subject), &passages);
    assert!(compute.parameters > 0.0 && compute.by_sequence.len() == 4 && (0.0..1.0).contains(&compute.reused));
    let same = likeness((&token_routes, model(&subject)), (&token_routes, model(&subject)));
    assert!(same.compute.is_none_or(|likeness| (likeness - 1.0).abs() < 1e-9));
}
