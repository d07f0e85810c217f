//! All of it on a small network.

use tch::Device;

use super::*;
use crate::config::{ModelConfig, Precision};
use crate::inspect::{Passages, Subject};
use crate::model::dna::samples::{dna_levels, dna_model};
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

#[test]
fn every_token_has_a_journey_and_shares_add_up() {
    let (subject, passages) = (subject(), passages());
    let dna = model(&subject).dna.clone().unwrap();
    let journeys = Journeys::of(&subject.model, &passages).unwrap();
    assert_eq!(journeys.all.len(), 9 + 10 + 11 + 12);
    assert!(journeys.all.iter().all(|one| one.chosen.len() == 3 && one.chosen.iter().all(|step| step.len() == 2)));
    let flow = flow(&journeys, &dna);
    for step in &flow.shares {
        assert!((step.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
    assert!(flow.moves.iter().all(|step| (step.iter().flatten().sum::<f64>() - 1.0).abs() < 1e-9));
    assert!(flow.effective.iter().all(|number| (1.0..=5.0).contains(number)));
    let ranks = ranks(&journeys, &dna);
    assert_eq!(ranks.ways.iter().map(|way| way.count).sum::<u64>(), ranks.tokens);
    assert!(ranks.ways.is_sorted_by(|a, b| a.count >= b.count));
    assert_eq!(ranks.of(&journeys.all[0], &dna), ranks.by_way().get(&journeys.all[0].way(&dna)[..]).copied());
    let compute = compute(&journeys, model(&subject), &passages);
    assert!(compute.parameters > 0.0 && compute.by_sequence.len() == 4 && (0.0..1.0).contains(&compute.reused));
    let same = likeness((&journeys, model(&subject)), (&journeys, model(&subject)));
    assert!(same.compute.is_none_or(|likeness| (likeness - 1.0).abs() < 1e-9));
}
