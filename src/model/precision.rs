//! The precision in which a device multiplies matrices, and how fast it does.

use std::sync::OnceLock;
use std::time::Instant;

use tch::{Cuda, Device, Kind, TchError, Tensor};

use crate::config::{Precision, PrecisionChoice};

/// Rounds of products, the best of which counts.
const ROUNDS: usize = 5;

/// A card that was made for bfloat16 is several times as fast in it; one that was not is slower.
const LEAST_GAIN: f64 = 2.0;

/// The precision that a machine's profile means on this device. `auto` is bfloat16 on a CUDA device that multiplies matrices
/// at least twice as fast in it as in f32, which is measured once, and f32 elsewhere.
pub fn precision_on(device: Device, choice: PrecisionChoice) -> Result<Precision, TchError> {
    static FOUND: OnceLock<Precision> = OnceLock::new();
    match choice {
        PrecisionChoice::F32 => return Ok(Precision::F32),
        PrecisionChoice::Bf16 => return Ok(Precision::Bf16),
        PrecisionChoice::Auto if !device.is_cuda() => return Ok(Precision::F32),
        PrecisionChoice::Auto => {}
    }
    if let Some(found) = FOUND.get() {
        return Ok(*found);
    }
    let [wide, narrow] = [Precision::F32, Precision::Bf16].map(|precision| flops_per_s(precision, device, 2048, 5));
    let found = if narrow? >= LEAST_GAIN * wide? { Precision::Bf16 } else { Precision::F32 };
    tracing::info!(precision = ?found, "the precision of inner steps on this card");
    Ok(*FOUND.get_or_init(|| found))
}

/// Floating-point operations per second of products of square matrices of random values: 8192 wide on CUDA, 1024 on the CPU.
pub fn matrix_flops_per_s(precision: Precision, device: Device) -> Result<f64, TchError> {
    let (side, products) = if device.is_cuda() { (8192, 10) } else { (1024, 2) };
    flops_per_s(precision, device, side, products)
}

#[expect(clippy::disallowed_methods, reason = "an edge: how long products take")]
fn flops_per_s(precision: Precision, device: Device, side: i64, products: u32) -> Result<f64, TchError> {
    let kind = if precision == Precision::Bf16 { Kind::BFloat16 } else { Kind::Float };
    let matrix = || Tensor::f_randn([side, side], (Kind::Float, device))?.f_to_kind(kind);
    let (left, right) = (matrix()?, matrix()?);
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        synchronize(device);
        let began = Instant::now();
        for _ in 0..products {
            let _ = left.f_matmul(&right)?;
        }
        synchronize(device);
        best = best.min(began.elapsed().as_secs_f64());
    }
    Ok(2.0 * (side as f64).powi(3) * f64::from(products) / best)
}

/// Waits until the device has done what it was given.
pub fn synchronize(device: Device) {
    if let Device::Cuda(index) = device {
        Cuda::synchronize(index as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_precision_is_kept_and_a_cpu_computes_in_f32() {
        for (choice, expected) in [
            (PrecisionChoice::Auto, Precision::F32),
            (PrecisionChoice::F32, Precision::F32),
            (PrecisionChoice::Bf16, Precision::Bf16),
        ] {
            assert_eq!(precision_on(Device::Cpu, choice).unwrap(), expected);
        }
    }
}
