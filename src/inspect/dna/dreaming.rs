//! Dreaming: an image is optimised until its patches choose the routes of another image's.
//!
//! The optimised variable is the image's spectrum, in which neighbours change together, with colours decorrelated as in
//! photographs. The network sees it randomly shifted, rotated and scaled, with noise that fades, and total variation is
//! penalised (Olah, Mordvintsev and Schubert 2017).

use std::cell::RefCell;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::Serialize;
use tch::{Kind, TchError, Tensor};

use crate::inspect::subject::InspectError;
use crate::model::layers::watch::Routed;
use crate::model::layers::watch::Watch;
use crate::model::weights::to_values;
use crate::model::{ForwardError, PathModel};
use crate::seed::Seed;

/// Correlation of colours in photographs, from [lucid](https://github.com/tensorflow/lucid): rows are red, green and
/// blue.
const COLOURS: [f32; 9] = [0.26, 0.09, 0.02, 0.27, 0.00, -0.05, 0.27, -0.09, 0.03];
/// The norm of the longest column.
const LONGEST_COLOUR: f32 = 0.462;
/// Initial scale of the spectrum.
const SPREAD: f32 = 0.01;
/// Of Adam.
const BETAS: [f64; 2] = [0.9, 0.999];

/// Settings of a dream.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// The last step whose choices count.
    pub step: usize,
    /// Whether the choices of earlier steps do not count.
    pub alone: bool,
    /// The patches whose choices count and that are dreamt; all if empty.
    pub patches: Vec<usize>,
    /// Whether the other patches are those of the image instead of grey.
    pub context: bool,
    /// Number of optimisation steps.
    pub rounds: usize,
    /// Adam's learning rate.
    pub learning_rate: f64,
    /// The initial deviation of the noise, where black is -1 and white is 1; it falls linearly to 0.
    pub noise: f64,
    /// Weight of the total variation.
    pub total_variation: f64,
    /// Largest random shift, in pixels.
    pub shift: f64,
    pub seed: Seed,
}

/// The result of a dream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dreamt {
    /// The bytes of its planes.
    #[serde(skip)]
    pub bytes: Vec<u8>,
    /// By step, the share of the image's choices that the counted patches share with it.
    pub shared: Vec<f64>,
    /// The same at the beginning.
    pub shared_before: Vec<f64>,
    /// Mean of `-log ρ` of the image's counted choices: in the first round and in the last.
    pub losses: [f64; 2],
}

/// The scores and choices of each step.
#[derive(Default)]
struct Scores(RefCell<Vec<(Tensor, Vec<i64>)>>);

impl Watch for Scores {
    fn routed(&self, routed: &Routed<'_>) -> Result<(), TchError> {
        self.0.borrow_mut().push((routed.scores.shallow_clone(), routed.chosen.to_vec()));
        Ok(())
    }
}

/// Dreams an image from the routes of another one, given as the bytes of its planes.
pub fn dream(model: &PathModel, image: &[u8], wish: &Wish) -> Result<Dreamt, InspectError> {
    let dream = Dream::of(model, image, wish)?;
    let mut generator = wish.seed.generator();
    let beginning: Vec<f32> = normal(&mut generator, dream.scale.numel() * 6).map(|value| SPREAD * value).collect();
    let mut spectrum = dream.on_device(&beginning)?.f_view([1, 3, dream.side, dream.side / 2 + 1, 2])?;
    let mut moments = [spectrum.f_zeros_like()?, spectrum.f_zeros_like()?];
    let shared_before = dream.shared(&dream.painted(&spectrum)?)?;
    let mut losses = [0.0; 2];
    for round in 0..wish.rounds {
        let leaf = spectrum.f_detach()?.f_set_requires_grad(true)?;
        let painted = dream.painted(&leaf)?;
        let fading = wish.noise * (1.0 - round as f64 / wish.rounds as f64);
        let seen = dream.seen(&painted, fading, &mut generator)?;
        let loss = dream.loss(&seen)?;
        losses[1] = loss.f_double_value(&[])?;
        if round == 0 {
            losses[0] = losses[1];
        }
        let whole = loss.f_add(&jumps(&painted)?.f_mul_scalar(wish.total_variation)?)?;
        let gradient = Tensor::f_run_backward(&[whole], &[&leaf], false, false)?;
        let _no_gradient = tch::no_grad_guard();
        spectrum = adam(&leaf, &gradient[0], &mut moments, (round + 1, wish.learning_rate))?;
    }
    let painted = dream.painted(&spectrum)?;
    let values = to_values(&painted)?;
    let bytes = values.iter().map(|value| ((value + 1.0) * 127.5).round().clamp(0.0, 255.0) as u8).collect();
    Ok(Dreamt { bytes, shared: dream.shared(&painted)?, shared_before, losses })
}

/// A dream in progress.
struct Dream<'a> {
    model: &'a PathModel,
    wish: &'a Wish,
    /// By step, the modules that each patch of the image chose.
    target: Vec<Vec<i64>>,
    /// Counted patches.
    patches: Vec<usize>,
    /// The image, or grey, `[1, 3, side, side]`.
    ground: Tensor,
    /// The dreamt part, `[1, 1, side, side]`.
    mask: Tensor,
    /// Scale of each frequency, `[side, side / 2 + 1, 1]`.
    scale: Tensor,
    side: i64,
    top_k: usize,
}

impl<'a> Dream<'a> {
    fn of(model: &'a PathModel, image: &[u8], wish: &'a Wish) -> Result<Self, InspectError> {
        let config = model.config();
        let dna = config.dna.as_ref().ok_or(InspectError::NoPool)?;
        let patch = config.images.ok_or(ForwardError::NoImages)?.patch as i64;
        let (side, count) = (config.side() as i64, config.stream_length(config.context));
        let within = |what, found, count| {
            if found < count { Ok(()) } else { Err(InspectError::Unknown { what, found, count }) }
        };
        within("step", wish.step, dna.steps)?;
        wish.patches.iter().try_for_each(|own| within("patch", *own, count))?;
        let patches = if wish.patches.is_empty() { (0..count).collect() } else { wish.patches.clone() };
        let given: Vec<f32> = image.iter().map(|byte| f32::from(*byte) / 127.5 - 1.0).collect();
        let given = Tensor::f_from_slice(&given)?.f_view([1, 3, side, side])?.f_to_device(model.device())?;
        let mask = Tensor::f_zeros([1, 1, side, side], (Kind::Float, model.device()))?;
        for own in &patches {
            let (down, across) = (*own as i64 / (side / patch) * patch, *own as i64 % (side / patch) * patch);
            let _ = mask.f_narrow(2, down, patch)?.f_narrow(3, across, patch)?.f_fill_(1.0)?;
        }
        let ground = if wish.context { given.shallow_clone() } else { given.f_zeros_like()? };
        let scores = Scores::default();
        let _no_gradient = tch::no_grad_guard();
        let _ = model.watched_pixels(&given, &scores)?;
        let target = scores.0.into_inner().into_iter().map(|(_, chosen)| chosen).collect();
        let scale = frequencies(side)?.f_to_device(model.device())?;
        Ok(Self { model, wish, target, patches, ground, mask, scale, side, top_k: dna.top_k })
    }

    fn on_device(&self, values: &[f32]) -> Result<Tensor, TchError> {
        Tensor::f_from_slice(values)?.f_to_device(self.model.device())
    }

    /// The image of a spectrum, `[1, 3, side, side]`, over the ground where it is not dreamt.
    fn painted(&self, spectrum: &Tensor) -> Result<Tensor, TchError> {
        let waves = spectrum.f_mul(&self.scale)?.f_view_as_complex()?;
        let plain = waves.f_fft_irfft2([self.side, self.side].as_slice(), [-2i64, -1].as_slice(), "ortho")?;
        let colours: Vec<f32> = COLOURS.iter().map(|share| share / LONGEST_COLOUR).collect();
        let colours = self.on_device(&colours)?.f_view([3, 3])?;
        let coloured = plain.f_permute([0, 2, 3, 1])?.f_matmul(&colours.f_transpose(0, 1)?)?.f_permute([0, 3, 1, 2])?;
        let values = coloured.f_sigmoid()?.f_mul_scalar(2.0)?.f_sub_scalar(1.0)?;
        self.ground.f_add(&values.f_sub(&self.ground)?.f_mul(&self.mask)?)
    }

    /// The image with random changes and noise.
    fn seen(&self, painted: &Tensor, noise: f64, generator: &mut ChaCha8Rng) -> Result<Tensor, TchError> {
        let mut around = |most: f64| (2.0 * generator.random::<f64>() - 1.0) * most;
        // Shifts are in halves of the side.
        let shift = 2.0 * self.wish.shift / self.side as f64;
        let (right, down, turned, scaled) = (around(shift), around(shift), around(0.05), 1.0 + around(0.05));
        let (sin, cos) = (turned.sin() * scaled, turned.cos() * scaled);
        let route = [cos, -sin, right, sin, cos, down].map(|value| value as f32);
        let grid = Tensor::f_affine_grid_generator(
            &self.on_device(&route)?.f_view([1, 2, 3])?,
            [1, 3, self.side, self.side],
            false,
        )?;
        // Bilinear; pixels from outside repeat the border.
        let moved = painted.f_grid_sampler(&grid, 0, 1, false)?;
        let values: Vec<f32> = normal(generator, moved.numel()).map(|value| value * noise as f32).collect();
        moved.f_add(&self.on_device(&values)?.f_view_as(&moved)?)
    }

    /// Mean of `-log ρ` of the image's counted choices.
    fn loss(&self, seen: &Tensor) -> Result<Tensor, InspectError> {
        let scores = Scores::default();
        let _ = self.model.watched_pixels(seen, &scores)?;
        let first = if self.wish.alone { self.wish.step } else { 0 };
        let mut sum = Tensor::f_zeros([0i64; 0].as_slice(), (Kind::Float, self.model.device()))?;
        let rows: Vec<i64> = self.patches.iter().map(|patch| *patch as i64).collect();
        let rows = Tensor::f_from_slice(&rows)?.f_to_device(self.model.device())?;
        let scores = scores.0.into_inner();
        for ((scores, _), chosen) in scores.iter().zip(&self.target).take(self.wish.step + 1).skip(first) {
            let wanted: Vec<i64> =
                self.patches.iter().flat_map(|patch| self.of_patch(chosen, *patch)).copied().collect();
            let wanted = Tensor::f_from_slice(&wanted)?.f_view([-1, self.top_k as i64])?;
            let own = scores.f_index_select(0, &rows)?.f_gather(1, &wanted.f_to_device(self.model.device())?, false)?;
            sum = sum.f_sub(&own.f_add_scalar(1e-9)?.f_log()?.f_mean(Kind::Float)?)?;
        }
        Ok(sum.f_div_scalar((self.wish.step + 1 - first) as f64)?)
    }

    fn of_patch<'b>(&self, chosen: &'b [i64], patch: usize) -> &'b [i64] {
        &chosen[patch * self.top_k..][..self.top_k]
    }

    /// By step, the share of the image's choices that a dream shares.
    fn shared(&self, painted: &Tensor) -> Result<Vec<f64>, InspectError> {
        let _no_gradient = tch::no_grad_guard();
        let scores = Scores::default();
        let _ = self.model.watched_pixels(painted, &scores)?;
        let share = |(own, target): (&(Tensor, Vec<i64>), &Vec<i64>)| {
            let common = |patch: &usize| {
                let own = self.of_patch(&own.1, *patch);
                self.of_patch(target, *patch).iter().filter(|module| own.contains(module)).count()
            };
            let all = self.patches.len() * self.top_k;
            self.patches.iter().map(common).sum::<usize>() as f64 / all as f64
        };
        Ok(scores.0.into_inner().iter().zip(&self.target).map(share).collect())
    }
}

/// One over each frequency, as in photographs, `[side, side / 2 + 1, 1]`.
fn frequencies(side: i64) -> Result<Tensor, TchError> {
    let of = |index: i64| (if index <= side / 2 { index } else { index - side }) as f64 / side as f64;
    let one = |down: i64, across: i64| {
        let frequency = (of(down).powi(2) + of(across).powi(2)).sqrt();
        (side as f64 / frequency.max(1.0 / side as f64)).sqrt() as f32
    };
    let all: Vec<f32> = (0..side).flat_map(|down| (0..=side / 2).map(move |across| one(down, across))).collect();
    Tensor::f_from_slice(&all)?.f_view([side, side / 2 + 1, 1])
}

/// The mean difference of neighbouring pixels.
fn jumps(painted: &Tensor) -> Result<Tensor, TchError> {
    let jump = |dim: i64| -> Result<Tensor, TchError> {
        let last = painted.size()[dim as usize] - 1;
        let apart = painted.f_narrow(dim, 1, last)?.f_sub(&painted.f_narrow(dim, 0, last)?)?;
        apart.f_abs()?.f_mean(Kind::Float)
    };
    jump(2)?.f_add(&jump(3)?)
}

/// A step of Adam.
fn adam(
    leaf: &Tensor,
    gradient: &Tensor,
    moments: &mut [Tensor; 2],
    (number, rate): (usize, f64),
) -> Result<Tensor, TchError> {
    let [first, second] = moments;
    *first = first.f_mul_scalar(BETAS[0])?.f_add(&gradient.f_mul_scalar(1.0 - BETAS[0])?)?;
    *second = second.f_mul_scalar(BETAS[1])?.f_add(&gradient.f_square()?.f_mul_scalar(1.0 - BETAS[1])?)?;
    let unbiased = |moment: &Tensor, beta: f64| moment.f_div_scalar(1.0 - beta.powi(number as i32));
    let root = unbiased(second, BETAS[1])?.f_sqrt()?.f_add_scalar(1e-8)?;
    leaf.f_detach()?.f_sub(&unbiased(first, BETAS[0])?.f_div(&root)?.f_mul_scalar(rate)?)
}

fn normal(generator: &mut ChaCha8Rng, count: usize) -> impl Iterator<Item = f32> {
    (0..count).map(move |_| StandardNormal.sample(generator))
}
