//! Only what is learnt is a target: in training, in its gradients, and in scores.

use tch::Device;

use crate::config::{MachineConfig, RunConfig};
use crate::model::initial_levels;
use crate::seed::Seed;
use crate::text::tokenizer::masked::MaskedIds;
use crate::text::{TokenSet, Tokenized};
use crate::training::batches::{BatchOrder, Sequences};
use crate::training::samples::small_run;
use crate::training::{InnerTrainer, evaluate_each, target_losses};

/// Runs of tokens that are not learnt and that are, by turns.
const RUNS: [&[u32]; 4] = [&[3, 4, 2, 5, 1], &[0, 2, 9, 7], &[6, 3, 4], &[2, 2, 2, 2, 2, 2]];

/// Tokens of each document, of which those of [`RUNS`] are learnt.
fn documents() -> Vec<MaskedIds> {
    let ids = |number: usize, length: u32| (0..length).map(|at| (at * 37 + number as u32 * 91) % 300).collect();
    let of = |(number, runs): (usize, &&[u32])| MaskedIds { ids: ids(number, runs.iter().sum()), runs: runs.to_vec() };
    RUNS.iter().enumerate().map(of).collect()
}

fn masked() -> TokenSet {
    Tokenized::from(&documents()[..]).cut_for_training(48)
}

/// Whether a token is learnt, counted by hand.
fn is_learnt(sequence: usize, position: usize) -> bool {
    let mut end = 0;
    RUNS[sequence].iter().enumerate().any(|(number, run)| {
        let begin = end;
        end += *run as usize;
        number % 2 == 1 && (begin..end).contains(&position)
    })
}

/// The same tokens with targets that are named.
struct Named(Vec<Vec<u32>>);

impl Sequences for Named {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn sequence(&self, index: usize) -> &[u32] {
        &self.0[index]
    }

    fn targets(&self, index: usize, first: usize) -> Vec<(usize, u32)> {
        let learnt = (first..self.0[index].len()).filter(|at| is_learnt(index, *at));
        learnt.map(|at| (at - 1, self.0[index][at])).collect()
    }
}

/// One that is not trained, and sees no prefix.
fn trainer() -> InnerTrainer {
    let mut run: RunConfig = small_run();
    run.training.predict_prefix = true;
    let machine = MachineConfig { threads: 1, ..MachineConfig::default() };
    let mut trainer = InnerTrainer::new(&run, &machine, Device::Cpu).unwrap();
    trainer.load(&initial_levels(&run.model, &run.levels, Seed::root(1))).unwrap();
    trainer
}

#[test]
fn the_loss_of_a_step_is_the_mean_over_what_is_learnt() {
    let (mut trainer, set) = (trainer(), masked());
    assert_eq!(set.len(), 4);
    // What every token costs, whoever says it.
    let whole: Vec<Vec<u32>> = documents().into_iter().map(|document| document.ids).collect();
    let all = target_losses(trainer.model(), &whole[..], 1, &mut || {}).unwrap();
    let losses = all.iter().enumerate().flat_map(|(sequence, losses)| {
        losses.iter().enumerate().filter(move |(at, _)| is_learnt(sequence, at + 1)).map(|(_, loss)| f64::from(*loss))
    });
    let learnt: Vec<f64> = losses.collect();
    // The first token of the second document is learnt, but cannot be predicted.
    assert_eq!(learnt.len(), (4 + 5) + (1 + 7) + 3 + (2 + 2 + 2));
    let mean = learnt.iter().sum::<f64>() / learnt.len() as f64;
    let order = BatchOrder { seed: Seed::root(4), sequences: 4 };
    let report = trainer.step(&set, &order, 0).unwrap();
    assert!((report.loss - mean).abs() < 1e-5, "{} {mean}", report.loss);
}

#[test]
fn gradients_are_those_of_the_learnt_targets_alone() {
    let named = Named(documents().into_iter().map(|document| document.ids).collect());
    let order = BatchOrder { seed: Seed::root(4), sequences: 4 };
    let (found, targets) = trainer().gradient(&masked(), &order, (0, 0)).unwrap();
    let (expected, counted) = trainer().gradient(&named, &order, (0, 0)).unwrap();
    assert!(found == expected && targets == counted);
    let whole = Tokenized::from(&named.0[..]).cut_for_training(48);
    let (all, more) = trainer().gradient(&whole, &order, (0, 0)).unwrap();
    assert!(all != found && more > targets);
}

#[test]
fn a_score_counts_the_tokens_and_bytes_of_what_is_learnt() {
    let (trainer, set) = (trainer(), masked());
    let bytes: Vec<u32> = (0..300).map(|token| token % 7).collect();
    let found = evaluate_each(trainer.model(), &set, 4, &bytes, &mut || {}).unwrap();
    for (sequence, score) in found.iter().enumerate() {
        let tokens = set.sequence(sequence);
        let learnt: Vec<u32> = (4..tokens.len()).filter(|at| is_learnt(sequence, *at)).map(|at| tokens[at]).collect();
        assert_eq!(score.tokens as usize, learnt.len());
        assert_eq!(score.bytes, learnt.iter().map(|token| u64::from(token % 7)).sum::<u64>());
    }
}
