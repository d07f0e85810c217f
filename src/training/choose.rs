//! Preferences of a network among the first few tokens of its vocabulary, which stand for choices, at each target.

use tch::Kind;

use super::batches::{Batch, BatchLimits, Sequences};
use super::evaluate::EvaluateError;
use crate::model::PathModel;
use crate::model::weights::to_values;
use crate::training::smaller_batches::in_batches;

/// Sequences computed at once.
const BATCH_SEQUENCES: usize = 32;

/// For each sequence and each of its targets, the log-probabilities of the first `among` tokens of the vocabulary,
/// normalised over these, `[targets][among]`. Only the positions of targets matter.
pub fn preferences(
    model: &PathModel,
    set: &(impl Sequences + ?Sized),
    among: usize,
) -> Result<Vec<Vec<Vec<f32>>>, EvaluateError> {
    let _no_gradient = tch::no_grad_guard();
    let config = model.config();
    let limits = BatchLimits::of(config);
    let mut found = vec![Vec::new(); set.len()];
    let asked: Vec<usize> = (0..set.len()).filter(|index| !set.targets(*index, 1).is_empty()).collect();
    in_batches(
        &asked,
        |_| BATCH_SEQUENCES,
        |chosen| {
            let batch = Batch::new(set, chosen, &limits, model.device())?;
            let products = model.exact();
            let hidden = batch.scored_rows(&model.trunk(&batch.inputs, Some(&batch.lengths), &products)?)?;
            let among = among.min(config.vocabulary);
            let head = model.head().f_narrow(0, 0, among as i64)?;
            let values = to_values(&products.linear(&hidden, &head, None)?.f_log_softmax(-1, Kind::Float)?)?;
            let mut rows = values.chunks_exact(among.max(1)).map(<[f32]>::to_vec);
            for (sequence, count) in chosen.iter().zip(&batch.counts) {
                found[*sequence] = rows.by_ref().take(*count).collect();
            }
            Ok::<_, EvaluateError>(())
        },
    )?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use tch::Tensor;

    use super::super::samples::small_run;
    use super::*;
    use crate::config::Precision;
    use crate::model::initial_levels;
    use crate::seed::Seed;

    /// Sequences with targets at a few places.
    struct Here<'a>(&'a [Vec<u32>], Vec<Vec<(usize, u32)>>);

    impl Sequences for Here<'_> {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn sequence(&self, index: usize) -> &[u32] {
            &self.0[index]
        }

        fn targets(&self, index: usize, _first: usize) -> Vec<(usize, u32)> {
            self.1[index].clone()
        }
    }

    #[test]
    fn the_first_tokens_are_weighed_wherever_there_is_a_target() {
        let (run, set) = (small_run(), (0..5).map(|i| (0..6).map(|t| i * 7 + t).collect()).collect::<Vec<Vec<u32>>>());
        let mut model = PathModel::new(&run.model, &run.levels, tch::Device::Cpu, Precision::F32).unwrap();
        for (level, values) in initial_levels(&run.model, &run.levels, Seed::root(3)).iter().enumerate() {
            model.set_level(level, values).unwrap();
        }
        let places = vec![vec![(0, 0), (2, 0)], vec![], vec![(1, 0)], vec![(0, 0)], vec![(3, 0)]];
        let found = preferences(&model, &Here(&set, places.clone()), 3).unwrap();
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 1, 1, 1]);
        for ((tokens, places), found) in set.iter().zip(&places).zip(&found) {
            for ((position, _), found) in places.iter().zip(found) {
                let read: Vec<i64> = tokens[..=*position].iter().map(|token| i64::from(*token)).collect();
                let logits = model.logits(&Tensor::from_slice(&read).unsqueeze(0)).unwrap();
                let expected = logits.get(0).get(*position as i64).narrow(0, 0, 3).log_softmax(-1, Kind::Float);
                assert!(Tensor::from_slice(found).allclose(&expected, 1e-5, 1e-5, false));
            }
        }
    }
}
