//! Cross-entropy over the vocabulary, a few hundred rows at a time.
//!
//! The head's logits are by far the largest tensor of a small model. Computed at once, the logits, log-probabilities
//! and gradients each go through memory several times. Here the head's forward and backward are computed for a chunk of
//! rows that fits the cache. The rest of the network then needs only the gradient of its hidden states.

use tch::{Kind, Reduction, TchError, Tensor};

use crate::model::layers::linear::Products;
use crate::training::batches::IGNORED;

/// Limit of logits per chunk, on the CPU and on CUDA.
const CHUNK_VALUES: [usize; 2] = [1 << 21, 1 << 28];

/// The loss of a batch, with gradients of the head and of the hidden states.
pub struct LossGradient {
    /// The sum of the rows' losses, a scalar on the device.
    pub nats: Tensor,
    /// Gradient of the hidden states `[rows, width]`, times the scale.
    pub hidden: Tensor,
    /// Gradient of the head `[vocabulary, width]`, times the scale.
    pub head: Tensor,
}

/// Forward and backward through the head. `hidden` is `[rows, width]`. Gradients are those of `scale` times the sum,
/// with rows weighted by `weights` `[rows]`, if given.
pub fn cross_entropy(
    products: &Products,
    head: &Tensor,
    hidden: &Tensor,
    (targets, weights): (&Tensor, Option<&Tensor>),
    scale: f64,
) -> Result<LossGradient, TchError> {
    let hidden = hidden.f_detach()?;
    let mut nats = Tensor::f_zeros([0i64; 0].as_slice(), (Kind::Double, hidden.device()))?;
    let mut head_gradient: Option<Tensor> = None;
    let mut hidden_gradients = Vec::new();
    for (begin, rows) in chunks(&hidden, head)? {
        let part = hidden.f_narrow(0, begin, rows)?.f_set_requires_grad(true)?;
        let logits = products.widen(products.linear(&part, head, None)?)?;
        let targets = targets.f_narrow(0, begin, rows)?;
        let loss = match weights {
            None => logits.f_cross_entropy_loss(&targets, None::<&Tensor>, Reduction::Sum, IGNORED, 0.0)?,
            Some(weights) => {
                let each = logits.f_cross_entropy_loss(&targets, None::<&Tensor>, Reduction::None, IGNORED, 0.0)?;
                each.f_mul(&weights.f_narrow(0, begin, rows)?)?.f_sum(None::<Kind>)?
            }
        };
        let scaled = loss.f_mul_scalar(scale)?;
        let mut gradients = Tensor::f_run_backward(&[scaled], &[&part, head], false, false)?.into_iter();
        nats = nats.f_add(&loss.f_detach()?)?;
        hidden_gradients.extend(gradients.next());
        if let Some(gradient) = gradients.next() {
            head_gradient = Some(match head_gradient {
                Some(mut sum) => sum.f_add_(&gradient)?,
                None => gradient,
            });
        }
    }
    let head = head_gradient.ok_or_else(|| TchError::Shape("a loss needs at least one row".to_owned()))?;
    Ok(LossGradient { nats, hidden: Tensor::f_cat(&hidden_gradients, 0)?, head })
}

/// The loss of each row, `[rows]`, without gradient.
pub fn row_losses(products: &Products, head: &Tensor, hidden: &Tensor, targets: &Tensor) -> Result<Tensor, TchError> {
    let _no_gradient = tch::no_grad_guard();
    let mut losses = Vec::new();
    for (begin, rows) in chunks(hidden, head)? {
        let logits = products.widen(products.linear(&hidden.f_narrow(0, begin, rows)?, head, None)?)?;
        let targets = targets.f_narrow(0, begin, rows)?;
        losses.push(logits.f_cross_entropy_loss(&targets, None::<&Tensor>, Reduction::None, IGNORED, 0.0)?);
    }
    if losses.is_empty() { Tensor::f_zeros([0], (Kind::Float, hidden.device())) } else { Tensor::f_cat(&losses, 0) }
}

/// The start of each chunk and its rows.
fn chunks(hidden: &Tensor, head: &Tensor) -> Result<Vec<(i64, i64)>, TchError> {
    let ((rows, _), (vocabulary, _)) = (hidden.size2()?, head.size2()?);
    let most = CHUNK_VALUES[usize::from(hidden.device().is_cuda())] as i64 / vocabulary.max(1);
    let step = (most / 16 * 16).max(16);
    Ok((0..rows).step_by(step as usize).map(|begin| (begin, step.min(rows - begin))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Precision;
    use crate::model::layers::linear::Kernel;
    use tch::Device;

    fn logits_loss(hidden: &Tensor, head: &Tensor, targets: &Tensor) -> Tensor {
        let logits = hidden.linear(head, None::<Tensor>);
        logits.cross_entropy_loss(targets, None::<Tensor>, Reduction::None, IGNORED, 0.0)
    }

    #[test]
    fn chunks_give_what_the_whole_gives() {
        let (rows, width, vocabulary) = (100, 8, 40_000);
        let wave = |shape: [i64; 2], pace: f64| {
            let count = shape[0] * shape[1];
            (Tensor::arange(count, (Kind::Float, Device::Cpu)) * pace).sin().view(shape)
        };
        let hidden = wave([rows, width], 0.7).set_requires_grad(true);
        let head = wave([vocabulary, width], 0.3).set_requires_grad(true);
        let mut targets: Vec<i64> = (0..rows).map(|row| row * 397 % vocabulary).collect();
        targets[5] = IGNORED;
        let targets = Tensor::from_slice(&targets);
        let products = Products { kernel: Kernel::OneDnn, precision: Precision::F32 };
        assert!(chunks(&hidden, &head).unwrap().len() > 1);
        let found = cross_entropy(&products, &head, &hidden, (&targets, None), 0.5).unwrap();
        let exact = [&hidden, &head].map(|x| x.detach().to_kind(Kind::Double).set_requires_grad(true));
        let logits = exact[0].linear(&exact[1], None::<Tensor>);
        let whole = logits.cross_entropy_loss(&targets, None::<Tensor>, Reduction::Sum, IGNORED, 0.0);
        let expected = Tensor::run_backward(&[&whole * 0.5], &exact, false, false);
        assert!((found.nats.double_value(&[]) / whole.double_value(&[]) - 1.0).abs() < 1e-6);
        for (found, expected) in [&found.hidden, &found.head].into_iter().zip(&expected) {
            assert!((found - expected).abs().max().double_value(&[]) < 2e-5);
        }
        let weights = Tensor::arange(rows, (Kind::Float, Device::Cpu)) / 50;
        let found = cross_entropy(&products, &head, &hidden, (&targets, Some(&weights)), 0.5).unwrap();
        let each = logits_loss(&exact[0], &exact[1], &targets);
        let sum = (&each * &weights).sum(Kind::Double);
        assert!((found.nats.double_value(&[]) / sum.double_value(&[]) - 1.0).abs() < 1e-5);
        let expected = Tensor::run_backward(&[&sum * 0.5], &exact, false, false);
        for (found, expected) in [&found.hidden, &found.head].into_iter().zip(&expected) {
            assert!((found - expected).abs().max().double_value(&[]) < 1e-4);
        }

        let each = row_losses(&products, &head, &hidden, &targets).unwrap();
        assert!((each.sum(Kind::Double).double_value(&[]) / whole.double_value(&[]) - 1.0).abs() < 1e-6);
        assert_eq!(each.double_value(&[5]), 0.0);
    }
}
