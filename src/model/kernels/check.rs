//! Whether a card computes with the kernels what the CPU computes with the same source.

use tch::{Device, Kind, TchError, Tensor};

use crate::config::Activation;
use crate::model::kernels::{NarrowNorm, Rotation, gate, softmax_gradient};

/// The norm of a difference that is no rounding, relative to that of what the CPU found. A card's exponentials and roots differ
/// in their last bits, so that a few values are rounded to the other side.
const LIMIT: f64 = 5e-3;

/// The results of all kernels and their gradients for some values, on the CPU.
pub(super) fn outcomes(device: Device) -> Result<Vec<Tensor>, TchError> {
    let wave = |shape: &[i64], pace: f64| {
        let count: i64 = shape.iter().product();
        let values = Tensor::f_arange(count, (Kind::Double, Device::Cpu))?.f_mul_scalar(pace)?.f_sin()?;
        values.f_view(shape)?.f_to_kind(Kind::Float)?.f_to_device(device)
    };
    let leaf = |tensor: Tensor| tensor.f_set_requires_grad(true);
    let narrow = |tensor: Tensor| leaf(tensor.f_to_kind(Kind::BFloat16)?);
    // More rows than one block takes, and more columns than one warp.
    let (stream, added) = (leaf(wave(&[2, 9, 160], 0.3)?)?, narrow(wave(&[2, 9, 160], 0.7)?)?);
    let (weight, bias) = (leaf(wave(&[160], 0.2)?)?, leaf(wave(&[160], 0.1)?)?);
    let (stacked, hidden) = (narrow(wave(&[2, 9, 128], 0.9)?)?, narrow(wave(&[18, 96], 0.8)?)?);
    let angles = Tensor::f_complex(&wave(&[9, 1, 8], 0.5)?, &wave(&[9, 1, 8], 0.6)?)?;

    let of_norms = |centred: bool| {
        let bias = centred.then_some(&bias);
        NarrowNorm { weight: &weight, bias, epsilon: 1e-5, centred }.forward(&stream, Some(&added))
    };
    let rotation = Rotation { heads: 2, kv_heads: 1, head_width: 32, rotated: 16 };
    let mut all: Vec<Tensor> = of_norms(true)?.into_iter().chain(of_norms(false)?).collect();
    all.extend(rotation.forward(&stacked, &angles)?);
    for activation in [Activation::Silu, Activation::Gelu, Activation::GeluTanh] {
        all.push(gate(&hidden, activation)?);
    }
    let mut sum = Tensor::f_zeros([0i64; 0].as_slice(), (Kind::Float, device))?;
    for one in &all {
        sum = sum.f_add(&one.f_to_kind(Kind::Float)?.f_mul(&wave(&one.size(), 0.4)?)?.f_sum(Kind::Float)?)?;
    }
    all.extend(Tensor::f_run_backward(&[sum], &[&stream, &added, &weight, &bias, &stacked, &hidden], false, false)?);
    let targets = Tensor::f_arange(18, (Kind::Int64, device))?.f_mul_scalar(3)?;
    for columns in [96, 95] {
        let mut logits = hidden.f_detach()?.f_narrow(1, 0, columns)?.f_mul_scalar(4.0)?.f_contiguous()?;
        all.push(softmax_gradient(&mut logits, &targets)?);
        all.push(logits);
    }
    all.iter().map(|one| one.f_detach()?.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double)).collect()
}

/// The greatest difference of an outcome, relative to what was expected; `None` if one differs by more than rounding.
pub(super) fn agrees(expected: &[Tensor], found: &[Tensor]) -> Result<Option<f64>, TchError> {
    let mut greatest = 0f64;
    for (expected, found) in expected.iter().zip(found) {
        let apart = found.f_sub(expected)?.f_norm()?.f_double_value(&[])?;
        let difference = apart / expected.f_norm()?.f_double_value(&[])?.max(f64::MIN_POSITIVE);
        // Not a number is no agreement.
        if !(difference <= LIMIT) {
            return Ok(None);
        }
        greatest = greatest.max(difference);
    }
    Ok((expected.len() == found.len()).then_some(greatest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_outcomes_agree_and_one_that_is_off_or_not_a_number_does_not() {
        let [expected, found] = [(); 2].map(|()| outcomes(Device::Cpu).unwrap());
        assert_eq!(agrees(&expected, &found).unwrap(), Some(0.0));
        assert_eq!(expected.len(), 10 + 6 + 4);
        for (number, outcome) in expected.iter().enumerate() {
            assert!(outcome.norm().double_value(&[]) > 0.0, "{number}");
            for wrong in [1.01, f64::NAN] {
                let mut found: Vec<Tensor> = expected.iter().map(Tensor::copy).collect();
                found[number] *= wrong;
                assert_eq!(agrees(&expected, &found).unwrap(), None, "{number}");
            }
        }
        assert_eq!(agrees(&expected, &expected[1..]).unwrap(), None);
    }
}
