//! Tests of packed batches: what they compute is what padded ones compute.

use tch::{Device, Kind, Tensor};

use super::*;
use crate::config::{Biases, DirectionalConfig, ImagesConfig, Positions, Precision};
use crate::model::layers::watch::Unwatched;
use crate::model::samples::{dna_levels, dna_model, modern_models, small_levels, small_model, small_path};
use crate::model::{initial_levels, weights::to_values};
use crate::training::inner::gradients::loss_and_gradients;
use crate::training::inner::loss::row_losses;
use crate::training::samples::web_like_set;

/// Sequences of up to the whole context of the small models, two of them alike in length, and one without a target.
fn set() -> Vec<Vec<u32>> {
    let sequence = |(number, length): (u32, u32)| (0..length).map(|at| (at * at * 7 + number * 31) % 300).collect();
    [(0, 25), (1, 25), (2, 17), (3, 9), (4, 9), (5, 2), (6, 1)].map(sequence).to_vec()
}

/// The architectures that pack, each with a name.
fn networks() -> Vec<(String, ModelConfig)> {
    let gpt2 = ModelConfig { positions: Positions::Learned, biases: Biases::All, ..small_model() };
    let mut found = vec![("plain".to_owned(), small_model()), ("gpt2".to_owned(), gpt2)];
    found.extend(modern_models().into_iter().map(|(name, model)| (name.to_owned(), model)));
    let tied = |(name, model): &(String, ModelConfig)| {
        (format!("{name}, tied"), ModelConfig { tied_head: true, ..model.clone() })
    };
    let all_tied: Vec<_> = found.iter().map(tied).collect();
    found.into_iter().chain(all_tied).collect()
}

fn path(model: &ModelConfig, precision: Precision) -> PathModel {
    let mut levels = small_levels();
    if model.tied_head {
        levels[1].parts.pop();
    }
    let mut path = PathModel::new(model, &levels, Device::Cpu, precision).unwrap();
    for (level, values) in initial_levels(model, &levels, Seed::root(1)).iter().enumerate() {
        path.set_level(level, values).unwrap();
    }
    path
}

/// The mean loss of all sequences and its gradients, in micro-batches, packed in groups of this factor, or padded.
fn learnt(path: &PathModel, limits: &BatchLimits, micro: usize, packed: Option<usize>) -> (f64, Vec<Tensor>) {
    let (set, order) = (set(), [0, 1, 2, 3, 4, 5, 6]);
    let batch = |chosen: &[usize]| match packed {
        None => Batch::new(&set[..], chosen, limits, path.device()).unwrap(),
        Some(factor) => {
            let lengths: Vec<usize> = chosen.iter().map(|index| set[*index].len() - 1).collect();
            let batch = Batch::for_step(&set[..], chosen, limits, path).unwrap();
            assert!(batch.packed.is_some());
            Batch { packed: Some(Packed::grouped(&lengths, factor, path.device()).unwrap()), ..batch }
        }
    };
    let batches: Vec<Batch> = order.chunks(micro).map(batch).collect();
    let tokens = batches.iter().map(Batch::target_count).sum();
    let (loss, gradients) = loss_and_gradients(path, &batches, tokens, (&Unwatched, false)).unwrap();
    (loss, gradients.into_iter().flatten().collect())
}

fn apart(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}

#[test]
fn a_packed_batch_has_the_loss_and_the_gradients_of_a_padded_one() {
    for (name, model) in networks() {
        let path = path(&model, Precision::F32);
        // All tokens are predicted, or none of the prefix that chose the path.
        for first_target in [1, 7] {
            let limits = BatchLimits { first_target, ..BatchLimits::of(&model) };
            let (loss, gradients) = learnt(&path, &limits, 7, None);
            assert!(loss > 1.0 && gradients.iter().all(|gradient| gradient.abs().max().double_value(&[]) > 0.0));
            for (micro, factor) in [(1, 1), (3, 1), (7, 1), (7, 2)] {
                let (found, others) = learnt(&path, &limits, micro, Some(factor));
                assert!((found - loss).abs() < 1e-5, "{name}: {found} {loss}");
                for (gradient, other) in gradients.iter().zip(&others) {
                    assert!(apart(gradient, other) < 1e-5, "{name}, {micro}: {}", apart(gradient, other));
                }
            }
        }
    }
}

#[test]
fn in_bfloat16_a_packed_batch_is_close_to_a_padded_one() {
    let norm = |all: &[Tensor]| all.iter().map(|x| x.square().sum(Kind::Double).double_value(&[])).sum::<f64>().sqrt();
    for (name, model) in networks() {
        let path = path(&model, Precision::Bf16);
        let limits = BatchLimits::of(&model);
        let [(loss, gradients), (found, others)] = [None, Some(1)].map(|packed| learnt(&path, &limits, 7, packed));
        let differences: Vec<Tensor> = gradients.iter().zip(&others).map(|(a, b)| a - b).collect();
        let share = norm(&differences) / norm(&gradients);
        assert!((found - loss).abs() < 1e-2 && share < 0.02, "{name}: {found} {loss} {share}");
    }
}

#[test]
fn a_document_never_sees_another_in_its_row() {
    for (name, model) in networks() {
        let path = small_path(&ModelConfig { tied_head: false, ..model.clone() }, &small_levels());
        let losses = |set: &[Vec<u32>]| -> Vec<f32> {
            let _no_gradient = tch::no_grad_guard();
            let limits = BatchLimits::of(&model);
            let batch = Batch::for_step(set, &[0, 1, 2, 3, 4, 5, 6], &limits, &path).unwrap();
            let (packed, products) = (batch.packed.as_ref().unwrap(), path.exact());
            let hidden = path.packed_trunk(&batch.inputs, packed, &products, &Unwatched).unwrap();
            let hidden = batch.scored_rows(&hidden).unwrap();
            to_values(&row_losses(&products, path.head(), &hidden, &batch.targets).unwrap()).unwrap()
        };
        let before = losses(&set());
        let mut first = 0;
        for (changed, targets) in [24, 24, 16, 8, 8, 1].into_iter().enumerate() {
            let mut set = set();
            set[changed].iter_mut().for_each(|token| *token = (*token + 123) % 300);
            let after = losses(&set);
            for (place, (before, after)) in before.iter().zip(&after).enumerate() {
                let own = (first..first + targets).contains(&place);
                assert_eq!(own, before != after, "{name}: document {changed}, target {place}");
            }
            first += targets;
        }
    }
}

#[test]
fn documents_of_web_text_leave_less_than_three_in_a_hundred_tokens_to_padding() {
    for (context, sequences) in [(512, 16), (512, 64), (1024, 16), (1024, 64)] {
        let model = ModelConfig { context, ..small_model() };
        let (path, limits) = (path(&model, Precision::F32), BatchLimits::of(&model));
        let set = web_like_set(640, context);
        let padding = |batch: &dyn Fn(&[usize]) -> Batch| {
            let (mut used, mut all) = (0, 0);
            for chosen in (0..set.len()).collect::<Vec<_>>().chunks_exact(sequences) {
                let batch = batch(chosen);
                used += chosen.iter().map(|index| set[*index].len() - 1).sum::<usize>();
                all += batch.inputs.numel();
            }
            1.0 - used as f64 / all as f64
        };
        let packed = padding(&|chosen| Batch::for_step(&set[..], chosen, &limits, &path).unwrap());
        let padded = padding(&|chosen| Batch::new(&set[..], chosen, &limits, Device::Cpu).unwrap());
        assert!(packed < 0.01 && padded > 0.5, "context {context}, {sequences} sequences: {packed} {padded}");
    }
}

#[test]
fn what_pools_routes_or_reads_images_is_not_packed() {
    let mut layers = small_levels();
    (layers[0].parts[1], layers[1].parts[0]) = ("layer.0".to_owned(), "layer.1".to_owned());
    let directional = ModelConfig { directional: Some(DirectionalConfig::of(2)), ..small_model() };
    let images = Some(ImagesConfig { patch: 2 });
    let images = ModelConfig { images, context: 48, positions: Positions::Learned, ..small_model() };
    let image: Vec<u32> = (0..49).collect();
    for (model, levels) in [(directional, layers), (dna_model(), dna_levels()), (images, small_levels())] {
        let path = small_path(&model, &levels);
        let set = [image[..if model.reads_images() { 49 } else { 10 }].to_vec()];
        assert!(Batch::for_step(&set[..], &[0], &BatchLimits::of(&model), &path).unwrap().packed.is_none());
    }
}

/// The share of what is computed that is no token, in micro-batches of a step of documents as web text has them.
fn padding(documents: &[Vec<u32>], step: usize, micro: usize) -> f64 {
    let mut used = [0; 2];
    for step in documents.chunks(step) {
        let mut lengths: Vec<usize> = step.iter().map(|tokens| tokens.len() - 1).collect();
        lengths.sort_unstable_by_key(|length| std::cmp::Reverse(*length));
        for lengths in lengths.chunks(micro) {
            used[0] += lengths.iter().sum::<usize>();
            used[1] += Packed::of(lengths, Device::Cpu).unwrap().tokens();
        }
    }
    1.0 - used[0] as f64 / used[1] as f64
}

#[test]
fn of_web_like_text_less_than_three_in_a_hundred_tokens_are_padding() {
    let documents = web_like_set(1_000, 512);
    for micro in [1, 2, 4, 8, 16] {
        let share = padding(&documents, 16, micro);
        assert!(share < 0.03, "micro-batch {micro}: {share}");
    }
}
