//! Whether a card computes with the kernels what the CPU computes with the same source.

use tch::{Device, Kind, TchError, Tensor};

use crate::config::Activation;
use crate::model::kernels::{NarrowNorm, Rotation, gate, softmax_gradient};

/// The norm of a difference that is no rounding, relative to that of what the CPU found. A card's exponentials and roots differ
/// in their last bits, so that a few values are rounded to the other side.
const LIMIT: f64 = 5e-3;

/// The results of all kernels and their gradients for some values, on the CPU.
pub(super) fn outcomes(device: Device) -> Result<Vec<Tensor>, TchError> {
    // Rows for several turns of each block of a large card, and as many columns as there may be.
    let norms = [([1400, 160], true), ([3, 4096], false)].map(|(shape, centred)| of_norm(device, shape, centred));
    let mut all: Vec<Tensor> = norms.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();

    let rotation = Rotation { heads: 6, kv_heads: 2, head_width: 64, rotated: 32 };
    let (angles, stacked) =
        (Tensor::f_complex(&wave(&[9, 1, 16], 0.5)?, &wave(&[9, 1, 16], 0.6)?)?, narrow_wave(&[2, 9, 640], 0.9)?);
    let (angles, stacked) = (angles.f_to_device(device)?, leaf(&stacked, device)?);
    all.extend(with_gradients(rotation.forward(&stacked, &angles)?, &[&stacked])?);

    let hidden = leaf(&narrow_wave(&[6, 4112], 0.8)?, device)?;
    for activation in [Activation::Silu, Activation::Gelu, Activation::GeluTanh] {
        all.extend(with_gradients([gate(&hidden, activation)?], &[&hidden])?);
    }

    let targets = Tensor::f_from_slice(&[0i64, 4000, 7, -100, 94, 4094])?.f_to_device(device)?;
    for columns in [4112, 4095, 95] {
        let logits = narrow_wave(&[6, columns], 0.8)?.f_mul_scalar(4.0)?;
        let mut logits = logits.f_to_device(device)?;
        all.push(softmax_gradient(&mut logits, &targets.f_clamp_max(columns - 1)?)?);
        all.push(logits);
    }
    all.iter().map(|one| one.f_detach()?.f_to_device(Device::Cpu)?.f_to_kind(Kind::Double)).collect()
}

fn of_norm(device: Device, shape: [i64; 2], centred: bool) -> Result<Vec<Tensor>, TchError> {
    let columns = &shape[1..];
    let stream = leaf(&wave(&shape, 0.3)?, device)?;
    let added = leaf(&narrow_wave(&shape, 0.7)?, device)?;
    let (weight, bias) = (leaf(&wave(columns, 0.2)?, device)?, leaf(&wave(columns, 0.1)?, device)?);
    let norm = NarrowNorm { weight: &weight, bias: centred.then_some(&bias), epsilon: 1e-5, centred };
    let found = norm.forward(&stream, Some(&added))?;
    let leaves = [&stream, &added, &weight, &bias];
    with_gradients(found, if centred { &leaves } else { &leaves[..3] })
}

fn wave(shape: &[i64], pace: f64) -> Result<Tensor, TchError> {
    let values = Tensor::f_arange(shape.iter().product::<i64>(), (Kind::Double, Device::Cpu))?.f_mul_scalar(pace)?;
    values.f_sin()?.f_view(shape)?.f_to_kind(Kind::Float)
}

fn narrow_wave(shape: &[i64], pace: f64) -> Result<Tensor, TchError> {
    wave(shape, pace)?.f_to_kind(Kind::BFloat16)
}

fn leaf(values: &Tensor, device: Device) -> Result<Tensor, TchError> {
    values.f_to_device(device)?.f_set_requires_grad(true)
}

/// The results, and the gradients of a sum of their values with different weights.
fn with_gradients<const COUNT: usize>(found: [Tensor; COUNT], leaves: &[&Tensor]) -> Result<Vec<Tensor>, TchError> {
    let weighted = |one: &Tensor| {
        let weights = wave(&one.size(), 0.4)?.f_to_device(one.device())?;
        one.f_to_kind(Kind::Float)?.f_mul(&weights)?.f_sum(Kind::Float)
    };
    let sums = found.iter().map(weighted).collect::<Result<Vec<_>, _>>()?;
    let gradients = Tensor::f_run_backward(&sums, leaves, false, false)?;
    Ok(found.into_iter().chain(gradients).collect())
}

/// The greatest difference of an outcome, relative to what was expected; `None` if one differs by more than rounding.
pub(super) fn agrees(expected: &[Tensor], found: &[Tensor]) -> Result<Option<f64>, TchError> {
    let mut greatest = 0f64;
    for (expected, found) in expected.iter().zip(found) {
        let apart = found.f_sub(expected)?.f_norm()?.f_double_value(&[])?;
        let difference = apart / expected.f_norm()?.f_double_value(&[])?.max(f64::MIN_POSITIVE);
        // Not a number is no agreement.
        if difference.is_nan() || difference > LIMIT {
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
        assert_eq!(expected.len(), (2 + 4) + (2 + 3) + (3 + 1) + 3 * 2 + 3 * 2);
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
