//! Accuracy of a network that classifies images.

use super::batches::{Batch, BatchLimits, Sequences};
use super::evaluate::{EvaluateError, rows_at_once};
use crate::model::PathModel;
use crate::training::smaller_batches::in_batches;

/// The number of images whose likeliest class is right.
pub fn right_classes(model: &PathModel, set: &(impl Sequences + ?Sized)) -> Result<u64, EvaluateError> {
    let _no_gradient = tch::no_grad_guard();
    let (config, products) = (model.config(), model.exact());
    let limits = BatchLimits::of(config);
    let rows = rows_at_once(config, config.context);
    let all: Vec<usize> = (0..set.len()).collect();
    let mut right = 0;
    in_batches(
        &all,
        |_| rows,
        |chosen| {
            let batch = Batch::new(set, chosen, &limits, model.device())?;
            let hidden = batch.scored_rows(&model.trunk(&batch.inputs, None, &products)?)?;
            let likeliest = products.linear(&hidden, model.head(), None)?.f_argmax(-1, false)?;
            // Padding has a target that is not a class.
            right += likeliest.f_eq_tensor(&batch.targets)?.f_sum(tch::Kind::Int64)?.f_int64_value(&[])? as u64;
            Ok::<_, EvaluateError>(())
        },
    )?;
    Ok(right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ImagesConfig, ModelConfig, Positions};
    use crate::model::samples::{small_levels, small_model, small_path};
    use tch::Tensor;

    #[test]
    fn an_image_counts_if_no_other_class_is_likelier() {
        let images = Some(ImagesConfig { patch: 2 });
        let model = ModelConfig { images, vocabulary: 3, context: 48, positions: Positions::Learned, ..small_model() };
        let path = small_path(&model, &small_levels());
        let bytes = |number: u32| (0..48u32).map(move |place| (place * number * 37 + number) % 256);
        let likeliest = |number: u32| -> u32 {
            let row: Vec<i64> = bytes(number).map(i64::from).collect();
            let logits = path.logits(&Tensor::from_slice(&row).view([1, 48])).unwrap();
            logits.argmax(-1, false).int64_value(&[0, 0]) as u32
        };
        let of_class = |number: u32, class: u32| bytes(number).chain([class]).collect::<Vec<u32>>();
        let right: Vec<Vec<u32>> = (0..20).map(|number| of_class(number, likeliest(number))).collect();
        assert_eq!(right_classes(&path, &right[..]).unwrap(), 20);
        let some: Vec<Vec<u32>> =
            (0..20).map(|number| of_class(number, (likeliest(number) + number % 3) % 3)).collect();
        assert_eq!(right_classes(&path, &some[..]).unwrap(), 7);
        assert!(right_classes(&path, &[vec![1; 48]][..]).is_err());
    }
}
