//! Muon: the momentum of a matrix is orthogonalised before it is subtracted (Jordan et al., 2024), as `torch.optim.Muon`
//! with `adjust_lr_fn = "match_rms_adamw"` does it.
//!
//! The change is scaled by `0.2·√max(rows, columns)` (Liu et al., 2025, section 2.2). Its root mean square is then about
//! that of AdamW's, so both take the same learning rate and weight decay.

use tch::{Kind, TchError, Tensor};

/// Decay of the momentum.
const MOMENTUM: f64 = 0.95;

/// Steps of Newton and Schulz. With these coefficients five bring singular values to between 0.7 and 1.2.
const ROUNDS: usize = 5;

/// The quintic `a·X + b·XXᵀX + c·(XXᵀ)²X`, whose slope at zero is as large as convergence allows.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// The least norm that a matrix is divided by.
const LEAST_NORM: f64 = 1e-7;

/// The root mean square of AdamW's changes.
const RMS_OF_ADAMW: f64 = 0.2;

/// What is the same for all tensors of a step.
#[derive(Clone, Copy)]
pub(super) struct MuonStep {
    /// Factor of gradients.
    pub clip: f64,
    pub learning_rate: f64,
    /// The share of parameters that decay leaves.
    pub keep: f64,
}

impl MuonStep {
    /// Updates `parameters` and `momentum`, both `[rows, columns]` and views into a level's buffer. `matrices` has the
    /// rows of each matrix that is stacked in it.
    pub fn update(
        &self,
        parameters: &mut Tensor,
        momentum: &mut Tensor,
        gradient: &Tensor,
        matrices: &[usize],
    ) -> Result<(), TchError> {
        let gradient = gradient.f_reshape(parameters.size().as_slice())?.f_mul_scalar(self.clip)?;
        let _ = momentum.f_lerp_(&gradient, 1.0 - MOMENTUM)?;
        let ahead = gradient.f_lerp(momentum, MOMENTUM)?;
        let _ = parameters.f_mul_scalar_(self.keep)?;
        let mut from = 0;
        for rows in matrices.iter().map(|rows| *rows as i64) {
            let part = ahead.f_narrow(0, from, rows)?;
            let longer = rows.max(part.size()[1]) as f64;
            let change = orthogonal(&part)?.f_mul_scalar(self.learning_rate * RMS_OF_ADAMW * longer.sqrt())?;
            let _ = parameters.f_narrow(0, from, rows)?.f_sub_(&change)?;
            from += rows;
        }
        Ok(())
    }
}

/// About `U·Vᵀ` of a matrix `U·S·Vᵀ`, in f32. On CUDA it is computed in bfloat16.
fn orthogonal(matrix: &Tensor) -> Result<Tensor, TchError> {
    let kind = if matrix.device().is_cuda() { Kind::BFloat16 } else { Kind::Float };
    let [rows, columns] = [0, 1].map(|side| matrix.size()[side]);
    let wide = if rows > columns { matrix.f_transpose(0, 1)? } else { matrix.shallow_clone() };
    let wide = wide.f_to_kind(kind)?;
    let mut x = wide.f_div(&wide.f_norm()?.f_clamp_min(LEAST_NORM)?)?;
    let [a, b, c] = COEFFICIENTS;
    for _ in 0..ROUNDS {
        let gram = x.f_matmul(&x.f_transpose(0, 1)?)?;
        let factor = gram.f_mul_scalar(b)?.f_add_(&gram.f_matmul(&gram)?.f_mul_scalar_(c)?)?;
        x = x.f_mul_scalar(a)?.f_add_(&factor.f_matmul(&x)?)?;
    }
    let x = if rows > columns { x.f_transpose(0, 1)? } else { x };
    x.f_to_kind(Kind::Float)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    fn wave(rows: i64, columns: i64) -> Tensor {
        let angles = Tensor::arange(rows * columns, (Kind::Float, Device::Cpu)).square() * 0.37;
        angles.sin().view([rows, columns])
    }

    #[test]
    fn singular_values_come_near_to_one_whatever_the_size() {
        for (rows, columns) in [(24, 8), (8, 24), (16, 16)] {
            for scale in [1e-4, 1.0, 1e4] {
                let found = orthogonal(&(wave(rows, columns) * scale)).unwrap();
                let wide = if rows > columns { found.tr() } else { found };
                let squares = Vec::<f32>::try_from(wide.matmul(&wide.tr()).linalg_eigvalsh("L")).unwrap();
                assert!(squares.iter().all(|square| (0.25..1.7).contains(square)), "{rows} x {columns}: {squares:?}");
            }
        }
    }

    #[test]
    fn stacked_matrices_move_as_they_would_alone_and_nothing_moves_for_nothing() {
        let step = MuonStep { clip: 0.5, learning_rate: 0.1, keep: 0.99 };
        let start = || (wave(12, 6) * 0.1, Tensor::zeros([12, 6], (Kind::Float, Device::Cpu)));
        let gradient = wave(12, 6).roll([1], [0]);
        let (mut together, mut momentum) = start();
        step.update(&mut together, &mut momentum, &gradient, &[8, 4]).unwrap();
        for (from, rows) in [(0, 8), (8, 4)] {
            let (whole, still) = start();
            let (mut alone, mut own) = (whole.narrow(0, from, rows), still.narrow(0, from, rows));
            step.update(&mut alone, &mut own, &gradient.narrow(0, from, rows), &[rows as usize]).unwrap();
            assert_eq!(alone, together.narrow(0, from, rows));
        }
        let (mut parameters, mut momentum) = start();
        step.update(&mut parameters, &mut momentum, &gradient.zeros_like(), &[12]).unwrap();
        assert_eq!(parameters, start().0 * 0.99, "a module that no token chose");
    }
}
