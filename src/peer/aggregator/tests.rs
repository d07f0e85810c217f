//! What the aggregator says of outer gradients is what their values say, whatever weights, caps and clipping do.

use super::*;
use crate::compress::{decode_as, encode};
use crate::config::{Codec, Rescale};
use crate::names::PathId;
use crate::outer::CentredClipping;
use crate::peer::tests::tiny_run::Tiny;

/// How long contributions are, compared with the first.
const LENGTHS: [f32; 5] = [1.0, 1.1, 7.0, 0.9, 1.2];

/// An aggregator, and contributions of different directions, norms and weights to its first module.
struct Bench {
    _tiny: Tiny,
    worker: Worker,
    module: ModuleId,
    from: BlobRef,
    contributions: Vec<(Vec<f32>, Counted)>,
}

impl Bench {
    fn new(count: u32, change: impl Fn(&mut OuterConfig)) -> Self {
        let tiny = Tiny::create(true);
        let manifest = Arc::new(tiny.decoded.clone());
        let counts = manifest.level_counts();
        let outer = |level| {
            let mut outer = OuterConfig { norm_cap: Some(2.0), ..manifest.config.outer_of(level) };
            change(&mut outer);
            outer
        };
        let outer: Vec<OuterConfig> = (0..counts.len()).map(outer).collect();
        let (module, from) = manifest.genesis[0];
        let level = usize::from(module.level);
        let contribution = |path: u32| {
            let scale = 1e-3 * LENGTHS[path as usize];
            let value = |at: usize| ((at as f32 * 0.7 + path as f32).sin() + 0.5) * scale;
            let frame = encode(outer[level].codec, &(0..counts[level]).map(value).collect::<Vec<f32>>()).unwrap();
            let (blob, weight) = (tiny.blobs.put(&frame).unwrap(), 100 * (path + 1));
            let counted = Counted {
                path: PathId(path),
                parent: Version(0),
                steps: 1,
                uncapped: weight,
                weight,
                norm: measured(&frame, counts[level], &outer[level]).unwrap().norm(),
                blob,
            };
            (decode_as(outer[level].codec, &frame, counts[level]).unwrap(), counted)
        };
        let contributions = (0..count).map(contribution).collect();
        let (answers, _) = mpsc::channel(1);
        let blobs = tiny.blobs.clone();
        let sums = BTreeMap::new();
        let worker = Worker { manifest, blobs, answers, outer, counts, sums, router: None, outer_step: None };
        Self { _tiny: tiny, worker, module, from, contributions }
    }

    /// Aggregates with this running norm, and returns what is told.
    fn aggregate(&mut self, running: u32) -> OuterStep {
        let (module, target) = (self.module, Version(1));
        self.worker.carry_out(Outer::OpenSum { module, target, running }).unwrap();
        for (_, counted) in &self.contributions {
            let (blob, weight) = (counted.blob.hash, counted.uncapped);
            self.worker.carry_out(Outer::Accumulate { module, target, blob, weight }).unwrap();
        }
        let contributions: Vec<Counted> = self.contributions.iter().map(|(_, counted)| *counted).collect();
        let weight = |of: fn(&Counted) -> u32| contributions.iter().map(|counted| u64::from(of(counted))).sum();
        let (weight, uncapped) = (weight(|counted| counted.weight), weight(|counted| counted.uncapped));
        let portion = Portion { paths: contributions.len(), weight, uncapped, full_weight: weight };
        let contributions = Contributions::from(contributions);
        let combine = Outer::Combine { module, target, from: self.from, contributions, portion };
        assert!(matches!(self.worker.carry_out(combine).unwrap(), Some(Event::Combined { .. })));
        self.worker.outer_step.take().unwrap()
    }

    /// The means that follow from the values and weights themselves.
    fn directly(&self) -> GradientNorms {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let all: Vec<(&[f32], f64)> =
            self.contributions.iter().map(|(values, counted)| (&values[..], f64::from(counted.weight))).collect();
        let whole: f64 = all.iter().map(|(_, weight)| weight).sum();
        let (mut norms, mut square, mut above, mut below) = (0.0, 0.0, 0.0, 0.0);
        for (at, (one, weight)) in all.iter().enumerate() {
            norms += weight / whole * dot(one, one).sqrt();
            for (other_at, (other, other_weight)) in all.iter().enumerate() {
                let pair = weight / whole * other_weight / whole;
                square += pair * dot(one, other);
                if at != other_at {
                    above += pair * dot(one, other);
                    below += pair * (dot(one, one) * dot(other, other)).sqrt();
                }
            }
        }
        let (average_norm, agreement) = (square.sqrt(), Some(above / below));
        GradientNorms { contributions: all.len(), mean_norm: norms, average_norm, agreement }
    }
}

fn assert_close(found: GradientNorms, expected: GradientNorms) {
    let close = |one: f64, other: f64| (one - other).abs() <= 1e-4 * other.abs();
    let (one, other) = (found.agreement.unwrap(), expected.agreement.unwrap());
    assert!(other.abs() > 0.05 && other < 0.95, "a trial that says something: {expected:?}");
    assert_eq!(found.contributions, expected.contributions);
    let norms = close(found.mean_norm, expected.mean_norm) && close(found.average_norm, expected.average_norm);
    assert!(norms && close(one, other), "{found:?} {expected:?}");
}

#[test]
fn contributions_that_are_added_as_they_arrive_are_measured_with_their_capped_weights() {
    let mut bench = Bench::new(3, |_| ());
    let running = u32::from(bench.contributions[0].1.norm) << 16;
    for (_, counted) in &mut bench.contributions {
        counted.weight = capped_weight(counted.uncapped, counted.norm, running, 2.0);
    }
    let weights: Vec<u32> = bench.contributions.iter().map(|(_, counted)| counted.weight).collect();
    assert_eq!(weights[..2], [100, 200]);
    assert!(weights[2] < 30, "the third is capped: {weights:?}");
    let made = bench.aggregate(running);
    assert_eq!((made.module, made.version), (bench.module, Version(1)));
    assert_close(made.norms, bench.directly());
}

#[test]
fn a_first_round_that_is_recounted_and_rescaled_says_the_same() {
    for rescale in [Rescale::None, Rescale::SqrtPaths] {
        let mut bench = Bench::new(3, |outer| outer.rescale = rescale);
        let made = bench.aggregate(0);
        assert_close(made.norms, bench.directly());
    }
}

#[test]
fn a_compressed_average_is_measured_before_it_is_compressed() {
    let mut bench = Bench::new(3, |outer| outer.codec = Codec::Int2);
    let made = bench.aggregate(0);
    assert_close(made.norms, bench.directly());
}

#[test]
fn clipped_contributions_are_measured_as_they_are_added() {
    let mut bench = Bench::new(5, |outer| (outer.centred_clipping, outer.norm_cap) = (true, None));
    let (module, from) = (bench.module, bench.from);
    assert!(bench.worker.outer(module).clips(5) && !bench.worker.outer(module).clips(4));
    let state = bench.worker.blobs.get(from.hash, from.bytes).unwrap().unwrap();
    let state = ModuleState::decode(&state, module, bench.worker.count(module)).unwrap();
    let mut around = CentredClipping::around(&state, 5, bench.worker.outer(module));
    bench.contributions.iter().for_each(|(values, _)| around.measure(values));
    let (made, unclipped) = (bench.aggregate(0), bench.directly());
    bench.contributions.iter_mut().for_each(|(values, _)| around.clip(values));
    assert!(bench.directly().mean_norm < 0.9 * unclipped.mean_norm);
    assert_close(made.norms, bench.directly());
}

#[test]
fn one_contribution_has_norms_and_no_agreement() {
    let mut bench = Bench::new(1, |_| ());
    let made = bench.aggregate(0).norms;
    assert_eq!((made.contributions, made.agreement), (1, None));
    assert!(made.mean_norm > 0.0 && (made.mean_norm - made.average_norm).abs() < 1e-4 * made.mean_norm);
}
