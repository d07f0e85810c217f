//! The state of a path's trainer between phases: AdamW's moments, the data cursor, the compression residual of each
//! level, and with early stopping the best parameters. Within a phase, also the path's parameters.

use std::borrow::Cow;

use crate::config::{MOST_IN_A_ROUND, RunConfig, Unsent};
use crate::names::{BlobHash, PathId, Phase};
use crate::protocol::wire::message::UpdateHash;
use crate::training::{InnerState, InnerStateError, LevelReader, own_copy, put_levels};

const MAGIC: [u8; 4] = *b"PSTR";
/// For a fixed path, a drawn path with its number, a path with its best parameters, and a path with its own parameters.
const VERSIONS: [u16; 4] = [1, 2, 3, 4];
/// Of the phase, the nats and the flag `settled`.
const BEST_BYTES: usize = 20;
/// Of the base update of a level.
const OWN_BYTES: usize = 32;
const MIDDLE: [u8; 8] = *b"PSCK\x01\0\0\0";

/// The best parameters of a path on its held-out text.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// Before this phase.
    pub phase: Phase,
    /// Nats a token.
    pub nats: f64,
    /// Whether the run is over and the final parameters were no better.
    pub settled: bool,
    /// The parameters, level by level.
    pub levels: Vec<Vec<f32>>,
}

/// The path's own parameters with streaming, and the updates on which they are based.
#[derive(Clone, Debug, PartialEq)]
pub struct Own {
    /// For each level.
    pub base_states: Vec<UpdateHash>,
    /// The parameters, level by level.
    pub levels: Vec<Vec<f32>>,
}

/// A trainer state between two phases of one path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathState {
    /// In a run that samples paths, the path that was trained.
    pub drawn: Option<PathId>,
    /// The number of the trainer among those of the path, from 0.
    pub trainer_number: u16,
    /// AdamW and the cursor.
    pub inner: InnerState,
    /// For each level, the residual of the last compression.
    pub residuals: Vec<Vec<f32>>,
    /// With early stopping.
    pub best: Option<Best>,
    /// With streaming.
    pub own: Option<Own>,
}

#[derive(Debug, thiserror::Error)]
pub enum PathStateError {
    #[error("not a trainer's state of version {} to {}", VERSIONS[0], VERSIONS[3])]
    Header,
    #[error("a trainer's state of {found} bytes; a state of this model has {expected}")]
    Size { found: usize, expected: usize },
    /// Invalid best parameters or loss.
    #[error("a trainer's state with invalid best parameters")]
    Best,
    #[error("a trainer's state of another path")]
    OtherPath,
    #[error(transparent)]
    Inner(#[from] InnerStateError),
}

impl PathState {
    /// The state before the first phase of a path. The data cursor starts after earlier phases.
    pub fn fresh(drawn: Option<PathId>, sizes: &[usize], cursor: u64) -> Self {
        let inner = InnerState { cursor, ..InnerState::fresh(sizes) };
        let residuals = sizes.iter().map(|size| vec![0.0; *size]).collect();
        Self { drawn, trainer_number: 0, inner, residuals, best: None, own: None }
    }

    /// The path's own copy of its modules' parameters, level by level: without its unsent changes, if it keeps them.
    pub fn own_copy<'a>(&self, run: &RunConfig, replicated: &'a [Vec<f32>]) -> Cow<'a, [Vec<f32>]> {
        if !run.outer.keep_unsent {
            return Cow::Borrowed(replicated);
        }
        let own = |(level, parameters): (usize, &Vec<f32>)| match run.outer_of(level).unsent() {
            Unsent::Kept => own_copy(parameters, &self.residuals[level]),
            Unsent::Lost | Unsent::SentLater(_) => parameters.clone(),
        };
        replicated.iter().enumerate().map(own).collect()
    }

    /// The state for another trainer of the path: the moments of AdamW are about the same, but what this one has not sent
    /// is its own to send, and its place in the text is that of its own order.
    pub fn for_another_trainer(self, trainer_number: u16, cursor: u64) -> Self {
        let sizes: Vec<usize> = self.residuals.iter().map(Vec::len).collect();
        let inner = InnerState { cursor, ..self.inner };
        Self { trainer_number, inner, ..Self::fresh(self.drawn, &sizes, cursor) }
    }

    /// The state for another drawn path: residuals of common modules are kept. AdamW, which counts its steps for all
    /// levels at once, starts from zero.
    pub fn drawn_anew(self, drawn: PathId, stays: impl Fn(usize) -> bool, cursor: u64) -> Self {
        let sizes: Vec<usize> = self.residuals.iter().map(Vec::len).collect();
        let mut anew = Self { trainer_number: self.trainer_number, ..Self::fresh(Some(drawn), &sizes, cursor) };
        for (level, residual) in self.residuals.into_iter().enumerate().filter(|(level, _)| stays(*level)) {
            anew.residuals[level] = residual;
        }
        anew
    }

    /// `PSTR`, version u16, the trainer's number u16; in version 2 the path u32; in version 3 of the best parameters the phase u64, the
    /// nats f64, 1 or 0 u32 for `settled`, and the parameters; in version 4 the hash of the base update of each level,
    /// and the path's parameters; then the residuals, little endian f32, level by level; the inner state. A drawn path
    /// has no best parameters, and neither has own parameters between phases.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.most_bytes());
        self.put(&mut bytes);
        bytes
    }

    /// Appends the encoding of [`PathState::encode`].
    fn put(&self, bytes: &mut Vec<u8>) {
        let version = match (&self.best, self.drawn, &self.own) {
            (_, Some(_), _) => VERSIONS[1],
            (Some(_), None, _) => VERSIONS[2],
            (None, None, Some(_)) => VERSIONS[3],
            (None, None, None) => VERSIONS[0],
        };
        bytes.extend(MAGIC);
        bytes.extend(version.to_le_bytes());
        bytes.extend(self.trainer_number.to_le_bytes());
        bytes.extend(self.drawn.iter().flat_map(|path| path.0.to_le_bytes()));
        if let Some(best) = self.best.as_ref().filter(|_| self.drawn.is_none()) {
            bytes.extend(best.phase.0.to_le_bytes());
            bytes.extend(best.nats.to_le_bytes());
            bytes.extend(u32::from(best.settled).to_le_bytes());
            put_levels(bytes, &best.levels);
        }
        if let Some(own) = self.own.as_ref().filter(|_| version == VERSIONS[3]) {
            bytes.extend(own.base_states.iter().flat_map(|update| update.0));
            put_levels(bytes, &own.levels);
        }
        put_levels(bytes, &self.residuals);
        self.inner.put(bytes);
    }

    /// Upper bound of the encoding: a buffer that grows would delay the trainer.
    fn most_bytes(&self) -> usize {
        let sizes: Vec<usize> = self.residuals.iter().map(Vec::len).collect();
        let level_bytes = 4 * sizes.iter().sum::<usize>();
        let kept = usize::from(self.best.is_some()) + usize::from(self.own.is_some());
        let fixed = MAGIC.len() + 8 + BEST_BYTES + OWN_BYTES * sizes.len();
        fixed + (kept + 1) * level_bytes + InnerState::encoded_len(&sizes)
    }

    pub fn decode(bytes: &[u8], sizes: &[usize]) -> Result<Self, PathStateError> {
        let header = |version: u16| [&MAGIC[..], &version.to_le_bytes()].concat();
        let [rest, with_path, with_best, with_own] = VERSIONS.map(|version| {
            let (number, rest) = bytes.strip_prefix(&header(version)[..])?.split_first_chunk()?;
            Some((u16::from_le_bytes(*number), rest)).filter(|(number, _)| u32::from(*number) < MOST_IN_A_ROUND)
        });
        let numbered = rest.or(with_path).or(with_best).or(with_own);
        let (trainer_number, _) = numbered.ok_or(PathStateError::Header)?;
        let [rest, with_path, with_best, with_own] =
            [rest, with_path, with_best, with_own].map(|it| it.map(|(_, rest)| rest));
        let path_and_rest = with_path.and_then(|rest| rest.split_first_chunk());
        let drawn = path_and_rest.map(|(path, _)| PathId(u32::from_le_bytes(*path)));
        let rest = rest.or(path_and_rest.map(|(_, rest)| rest)).or(with_best).or(with_own);
        let rest = rest.ok_or(PathStateError::Header)?;
        let level_bytes = 4 * sizes.iter().sum::<usize>();
        let of_best = if with_best.is_some() { BEST_BYTES + level_bytes } else { 0 };
        let of_own = if with_own.is_some() { OWN_BYTES * sizes.len() + level_bytes } else { 0 };
        let expected = of_best + of_own + level_bytes + InnerState::encoded_len(sizes);
        if rest.len() != expected {
            let before = bytes.len() - rest.len();
            return Err(PathStateError::Size { found: bytes.len(), expected: before + expected });
        }
        let mut rest = LevelReader(rest);
        let best = with_best.map(|_| Best::read(&mut rest, sizes)).transpose()?;
        let own = with_own.map(|_| {
            let base_states = sizes.iter().map(|_| BlobHash(rest.bytes())).collect();
            Own { base_states, levels: rest.levels(sizes) }
        });
        let residuals = rest.levels(sizes);
        Ok(Self { drawn, trainer_number, inner: InnerState::decode(rest.0, sizes)?, residuals, best, own })
    }
}

impl Best {
    fn read(rest: &mut LevelReader<'_>, sizes: &[usize]) -> Result<Self, PathStateError> {
        let (phase, nats) = (Phase(rest.u64()), f64::from_bits(rest.u64()));
        let settled = match rest.u32() {
            0 => false,
            1 => true,
            _ => return Err(PathStateError::Best),
        };
        let levels = rest.levels(sizes);
        let finite = levels.iter().flatten().all(|value| value.is_finite());
        if nats.is_finite() && finite { Ok(Self { phase, nats, settled, levels }) } else { Err(PathStateError::Best) }
    }
}

/// A trainer state within a phase: an inner checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseState {
    /// Inner steps made in the phase.
    pub steps: u64,
    /// The path's parameters after them, level by level.
    pub levels: Vec<Vec<f32>>,
    /// AdamW and the cursor after them; the residuals from before the phase.
    pub state: PathState,
}

impl PhaseState {
    /// `PSCK`, version u16, 0 u16, the steps u64; the parameters, little endian f32, level by level; the trainer's state.
    pub fn encode(&self) -> Vec<u8> {
        let parameters: usize = self.levels.iter().map(Vec::len).sum();
        let mut bytes = Vec::with_capacity(MIDDLE.len() + 8 + 4 * parameters + self.state.most_bytes());
        bytes.extend(MIDDLE);
        bytes.extend(self.steps.to_le_bytes());
        put_levels(&mut bytes, &self.levels);
        self.state.put(&mut bytes);
        bytes
    }

    pub fn decode(bytes: &[u8], sizes: &[usize]) -> Result<Self, PathStateError> {
        let rest = bytes.strip_prefix(&MIDDLE).ok_or(PathStateError::Header)?;
        let least = 8 + 4 * sizes.iter().sum::<usize>();
        if rest.len() < least {
            return Err(PathStateError::Size { found: bytes.len(), expected: MIDDLE.len() + least });
        }
        let mut rest = LevelReader(rest);
        let (steps, levels) = (rest.u64(), rest.levels(sizes));
        Ok(Self { steps, levels, state: PathState::decode(rest.0, sizes)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_and_nothing_else_does() {
        let sizes = [3, 5];
        for drawn in [None, Some(PathId(258))] {
            let mut state = PathState::fresh(drawn, &sizes, 70);
            state.residuals[1][2] = 0.5;
            state.inner.moments[0][1][0] = 2.0;
            let bytes = state.encode();
            let header = if drawn.is_some() { &b"PSTR\x02\0\0\0\x02\x01\0\0"[..] } else { &b"PSTR\x01\0\0\0"[..] };
            assert!(bytes.starts_with(header));
            assert_eq!(PathState::decode(&bytes, &sizes).unwrap(), state);
            assert!(matches!(PathState::decode(&bytes, &[3, 6]), Err(PathStateError::Size { .. })));
            assert!(PathState::decode(&bytes[1..], &sizes).is_err());
            assert!((0..bytes.len()).all(|length| PathState::decode(&bytes[..length], &sizes).is_err()));
            for damaged in [0, 4, 7] {
                let mut broken = bytes.clone();
                broken[damaged] ^= 4;
                assert!(matches!(PathState::decode(&broken, &sizes), Err(PathStateError::Header)));
            }
            let third = PathState { trainer_number: 2, ..state.clone() };
            assert_eq!(PathState::decode(&third.encode(), &sizes).unwrap(), third);
            let second = third.for_another_trainer(1, 9);
            assert_eq!((second.trainer_number, second.inner.cursor, second.drawn), (1, 9, drawn));
            assert_eq!(second.inner.moments, state.inner.moments);
            assert_eq!(second.residuals, [vec![0.0; 3], vec![0.0; 5]]);
        }
    }

    #[test]
    fn what_a_path_was_best_with_comes_along_and_rubbish_does_not() {
        let sizes = [3, 5];
        let levels = vec![vec![1.0, -2.0, 0.5], vec![0.25; 5]];
        let best = Best { phase: Phase(258), nats: 3.5, settled: true, levels };
        let state = PathState { best: Some(best), ..PathState::fresh(None, &sizes, 70) };
        let bytes = state.encode();
        assert!(bytes.starts_with(b"PSTR\x03\0\0\0\x02\x01\0\0\0\0\0\0"));
        assert_eq!(PathState::decode(&bytes, &sizes).unwrap(), state);
        assert!((0..bytes.len()).all(|length| PathState::decode(&bytes[..length], &sizes).is_err()));
        for (at, to) in [(23, 0xff), (24, 2), (31, 0x7f)] {
            let mut broken = bytes.clone();
            broken[at] = to;
            broken[at - 1] = 0xff;
            assert!(matches!(PathState::decode(&broken, &sizes), Err(PathStateError::Best)), "byte {at}");
        }
        let drawn = PathState { drawn: Some(PathId(1)), ..state };
        assert_eq!(PathState::decode(&drawn.encode(), &sizes).unwrap().best, None);
    }

    #[test]
    fn what_a_path_has_made_of_its_levels_comes_along() {
        let sizes = [3, 5];
        let levels = vec![vec![1.0, -2.0, 0.5], vec![0.25; 5]];
        let own = Own { base_states: vec![BlobHash([1; 32]), BlobHash([2; 32])], levels };
        let state = PathState { own: Some(own), ..PathState::fresh(None, &sizes, 70) };
        let bytes = state.encode();
        assert!(bytes.starts_with(b"PSTR\x04\0\0\0\x01\x01"));
        assert_eq!(PathState::decode(&bytes, &sizes).unwrap(), state);
        assert!((0..bytes.len()).all(|length| PathState::decode(&bytes[..length], &sizes).is_err()));
        let drawn = PathState { drawn: Some(PathId(1)), ..state };
        assert_eq!(PathState::decode(&drawn.encode(), &sizes).unwrap().own, None);
    }

    #[test]
    fn another_path_keeps_what_compression_lost_of_the_modules_that_stay() {
        let mut state = PathState::fresh(Some(PathId(1)), &[2, 1], 70);
        (state.residuals, state.inner.steps) = (vec![vec![0.5, 0.25], vec![1.0]], 9);
        state.inner.moments[0][1][0] = 2.0;
        let anew = state.drawn_anew(PathId(2), |level| level == 0, 800);
        let expected = PathState::fresh(Some(PathId(2)), &[2, 1], 800);
        assert_eq!(anew, PathState { residuals: vec![vec![0.5, 0.25], vec![0.0]], ..expected });
    }

    #[test]
    fn the_middle_of_a_phase_comes_back_as_it_was_and_nothing_else_does() {
        let sizes = [3, 5];
        let levels = vec![vec![1.0, -2.0, 0.5], vec![0.25; 5]];
        let middle = PhaseState { steps: 258, levels, state: PathState::fresh(None, &sizes, 70) };
        let bytes = middle.encode();
        assert_eq!(bytes[..16], *b"PSCK\x01\0\0\0\x02\x01\0\0\0\0\0\0");
        assert_eq!(PhaseState::decode(&bytes, &sizes).unwrap(), middle);
        assert!(PhaseState::decode(&bytes, &[3, 6]).is_err());
        assert!(PhaseState::decode(&middle.state.encode(), &sizes).is_err());
        for damaged in [0, 4, 7, 48] {
            let mut broken = bytes.clone();
            broken[damaged] ^= 1;
            assert!(matches!(PhaseState::decode(&broken, &sizes), Err(PathStateError::Header)), "byte {damaged}");
        }
    }
}
