//! Recomputes the sum of an update from the bytes of its contributions: for an owner that could not add them as they
//! arrived, and for audits.

use super::agreement::Lengths;
use super::centred_clipping::CentredClipping;
use super::exact_sum::{ExactSum, SumError, length, summed_length};
use super::norm::norm_of_length;
use super::state::ModuleState;
use super::step;
use crate::compress::{FrameError, frame};
use crate::config::OuterConfig;
use crate::names::{BlobRef, ModuleId};

/// A contribution as an update lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub blob: BlobRef,
    pub weight: u32,
    /// The claimed norm, as from [`norm_of_length`].
    pub norm: u16,
}

/// The module to which contributions are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Onto {
    pub module: ModuleId,
    /// Number of values.
    pub count: usize,
    /// State before the update; needed only for [clipping](OuterConfig::clips).
    pub from: Option<BlobRef>,
    /// Number of paths for which the average is rescaled.
    pub paths: usize,
}

/// Why contributions do not match an update.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum NotSo {
    #[error("{} is missing", .0.hash)]
    Gone(BlobRef),
    #[error("the state before it is missing")]
    NoState,
    #[error("{}: {error}", blob.hash)]
    Frame { blob: BlobRef, error: FrameError },
    #[error("{} has norm {found:#06x}, not {said:#06x}", blob.hash)]
    Norm { blob: BlobRef, found: u16, said: u16 },
    #[error("{}: {error}", blob.hash)]
    Sum { blob: BlobRef, error: SumError },
    #[error("the average is not that of the contributions")]
    Average,
}

/// The values of a contribution and their length.
#[derive(Clone, Debug)]
pub struct Gradient {
    pub values: Vec<f32>,
    length: f64,
}

impl Gradient {
    /// Measures values.
    pub fn new(values: Vec<f32>) -> Self {
        let length = length(&values);
        Self { values, length }
    }

    /// The norm that updates list.
    pub fn norm(&self) -> u16 {
        norm_of_length(self.length)
    }

    /// The length of what a sum adds of it.
    pub(super) fn summed_length(&self) -> f64 {
        summed_length(&self.values, self.length)
    }
}

/// A contribution, decoded and measured.
pub fn measured(frame: &[u8], count: usize, outer: &OuterConfig) -> Result<Gradient, FrameError> {
    frame::decode_as(outer.codec, frame, count).map(Gradient::new)
}

/// The same as [`recount`], with the lengths of what is added.
pub fn recount_measured<E>(
    parts: &[Part],
    onto: &Onto,
    outer: &OuterConfig,
    bytes: impl FnMut(BlobRef) -> Result<Option<Vec<u8>>, E>,
) -> Result<Result<(ExactSum, Lengths), NotSo>, E> {
    let (mut sum, mut lengths) = (ExactSum::new(onto.count), Lengths::default());
    let added = each_counted(parts, onto, outer, bytes, |values, weight| {
        sum.add(values, weight)?;
        lengths.add(summed_length(values, length(values)), weight);
        Ok(())
    })?;
    Ok(added.map(|()| (sum, lengths)))
}

/// The sum of contributions, whose bytes are fetched one after the other; twice if they are clipped.
pub fn recount<E>(
    parts: &[Part],
    onto: &Onto,
    outer: &OuterConfig,
    bytes: impl FnMut(BlobRef) -> Result<Option<Vec<u8>>, E>,
) -> Result<Result<ExactSum, NotSo>, E> {
    let mut sum = ExactSum::new(onto.count);
    let added = each_counted(parts, onto, outer, bytes, |values, weight| sum.add(values, weight))?;
    Ok(added.map(|()| sum))
}

/// Calls back with each contribution's values as they are added, and its weight.
pub fn each_counted<E>(
    parts: &[Part],
    onto: &Onto,
    outer: &OuterConfig,
    mut bytes: impl FnMut(BlobRef) -> Result<Option<Vec<u8>>, E>,
    mut add: impl FnMut(&[f32], u32) -> Result<(), SumError>,
) -> Result<Result<(), NotSo>, E> {
    let mut clipping = None;
    if outer.clips(onto.paths) {
        let state = onto.from.map(&mut bytes).transpose()?.flatten();
        let state = state.and_then(|state| ModuleState::decode(&state, onto.module, onto.count).ok());
        let Some(state) = state else { return Ok(Err(NotSo::NoState)) };
        let mut around = CentredClipping::around(&state, onto.paths, outer);
        drop(state);
        for part in parts {
            match values(part, onto.count, outer, &mut bytes)? {
                Ok(values) => around.measure(&values),
                Err(wrong) => return Ok(Err(wrong)),
            }
        }
        clipping = Some(around);
    }
    for part in parts {
        let mut values = match values(part, onto.count, outer, &mut bytes)? {
            Ok(values) => values,
            Err(wrong) => return Ok(Err(wrong)),
        };
        clipping.iter().for_each(|clipping| clipping.clip(&mut values));
        if let Err(error) = add(&values, part.weight) {
            return Ok(Err(NotSo::Sum { blob: part.blob, error }));
        }
    }
    Ok(Ok(()))
}

/// The values of one contribution, if they match the update.
fn values<E>(
    part: &Part,
    count: usize,
    outer: &OuterConfig,
    mut bytes: impl FnMut(BlobRef) -> Result<Option<Vec<u8>>, E>,
) -> Result<Result<Vec<f32>, NotSo>, E> {
    let blob = part.blob;
    let Some(bytes) = bytes(blob)? else { return Ok(Err(NotSo::Gone(blob))) };
    let so = match measured(&bytes, count, outer) {
        Ok(gradient) if gradient.norm() == part.norm => Ok(gradient.values),
        Ok(gradient) => Err(NotSo::Norm { blob, found: gradient.norm(), said: part.norm }),
        Err(error) => Err(NotSo::Frame { blob, error }),
    };
    Ok(so)
}

/// Whether an average is that of a sum. Compares values, since compressed bytes may differ between machines.
pub fn check_average(sum: &ExactSum, average: &[u8], paths: usize, outer: &OuterConfig) -> Result<(), NotSo> {
    let codec = outer.average_codec();
    let values = |frame: &[u8]| frame::decode_as(codec, frame, sum.count()).ok();
    let made = step::combine(sum, paths, outer).ok().and_then(|frame| values(&frame));
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<u32>>();
    match (made, values(average)) {
        (Some(made), Some(said)) if bits(made.clone()) == bits(said.clone()) => Ok(()),
        _ => Err(NotSo::Average),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use super::*;
    use crate::compress::encode;
    use crate::config::{Codec, OuterMode, Rescale};
    use crate::names::BlobHash;

    const COUNT: usize = 300;
    const ONTO: Onto = Onto { module: ModuleId { level: 0, expert: 0 }, count: COUNT, from: None, paths: 3 };

    /// Three contributions, as blobs and as parts of an update.
    fn made() -> (BTreeMap<BlobHash, Vec<u8>>, Vec<Part>) {
        let outer = OuterConfig::default();
        let frame = |number: usize| {
            let values: Vec<f32> = (0..COUNT).map(|at| ((at * number) as f32).sin() * 1.0e-3).collect();
            encode(outer.codec, &values).unwrap()
        };
        let blobs: BTreeMap<BlobHash, Vec<u8>> =
            (1..4).map(frame).map(|frame| (BlobRef::of(&frame).hash, frame)).collect();
        let part = |frame: &Vec<u8>| {
            let norm = measured(frame, COUNT, &outer).unwrap().norm();
            Part { blob: BlobRef::of(frame), weight: 100, norm }
        };
        let parts = blobs.values().map(part).collect();
        (blobs, parts)
    }

    fn counted(parts: &[Part], blobs: &BTreeMap<BlobHash, Vec<u8>>) -> Result<ExactSum, NotSo> {
        let bytes = |blob: BlobRef| Ok::<_, Infallible>(blobs.get(&blob.hash).cloned());
        recount(parts, &ONTO, &OuterConfig::default(), bytes).unwrap()
    }

    #[test]
    fn the_contributions_of_five_paths_are_clipped_and_those_of_four_are_not() {
        let outer = OuterConfig {
            centred_clipping: true,
            codec: Codec::Fp32,
            rescale: Rescale::None,
            ..OuterConfig::default()
        };
        let frames = [1.0f32, 1.0, 1.0, 2.0, -5.0].map(|value| encode(outer.codec, &[value]).unwrap());
        let state = ModuleState::initial(ONTO.module, vec![0.0], OuterMode::Synchronous).encode();
        let from = BlobRef::of(&state);
        let blobs = frames.iter().chain([&state]).map(|bytes| (BlobRef::of(bytes).hash, bytes.clone()));
        let blobs: BTreeMap<BlobHash, Vec<u8>> = blobs.collect();
        let part = |frame: &Vec<u8>| {
            let norm = measured(frame, 1, &outer).unwrap().norm();
            Part { blob: BlobRef::of(frame), weight: 100, norm }
        };
        let parts: Vec<Part> = frames.iter().map(part).collect();
        let sum = |onto: &Onto, parts: &[Part]| {
            let bytes = |blob: BlobRef| Ok::<_, Infallible>(blobs.get(&blob.hash).cloned());
            recount(parts, onto, &outer, bytes).unwrap().map(|sum| sum.average(1.0))
        };
        let five = Onto { count: 1, from: Some(from), paths: 5, ..ONTO };
        assert_eq!(sum(&five, &parts), Ok(vec![0.6]), "1, 1, 1, 1 and -1");
        assert_eq!(sum(&Onto { from: None, ..five }, &parts), Err(NotSo::NoState));
        let four = Onto { from: None, paths: 4, ..five };
        assert_eq!(sum(&four, &parts[1..]), Ok(vec![-0.25]));
    }

    #[test]
    fn a_recount_confirms_a_correct_update_and_finds_a_wrong_one() {
        let (blobs, parts) = made();
        let outer = OuterConfig { rescale: Rescale::SqrtPaths, ..OuterConfig::default() };
        let sum = counted(&parts, &blobs).unwrap();
        let average = step::combine(&sum, 3, &outer).unwrap();
        assert_eq!(check_average(&sum, &average, 3, &outer), Ok(()));
        assert_eq!(
            check_average(&sum, &average, 2, &outer),
            Err(NotSo::Average),
            "rescaled for another number of paths"
        );
        assert_eq!(check_average(&sum, b"no frame", 3, &outer), Err(NotSo::Average));

        let mut heavier = parts.clone();
        heavier[1].weight = 101;
        assert_eq!(check_average(&counted(&heavier, &blobs).unwrap(), &average, 3, &outer), Err(NotSo::Average));
        let mut longer = parts.clone();
        longer[2].norm += 1;
        assert!(matches!(counted(&longer, &blobs), Err(NotSo::Norm { .. })));
        let mut broken = parts.clone();
        broken[0].blob = BlobRef::of(b"no frame");
        assert_eq!(counted(&broken, &blobs), Err(NotSo::Gone(broken[0].blob)));
        let mut with_garbage = blobs.clone();
        with_garbage.insert(broken[0].blob.hash, b"no frame".to_vec());
        assert!(matches!(counted(&broken, &with_garbage), Err(NotSo::Frame { .. })));
    }
}
