//! Cross-entropy over the vocabulary, a few hundred rows at a time.
//!
//! The head's logits are by far the largest tensor of a small model. Computed at once, the logits, log-probabilities
//! and gradients each go through memory several times. Here the head's forward and backward are computed for a chunk of
//! rows that fits the cache. The rest of the network then needs only the gradient of its hidden states.
//!
//! In bfloat16 the probabilities become the gradient where they are. Autograd would widen the logits, and keep five more
//! tensors of their size. On an H100, at 173 million parameters and 16,384 tokens, that was 3 GB of 14.

use tch::{Kind, Reduction, TchError, Tensor};

use crate::config::Precision;
use crate::model::kernels::softmax_gradient;
use crate::model::kind_of_sums;
use crate::model::layers::linear::Products;
use crate::training::batches::IGNORED;
use crate::training::memory_plan::logit_chunks::chunk_rows;

/// The loss of a batch, with gradients of the head and of the hidden states.
pub struct LossGradient {
    /// The sum of the rows' losses, a scalar on the device.
    pub nats: Tensor,
    /// Gradient of the hidden states `[rows, width]`, times the scale.
    pub hidden: Tensor,
    /// Gradient of the head `[vocabulary, width]`, times the scale; `None` if the head is not trained.
    pub head: Option<Tensor>,
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
    let mut nats = Tensor::f_zeros([0i64; 0].as_slice(), (kind_of_sums(hidden.device()), hidden.device()))?;
    let mut head_gradient: Option<Tensor> = None;
    let mut hidden_gradients = Vec::new();
    let narrow_head = match products.precision {
        Precision::F32 => None,
        Precision::Bf16 => Some(head.f_detach()?.f_to_kind(Kind::BFloat16)?),
    };
    for (begin, rows) in chunks(&hidden, head)? {
        let part = |of: &Tensor| of.f_narrow(0, begin, rows);
        let (own, targets, weights) = (part(&hidden)?, part(targets)?, weights.map(part).transpose()?);
        let found = match &narrow_head {
            None => by_autograd(products, head, &own, (&targets, weights.as_ref()), scale)?,
            Some(narrow) => {
                let by_logits = if products.fuses() { by_kernel } else { by_operations };
                let head = (narrow, head.requires_grad());
                in_place(head, &own, (&targets, weights.as_ref()), scale, by_logits)?
            }
        };
        nats = nats.f_add(&found.nats)?;
        hidden_gradients.push(found.hidden);
        head_gradient = match (head_gradient, found.head) {
            (Some(mut sum), Some(found)) => Some(sum.f_add_(&found)?),
            (_, found) => found,
        };
    }
    if hidden_gradients.is_empty() {
        return Err(TchError::Shape("a loss needs at least one row".to_owned()));
    }
    Ok(LossGradient { nats, hidden: Tensor::f_cat(&hidden_gradients, 0)?, head: head_gradient })
}

/// The loss of a chunk.
fn by_autograd(
    products: &Products,
    head: &Tensor,
    hidden: &Tensor,
    (targets, weights): (&Tensor, Option<&Tensor>),
    scale: f64,
) -> Result<LossGradient, TchError> {
    let hidden = hidden.f_detach()?.f_set_requires_grad(true)?;
    let logits = products.linear(&hidden, head, None)?;
    let loss = match weights {
        None => logits.f_cross_entropy_loss(targets, None::<&Tensor>, Reduction::Sum, IGNORED, 0.0)?,
        Some(weights) => {
            let each = logits.f_cross_entropy_loss(targets, None::<&Tensor>, Reduction::None, IGNORED, 0.0)?;
            each.f_mul(weights)?.f_sum(None::<Kind>)?
        }
    };
    let leaves = if head.requires_grad() { vec![&hidden, head] } else { vec![&hidden] };
    let mut gradients = Tensor::f_run_backward(&[loss.f_mul_scalar(scale)?], &leaves, false, false)?.into_iter();
    let hidden = gradients.next().ok_or_else(|| TchError::Shape("a gradient of a loss".to_owned()))?;
    Ok(LossGradient { nats: loss.f_detach()?, hidden, head: gradients.next() })
}

/// Losses of rows in nats, `[rows]`, and the gradient by their logits, `[rows, vocabulary]`, bfloat16.
type ByLogits = fn(logits: Tensor, targets: &Tensor) -> Result<(Tensor, Tensor), TchError>;

/// The loss of a chunk in bfloat16; `head` is bfloat16, and may be trained or not. The gradient by the logits is the
/// probabilities, and at the target less the sum of the others: one less the target's own probability would be lost to rounding
/// where that is near one. The row's weight acts on the other side of the products.
fn in_place(
    (head, is_trained): (&Tensor, bool),
    hidden: &Tensor,
    (targets, weights): (&Tensor, Option<&Tensor>),
    scale: f64,
    by_logits: ByLogits,
) -> Result<LossGradient, TchError> {
    let _no_gradient = tch::no_grad_guard();
    let narrow = hidden.f_to_kind(Kind::BFloat16)?;
    let (losses, gradient) = by_logits(narrow.f_linear(head, None::<&Tensor>)?, targets)?;
    let counted = targets.f_ne(IGNORED)?.f_to_kind(Kind::Float)?;
    let factors = weights.map_or_else(|| Ok(counted.shallow_clone()), |weights| counted.f_mul(weights))?;
    let factors_of_rows = factors.f_mul_scalar(scale)?.f_unsqueeze(1)?;
    let by_hidden = gradient.f_matmul(head)?.f_to_kind(Kind::Float)?.f_mul_(&factors_of_rows)?;
    let by_head = || {
        let weighted = narrow.f_mul(&factors.f_to_kind(Kind::BFloat16)?.f_unsqueeze(1)?)?;
        gradient.f_transpose(0, 1)?.f_matmul(&weighted)?.f_to_kind(Kind::Float)?.f_mul_scalar_(scale)
    };
    let by_head = is_trained.then(by_head).transpose()?;
    Ok(LossGradient { nats: losses.f_mul(&factors)?.f_sum(None::<Kind>)?, hidden: by_hidden, head: by_head })
}

fn by_kernel(mut logits: Tensor, targets: &Tensor) -> Result<(Tensor, Tensor), TchError> {
    let losses = softmax_gradient(&mut logits, targets)?;
    Ok((losses, logits))
}

fn by_operations(logits: Tensor, targets: &Tensor) -> Result<(Tensor, Tensor), TchError> {
    let places = targets.f_clamp_min(0)?.f_unsqueeze(1)?;
    let of =
        |values: &Tensor, places: &Tensor| values.f_gather(1, places, false)?.f_squeeze_dim(1)?.f_to_kind(Kind::Float);
    let likeliest = logits.f_argmax(1, true)?;
    let ahead = of(&logits, &likeliest)?.f_sub(&of(&logits, &places)?)?;
    let mut gradient = logits.f_softmax(-1, None::<Kind>)?;
    drop(logits);
    // The greatest probability is at least one part in the vocabulary, so its logarithm is finite.
    let greatest = of(&gradient, &likeliest)?;
    let _ = gradient.f_scatter_value_(1, &places, 0.0)?;
    let others = gradient.f_sum_dim_intlist([1i64].as_slice(), true, Kind::Float)?;
    let is_sure = likeliest.f_eq_tensor(&places)?.f_squeeze_dim(1)?.f_logical_and(&greatest.f_gt(0.5)?)?;
    let sure = others.f_squeeze_dim(1)?.f_neg()?.f_log1p()?.f_neg()?;
    let losses = sure.f_where_self(&is_sure, &ahead.f_sub(&greatest.f_log()?)?)?;
    let _ = gradient.f_scatter_(1, &places, &others.f_neg()?.f_to_kind(Kind::BFloat16)?)?;
    Ok((losses, gradient))
}

/// The loss of each row, `[rows]`, without gradient.
pub fn row_losses(products: &Products, head: &Tensor, hidden: &Tensor, targets: &Tensor) -> Result<Tensor, TchError> {
    let _no_gradient = tch::no_grad_guard();
    let mut losses = Vec::new();
    // Once for all chunks, where a frozen head is kept in bfloat16.
    let head = &if products.precision == Precision::F32 { head.f_to_kind(Kind::Float)? } else { head.shallow_clone() };
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
    let step = chunk_rows(vocabulary, hidden.device().is_cuda());
    Ok((0..rows).step_by(step as usize).map(|begin| (begin, step.min(rows - begin))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
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
        for (found, expected) in [&found.hidden, found.head.as_ref().unwrap()].into_iter().zip(&expected) {
            assert!((found - expected).abs().max().double_value(&[]) < 2e-5);
        }
        let weights = Tensor::arange(rows, (Kind::Float, Device::Cpu)) / 50;
        let found = cross_entropy(&products, &head, &hidden, (&targets, Some(&weights)), 0.5).unwrap();
        let each = logits_loss(&exact[0], &exact[1], &targets);
        let sum = (&each * &weights).sum(Kind::Double);
        assert!((found.nats.double_value(&[]) / sum.double_value(&[]) - 1.0).abs() < 1e-5);
        let expected = Tensor::run_backward(&[&sum * 0.5], &exact, false, false);
        for (found, expected) in [&found.hidden, found.head.as_ref().unwrap()].into_iter().zip(&expected) {
            assert!((found - expected).abs().max().double_value(&[]) < 1e-4);
        }

        let each = row_losses(&products, &head, &hidden, &targets).unwrap();
        assert!((each.sum(Kind::Double).double_value(&[]) / whole.double_value(&[]) - 1.0).abs() < 1e-6);
        assert_eq!(each.double_value(&[5]), 0.0);
    }

    #[test]
    fn in_bfloat16_it_is_the_same_within_its_precision_and_finite_where_probabilities_vanish() {
        let (rows, width, vocabulary) = (64, 16, 200);
        let wave = |shape: [i64; 2], pace: f64| {
            (Tensor::arange(shape[0] * shape[1], (Kind::Float, Device::Cpu)).square() * pace).sin().view(shape)
        };
        let mut targets: Vec<i64> = (0..rows).map(|row| row * 37 % vocabulary).collect();
        (targets[5], targets[20]) = (IGNORED, IGNORED);
        let targets = Tensor::from_slice(&targets);
        let weights = Tensor::arange(rows, (Kind::Float, Device::Cpu)) / 32;
        let norm = |x: &Tensor| x.square().sum(Kind::Double).sqrt().double_value(&[]);
        let [narrow, exact] =
            [Precision::Bf16, Precision::F32].map(|precision| Products { kernel: Kernel::Default, precision });
        for (spread, weights) in [(1.0, None), (1.0, Some(&weights)), (60.0, None)] {
            let (hidden, head) =
                (wave([rows, width], 0.7) * spread, wave([vocabulary, width], 0.3).set_requires_grad(true));
            let of = |products| cross_entropy(&products, &head, &hidden, (&targets, weights), 0.01).unwrap();
            let (found, expected) = (of(narrow), of(exact));
            let heads = (found.head.as_ref().unwrap(), expected.head.as_ref().unwrap());
            for (found, expected) in [(&found.nats, &expected.nats), (&found.hidden, &expected.hidden), heads] {
                let apart = norm(&(found - expected)) / norm(expected);
                assert!(apart < if spread > 1.0 { 0.2 } else { 0.02 }, "{spread}: {apart}");
            }
            assert_eq!(norm(&found.hidden.get(5)), 0.0, "no target, no gradient");
        }
    }

    #[test]
    fn in_bfloat16_what_is_nearly_certain_is_still_learnt() {
        // Of two tokens the first is ahead by this in every row.
        for ahead in [4.0f64, 6.0, 8.0] {
            let (hidden, head) =
                (Tensor::ones([16, 1], (Kind::Float, Device::Cpu)), Tensor::from_slice(&[ahead as f32, 0.0]));
            let (head, targets) =
                (head.view([2, 1]).set_requires_grad(true), Tensor::zeros([16], (Kind::Int64, Device::Cpu)));
            let products = Products { kernel: Kernel::Default, precision: Precision::Bf16 };
            let found = cross_entropy(&products, &head, &hidden, (&targets, None), 1.0).unwrap();
            let other = 1.0 / (1.0 + ahead.exp());
            let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.02;
            let loss = found.nats.double_value(&[]) / 16.0;
            assert!(near(loss, -(1.0 - other).ln()), "{ahead}: {loss}, not {}", -(1.0 - other).ln());
            let gradient = found.head.unwrap().double_value(&[0, 0]) / 16.0;
            assert!(near(gradient, -other), "{ahead}: {gradient}, not {}", -other);
        }
    }
}
