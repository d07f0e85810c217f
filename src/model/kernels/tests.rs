use super::*;
use crate::config::{ModelConfig, RotaryConfig};
use crate::model::layers::rotary::rotation;
use crate::model::samples::small_model;

/// What autograd gives for a function of some tensors: its results, and gradients of their sums weighted by waves.
fn with_gradients(of: impl Fn(&[Tensor]) -> Vec<Tensor>, inputs: &[Tensor]) -> (Vec<Tensor>, Vec<Tensor>) {
    let leaves: Vec<Tensor> = inputs.iter().map(|input| input.detach().copy().set_requires_grad(true)).collect();
    let found = of(&leaves);
    let each = found.iter().map(|one| (one.to_kind(Kind::Float) * wave(&one.size(), 0.9)).sum(Kind::Float));
    let sum = each.reduce(|a, b| a + b).unwrap();
    let gradients = Tensor::run_backward(&[sum], &leaves, false, false);
    (found.iter().map(Tensor::detach).collect(), gradients)
}

fn wave(shape: &[i64], pace: f64) -> Tensor {
    let count: i64 = shape.iter().product();
    (Tensor::arange(count, (Kind::Float, Device::Cpu)) * pace).sin().view(shape)
}

fn narrow_wave(shape: &[i64], pace: f64) -> Tensor {
    wave(shape, pace).to_kind(Kind::BFloat16)
}

/// The norm of the difference relative to that of what is expected.
fn difference(found: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!(found.size(), expected.size());
    let [found, expected] = [found, expected].map(|one| one.to_kind(Kind::Double));
    ((&found - &expected).norm() / expected.norm().clamp_min(1e-12)).double_value(&[])
}

fn assert_same(found: (Vec<Tensor>, Vec<Tensor>), expected: (Vec<Tensor>, Vec<Tensor>), about: &str) {
    let kinds = |(results, gradients): &(Vec<Tensor>, Vec<Tensor>)| {
        results.iter().chain(gradients).map(|one| (one.kind(), one.size())).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&found), kinds(&expected), "{about}");
    let all = found.0.iter().chain(&found.1).zip(expected.0.iter().chain(&expected.1));
    for (number, (found, expected)) in all.enumerate() {
        let limit = if expected.kind() == Kind::Float { 4e-6 } else { 4e-3 };
        let found = difference(found, expected);
        assert!(found < limit, "{about}, value {number}: {found:e}");
    }
}

#[test]
fn norms_of_sums_are_those_of_libtorch_forward_and_backward() {
    for (rows, width) in [(1, 4), (21, 12), (9, 896), (3, 4096)] {
        for (centred, has_bias, has_added) in
            [(true, true, true), (true, false, false), (false, false, true), (false, false, false)]
        {
            let mut inputs = vec![wave(&[rows, width], 0.37) * 3 + 1, wave(&[width], 0.21) + 1];
            if has_bias {
                inputs.push(wave(&[width], 0.11));
            }
            if has_added {
                inputs.push(narrow_wave(&[rows, width], 0.77));
            }
            let parts = |of: &[Tensor]| {
                let rest = of[2..].iter().map(Tensor::shallow_clone).collect::<Vec<_>>();
                let added = has_added.then(|| rest[rest.len() - 1].shallow_clone());
                (of[0].shallow_clone(), of[1].shallow_clone(), has_bias.then(|| rest[0].shallow_clone()), added)
            };
            let found = with_gradients(
                |of| {
                    let (stream, weight, bias, added) = parts(of);
                    let norm = NarrowNorm { weight: &weight, bias: bias.as_ref(), epsilon: 1e-5, centred };
                    norm.forward(&stream, added.as_ref()).unwrap().into()
                },
                &inputs,
            );
            let expected = with_gradients(
                |of| {
                    let (stream, weight, bias, added) = parts(of);
                    let sum = added.map_or(stream.shallow_clone(), |added| &stream + added);
                    let normed = if centred {
                        sum.layer_norm([width], Some(&weight), bias.as_ref(), 1e-5, true)
                    } else {
                        sum.rms_norm([width], Some(&weight), Some(1e-5))
                    };
                    // As a sum, the stream passes through.
                    vec![&sum * 1.0, normed.to_kind(Kind::BFloat16)]
                },
                &inputs,
            );
            assert_same(found, expected, &format!("{rows} x {width}, {centred} {has_bias} {has_added}"));
        }
    }
}

#[test]
fn a_sum_that_nothing_but_the_norm_reads_has_its_gradient_too() {
    let (stream, weight) = (wave(&[5, 8], 0.3), Tensor::ones([8], (Kind::Float, Device::Cpu)));
    let norm = |stream: &Tensor| {
        let [sum, normed] =
            NarrowNorm { weight: &weight, bias: None, epsilon: 1e-5, centred: true }.forward(stream, None).unwrap();
        [sum, normed]
    };
    let of_normed = with_gradients(|of| vec![norm(&of[0])[1].shallow_clone()], &[stream.shallow_clone()]);
    let of_sum = with_gradients(|of| vec![norm(&of[0])[0].shallow_clone()], &[stream.shallow_clone()]);
    let of_both = with_gradients(|of| norm(&of[0]).into(), &[stream]);
    let together = &of_normed.1[0] + &of_sum.1[0];
    assert!(difference(&of_both.1[0], &together) < 1e-5);
}

#[test]
fn queries_and_keys_are_turned_like_complex_numbers_and_values_stay() {
    for (heads, kv_heads, head_width, share) in [(3, 3, 16, 1.0), (4, 2, 32, 0.5), (2, 1, 64, 1.0)] {
        let rotary = Some(RotaryConfig { base: 100.0, share, scaling: None });
        let (width, time) = (heads * head_width, 7);
        let model =
            ModelConfig { heads: heads as usize, width: width as usize, context: time, rotary, ..small_model() };
        let angles = rotation(&model, Device::Cpu).unwrap().unwrap();
        let rotated = angles.size()[2] * 2;
        let shape = Rotation { heads, kv_heads, head_width, rotated };
        let stacked = narrow_wave(&[2, time as i64, (heads + 2 * kv_heads) * head_width], 0.7);
        let found = with_gradients(|of| shape.forward(&of[0], &angles).unwrap().into(), &[stacked.shallow_clone()]);
        let expected = with_gradients(
            |of| {
                let all = of[0].view([2, time as i64, heads + 2 * kv_heads, head_width]);
                let parts = all.split_with_sizes([heads, kv_heads, kv_heads], 2);
                let turned = |x: &Tensor| {
                    let x = x.to_kind(Kind::Float);
                    let (first, rest) = (x.narrow(3, 0, rotated), x.narrow(3, rotated, head_width - rotated));
                    let (a, b) = (first.narrow(3, 0, rotated / 2), first.narrow(3, rotated / 2, rotated / 2));
                    let both = Tensor::complex(&a.contiguous(), &b.contiguous()) * &angles;
                    Tensor::cat(&[both.real(), both.imag(), rest], 3).to_kind(Kind::BFloat16)
                };
                vec![turned(&parts[0]), turned(&parts[1]), &parts[2] * 1.0]
            },
            &[stacked],
        );
        assert_same(found, expected, &format!("{heads} {kv_heads} {head_width} {share}"));
    }
}

#[test]
fn gradients_of_queries_alone_and_of_other_layouts_are_turned_back() {
    let shape = Rotation { heads: 2, kv_heads: 1, head_width: 16, rotated: 16 };
    let model = ModelConfig { heads: 2, width: 32, context: 5, ..small_model() };
    let angles = rotation(&model, Device::Cpu).unwrap().unwrap();
    let stacked = narrow_wave(&[1, 5, 64], 0.7);
    let queries = |stacked: &Tensor| shape.forward(stacked, &angles).unwrap()[0].shallow_clone();
    let weights = wave(&[1, 5, 16, 2], 0.3);
    let gradient = |of: &dyn Fn(Tensor) -> Tensor| {
        let leaf = stacked.copy().set_requires_grad(true);
        Tensor::run_backward(&[of(queries(&leaf)).sum(Kind::Float)], &[leaf], false, false).remove(0)
    };
    let plain = gradient(&|queries| queries * weights.transpose(2, 3));
    // The gradient comes back with a head's values apart in memory.
    let apart = gradient(&|queries| queries.transpose(2, 3).contiguous() * &weights);
    assert!(difference(&apart, &plain) < 1e-6);
    assert_eq!(plain.narrow(2, 32, 32).abs().max().double_value(&[]), 0.0, "keys and values had no part");
}

#[test]
fn parameters_and_values_that_lie_anywhere_in_memory_are_taken() {
    let off = |tensor: &Tensor| {
        let flat = Tensor::cat(&[tensor.flatten(0, -1).narrow(0, 0, 1), tensor.flatten(0, -1)], 0);
        flat.narrow(0, 1, tensor.numel() as i64).view(tensor.size().as_slice())
    };
    let (weight, stream, added) = (wave(&[12], 0.1), wave(&[5, 12], 0.3), narrow_wave(&[5, 12], 0.7));
    let norm = |weight: &Tensor, stream: &Tensor, added: &Tensor| {
        let leaf = weight.detach().set_requires_grad(true);
        let norm = NarrowNorm { weight: &leaf, bias: Some(&leaf), epsilon: 1e-5, centred: true };
        let found = norm.forward(stream, Some(added)).unwrap();
        let gradients = Tensor::run_backward(&[found[1].sum(Kind::Float)], &[&leaf], false, false);
        [found[0].detach(), found[1].detach(), gradients[0].shallow_clone()]
    };
    let expected = norm(&weight, &stream, &added);
    for (found, expected) in norm(&off(&weight), &off(&stream), &off(&added)).iter().zip(&expected) {
        assert!(found.equal(expected));
    }
    let (gated, shape) = (narrow_wave(&[3, 32], 0.7), Rotation { heads: 1, kv_heads: 1, head_width: 16, rotated: 16 });
    assert!(gate(&off(&gated), Activation::Silu).unwrap().equal(&gate(&gated, Activation::Silu).unwrap()));
    let (stacked, angles) =
        (narrow_wave(&[1, 4, 48], 0.7), Tensor::complex(&wave(&[4, 1, 8], 0.1), &wave(&[4, 1, 8], 0.2)));
    let turned = |stacked: &Tensor| shape.forward(stacked, &angles).unwrap();
    assert!(turned(&off(&stacked)).iter().zip(&turned(&stacked)).all(|(found, expected)| found.equal(expected)));
}

#[test]
fn gates_are_activations_times_values() {
    for activation in [Activation::Silu, Activation::Gelu, Activation::GeluTanh] {
        let hidden = [narrow_wave(&[3, 5, 48], 0.7) * 3.0];
        let found = with_gradients(|of| vec![gate(&of[0], activation).unwrap()], &hidden);
        let expected = with_gradients(
            |of| {
                let wide = of[0].to_kind(Kind::Float);
                let (first, second) = (wide.narrow(-1, 0, 24), wide.narrow(-1, 24, 24));
                let active = match activation {
                    Activation::Silu => first.silu(),
                    Activation::Gelu => first.gelu("none"),
                    Activation::GeluTanh => first.gelu("tanh"),
                };
                vec![(active * second).to_kind(Kind::BFloat16)]
            },
            &hidden,
        );
        assert_same(found, expected, &format!("{activation:?}"));
    }
}

#[test]
fn losses_and_their_gradients_are_exact_where_the_target_is_nearly_certain_too() {
    for vocabulary in [1, 8, 37, 200, 4104] {
        let rows = 6;
        let mut logits = narrow_wave(&[rows, vocabulary], 0.7) * 4.0;
        let targets = Tensor::from_slice(&[0i64, vocabulary - 1, vocabulary / 2, -100, 0, vocabulary / 3]);
        // Row 4 is certain of its target, and row 5 of another token.
        let _ = logits.get(4).narrow(0, 0, 1).fill_(20.0);
        let _ = logits.get(5).narrow(0, 0, 1).fill_(30.0);
        let exact = logits.to_kind(Kind::Double);
        let places = targets.clamp_min(0).unsqueeze(1);
        let expected = -exact.log_softmax(-1, Kind::Double).gather(1, &places, false).squeeze_dim(1);
        let mut by_logits = exact.softmax(-1, Kind::Double).scatter_value(1, &places, 0.0);
        let others = by_logits.sum_dim_intlist([1i64].as_slice(), true, Kind::Double);
        let _ = by_logits.scatter_(1, &places, &others.neg());
        let losses = softmax_gradient(&mut logits, &targets).unwrap();
        assert!(difference(&losses, &expected) < 1e-6, "{vocabulary}");
        for row in 0..rows {
            // The gradient of a row whose target is nearly certain is small.
            let apart = difference(&logits.get(row), &by_logits.get(row));
            assert!(apart < 4e-3, "{vocabulary}, row {row}: {apart:e}");
        }
        let (found, expected) = (losses.double_value(&[4]), expected.double_value(&[4]));
        assert!((found / expected.max(1e-30) - 1.0).abs() < 1e-4 || expected < 1e-12, "{found:e} {expected:e}");
    }
}

#[test]
fn other_kinds_and_shapes_are_refused_and_no_card_has_no_kernels() {
    let narrow = narrow_wave(&[2, 12], 0.3);
    assert!(gate(&narrow, Activation::Silu).is_err(), "six values");
    assert!(gate(&wave(&[2, 16], 0.3), Activation::Silu).is_err());
    let (weight, stream) = (wave(&[12], 0.1), wave(&[2, 12], 0.3));
    let norm = NarrowNorm { weight: &weight, bias: None, epsilon: 1e-5, centred: true };
    assert!(norm.forward(&stream, Some(&narrow.narrow(0, 0, 1))).is_err());
    assert!(norm.forward(&narrow, None).is_err());
    assert!(!NarrowNorm::fits(6) && !NarrowNorm::fits(4100));
    let shape = Rotation { heads: 1, kv_heads: 1, head_width: 16, rotated: 8 };
    assert!(!shape.fits() && shape.forward(&narrow_wave(&[1, 2, 48], 0.3), &narrow).is_err());
    assert!(softmax_gradient(&mut narrow_wave(&[2, 12], 0.3), &Tensor::from_slice(&[1i64])).is_err());
    assert!(!are_there(Device::Cpu));
}
