//! The replicated state of a module: everything on which its next update depends, in one canonical encoding.
//!
//! The BLAKE3 of that encoding is what an update attests, and also the name of the state as a blob. Two members with
//! the same hash hold the same bits.

use std::io::{self, Write};

use rayon::prelude::*;

use super::CHUNK_VALUES;
use super::delayed::{self, Gathered, Share};
use super::nesterov;
use crate::config::OuterMode;
use crate::names::{ModuleId, Version};

const MAGIC: [u8; 4] = *b"pswm";
/// Parameters and momentum.
const FORMAT_SYNCHRONOUS: u16 = 1;
/// The same, and the averages gathered for the momentum.
const FORMAT_ASYNCHRONOUS: u16 = 2;
const HEADER_BYTES: usize = 28;

/// Values converted to bytes at a time.
const WRITTEN_VALUES: usize = 1 << 16;

/// The largest magnitude of an average that is applied. The exact sum stops at 8, and √P is at most √2²⁰ = 1024. The
/// rest is for the rounding of the codec. It keeps parameters finite for longer than any run.
const MAX_AVERAGE: f32 = 16384.0;

/// A module's parameters and the state of its outer optimiser, at one version.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleState {
    pub module: ModuleId,
    /// Number of updates.
    pub version: Version,
    pub parameters: Vec<f32>,
    pub momentum: Vec<f32>,
    /// In the asynchronous mode, the averages gathered for the momentum.
    pub gathered: Option<Gathered>,
}

/// Why bytes are not the expected state, or an average cannot be applied.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum StateError {
    #[error("not a module's state")]
    NotAState,
    #[error("format version {0} of the module's state is unknown; this program reads versions 1 and 2")]
    Version(u16),
    #[error("the state is of module {found}, expected {expected}")]
    Module { found: ModuleId, expected: ModuleId },
    #[error("module {module}: expected {expected} values, found {found}")]
    Count { module: ModuleId, found: u64, expected: usize },
    #[error("the state is {found} bytes long, expected {expected}")]
    Size { found: usize, expected: u64 },
    #[error("module {0}: a value is not finite, or too large for an update")]
    Unfit(ModuleId),
}

impl ModuleState {
    /// Version 0: these parameters, with zero momentum.
    pub fn initial(module: ModuleId, parameters: Vec<f32>, mode: OuterMode) -> Self {
        let momentum = vec![0.0; parameters.len()];
        let gathered = match mode {
            OuterMode::Synchronous => None,
            OuterMode::Asynchronous => Some(Gathered::nothing(parameters.len())),
        };
        Self { module, version: Version(0), parameters, momentum, gathered }
    }

    /// Applies an update: one Nesterov step, and the next version. The share of a round matters only to the delayed
    /// momentum of the asynchronous mode.
    pub fn apply(
        &mut self,
        average: &[f32],
        share: Share,
        learning_rate: f32,
        momentum_factor: f32,
    ) -> Result<(), StateError> {
        let (module, expected) = (self.module, self.parameters.len());
        let gathers_as_many = self.gathered.as_ref().is_none_or(|gathered| gathered.sum.len() == expected);
        if average.len() != expected || self.momentum.len() != expected || !gathers_as_many {
            return Err(StateError::Count { module, found: average.len() as u64, expected });
        }
        if !all_within(average, MAX_AVERAGE) {
            return Err(StateError::Unfit(module));
        }
        let (parameters, momentum) = (&mut self.parameters, &mut self.momentum);
        match &mut self.gathered {
            None => nesterov::step(parameters, momentum, average, learning_rate, momentum_factor),
            Some(gathered) => {
                delayed::step(parameters, momentum, gathered, average, share, learning_rate, momentum_factor);
            }
        }
        self.version = self.version.next();
        Ok(())
    }

    /// Size of an encoded state with `count` parameters.
    pub fn size_bytes(count: usize, mode: OuterMode) -> u64 {
        let values = (size_of::<f32>() as u64).saturating_mul(count as u64);
        let (fixed, kinds) = match mode {
            OuterMode::Synchronous => (0, 2),
            OuterMode::Asynchronous => (size_of::<u64>() as u64, 3),
        };
        (HEADER_BYTES as u64 + fixed).saturating_add(values.saturating_mul(kinds))
    }

    fn mode(&self) -> OuterMode {
        if self.gathered.is_some() { OuterMode::Asynchronous } else { OuterMode::Synchronous }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::size_bytes(self.parameters.len(), self.mode()) as usize);
        self.write_to(&mut bytes).expect("a vector takes all bytes");
        bytes
    }

    /// Writes the canonical encoding, without a second copy of it in memory.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut header = Vec::with_capacity(HEADER_BYTES + size_of::<u64>());
        header.extend(MAGIC);
        header.extend(match self.mode() {
            OuterMode::Synchronous => FORMAT_SYNCHRONOUS.to_le_bytes(),
            OuterMode::Asynchronous => FORMAT_ASYNCHRONOUS.to_le_bytes(),
        });
        header.extend(self.module.level.to_le_bytes());
        header.extend(self.module.expert.to_le_bytes());
        header.extend(self.version.0.to_le_bytes());
        header.extend((self.parameters.len() as u64).to_le_bytes());
        header.extend(self.gathered.iter().flat_map(|gathered| gathered.weight.to_le_bytes()));
        out.write_all(&header)?;
        let mut buffer = vec![0; WRITTEN_VALUES * size_of::<f32>()];
        let sum = self.gathered.as_ref().map_or(&[][..], |gathered| &gathered.sum);
        for values in [&self.parameters, &self.momentum, sum].into_iter().flat_map(|part| part.chunks(WRITTEN_VALUES)) {
            for (bytes, value) in buffer.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                *bytes = value.to_le_bytes();
            }
            out.write_all(&buffer[..size_of_val(values)])?;
        }
        Ok(())
    }

    /// Decodes the state of the module `expected` with `count` parameters.
    pub fn decode(bytes: &[u8], expected: ModuleId, count: usize) -> Result<Self, StateError> {
        let (header, values) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(StateError::NotAState)?;
        let (magic, fields) = header.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(StateError::NotAState);
        }
        let format = u16::from_le_bytes(field(fields, 0));
        let mode = match format {
            FORMAT_SYNCHRONOUS => OuterMode::Synchronous,
            FORMAT_ASYNCHRONOUS => OuterMode::Asynchronous,
            _ => return Err(StateError::Version(format)),
        };
        let found =
            ModuleId { level: u16::from_le_bytes(field(fields, 2)), expert: u32::from_le_bytes(field(fields, 4)) };
        if found != expected {
            return Err(StateError::Module { found, expected });
        }
        let version = Version(u64::from_le_bytes(field(fields, 8)));
        let stated = u64::from_le_bytes(field(fields, 16));
        if stated != count as u64 {
            return Err(StateError::Count { module: expected, found: stated, expected: count });
        }
        let size = Self::size_bytes(count, mode);
        if bytes.len() as u64 != size {
            return Err(StateError::Size { found: bytes.len(), expected: size });
        }
        let (weight, values) = match mode {
            OuterMode::Synchronous => (0, values),
            OuterMode::Asynchronous => (u64::from_le_bytes(field(values, 0)), &values[size_of::<u64>()..]),
        };
        let mut parts = values.chunks((size_of::<f32>() * count).max(1)).map(floats);
        let (parameters, momentum) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let sum = parts.next().unwrap_or_default();
        let gathered = (mode == OuterMode::Asynchronous).then_some(Gathered { weight, sum });
        let state = Self { module: expected, version, parameters, momentum, gathered };
        let sum = state.gathered.as_ref().map_or(&[][..], |gathered| &gathered.sum);
        let finite = [&state.parameters, &state.momentum, sum].into_iter().all(|values| all_within(values, f32::MAX));
        if finite { Ok(state) } else { Err(StateError::Unfit(expected)) }
    }
}

/// `N` bytes of the header at `at`. Both are constants within it.
fn field<const N: usize>(fields: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&fields[at..at + N]);
    bytes
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.par_iter().with_min_len(CHUNK_VALUES).map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// False if a value is beyond the bound or not finite.
fn all_within(values: &[f32], bound: f32) -> bool {
    let largest = |values: &[f32]| values.iter().fold(0, |most: u32, value| most.max(value.abs().to_bits()));
    values.par_chunks(CHUNK_VALUES).all(|values| largest(values) <= bound.to_bits())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state(count: usize) -> ModuleState {
        let module = ModuleId { level: 3, expert: 70_000 };
        let parameters: Vec<f32> = (0..count).map(|i| (i as f32).cos()).collect();
        let momentum = parameters.iter().map(|value| value * -0.5).collect();
        ModuleState { module, version: Version(258), parameters, momentum, gathered: None }
    }

    /// The same in the asynchronous mode.
    fn asynchronous(count: usize) -> ModuleState {
        let state = state(count);
        let sum = state.parameters.iter().map(|value| value * 0.25).collect();
        ModuleState { gathered: Some(Gathered { weight: 513, sum }), ..state }
    }

    #[test]
    fn the_encoding_is_as_documented() {
        let state = ModuleState { parameters: vec![1.0, -0.0], momentum: vec![0.5, 2.0], ..state(0) };
        let expected = [
            &b"pswm"[..],
            &[1, 0, 3, 0],
            &[0x70, 0x11, 1, 0],
            &[2, 1, 0, 0, 0, 0, 0, 0],
            &[2, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0x80, 0x3f, 0, 0, 0, 0x80],
            &[0, 0, 0, 0x3f, 0, 0, 0, 0x40],
        ];
        assert_eq!(state.encode(), expected.concat());
        assert_eq!(state.encode().len() as u64, ModuleState::size_bytes(2, OuterMode::Synchronous));
        let sum = vec![-1.0, 0.0];
        let asynchronous = ModuleState { gathered: Some(Gathered { weight: 513, sum }), ..state };
        let mut longer = expected.concat();
        longer[4] = 2;
        longer.splice(28..28, [1, 2, 0, 0, 0, 0, 0, 0]);
        longer.extend([0, 0, 0x80, 0xbf, 0, 0, 0, 0]);
        assert_eq!(asynchronous.encode(), longer);
        assert_eq!(longer.len() as u64, ModuleState::size_bytes(2, OuterMode::Asynchronous));
    }

    #[test]
    fn a_state_comes_back_the_same() {
        for count in [0, 1, WRITTEN_VALUES - 1, WRITTEN_VALUES, 2 * WRITTEN_VALUES + 5] {
            for state in [state(count), asynchronous(count)] {
                let bytes = state.encode();
                assert_eq!(ModuleState::decode(&bytes, state.module, count), Ok(state));
            }
        }
    }

    #[test]
    fn every_field_of_a_state_changes_its_bytes() {
        let original = state(3);
        let mut others = vec![original.clone(); 5];
        others[0].version = Version(259);
        others[1].module.level = 4;
        others[2].module.expert = 0;
        others[3].parameters[2] = -original.parameters[2];
        others[4].momentum[0] = 0.0;
        others.push(ModuleState { gathered: Some(Gathered::nothing(3)), ..original.clone() });
        assert!(others.iter().all(|other| other.encode() != original.encode()));
        let original = asynchronous(3);
        let mut others = vec![original.clone(); 2];
        others[0].gathered.as_mut().unwrap().weight += 1;
        others[1].gathered.as_mut().unwrap().sum[2] = 0.0;
        assert!(others.iter().all(|other| other.encode() != original.encode()));
    }

    #[test]
    fn only_the_expected_state_is_accepted() {
        let good = state(3);
        let bytes = good.encode();
        let decode = |bytes: &[u8]| ModuleState::decode(bytes, good.module, 3);
        let longer = asynchronous(3).encode();
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err());
        }
        for length in 0..longer.len() {
            assert!(decode(&longer[..length]).is_err());
        }
        assert!(matches!(decode(&[&bytes[..], &[0]].concat()), Err(StateError::Size { .. })));
        let other = ModuleId { level: 3, expert: 1 };
        assert!(matches!(ModuleState::decode(&bytes, other, 3), Err(StateError::Module { .. })));
        assert!(matches!(ModuleState::decode(&bytes, good.module, 4), Err(StateError::Count { found: 3, .. })));
        let mut newer = bytes.clone();
        newer[4] = 3;
        assert_eq!(decode(&newer), Err(StateError::Version(3)));
        for bad in [f32::NAN, f32::INFINITY] {
            let bad = ModuleState { momentum: vec![0.0, 0.0, bad], ..good.clone() };
            assert_eq!(decode(&bad.encode()), Err(StateError::Unfit(good.module)));
        }
        let sum = vec![0.0, f32::NAN, 0.0];
        let bad = ModuleState { gathered: Some(Gathered { weight: 1, sum }), ..good.clone() };
        assert_eq!(decode(&bad.encode()), Err(StateError::Unfit(good.module)));
    }

    #[test]
    fn an_invalid_average_changes_nothing() {
        for good in [state(3), asynchronous(3)] {
            let mut state = good.clone();
            for average in [&[0.1, 0.1][..], &[0.1, f32::NAN, 0.1], &[0.1, 0.1, 20_000.0]] {
                assert!(state.apply(average, Share::FULL, 0.7, 0.9).is_err());
                assert_eq!(state, good);
            }
            state.apply(&[0.1, 0.0, -0.1], Share::FULL, 0.7, 0.9).unwrap();
            assert_eq!(state.version, Version(259));
            assert!(state.parameters[0] != good.parameters[0]);
        }
    }

    #[test]
    fn full_rounds_give_the_same_state_in_both_modes() {
        let module = ModuleId { level: 0, expert: 1 };
        let initial = |mode| ModuleState::initial(module, vec![0.5, -2.0, 0.0], mode);
        let (mut plain, mut delayed) = (initial(OuterMode::Synchronous), initial(OuterMode::Asynchronous));
        for step in 0..5 {
            let average = [0.1 * step as f32, -0.0, 1.5];
            plain.apply(&average, Share::new(3, 7), 0.7, 0.9).unwrap();
            delayed.apply(&average, Share::FULL, 0.7, 0.9).unwrap();
            assert_eq!(ModuleState { gathered: None, ..delayed.clone() }, plain);
        }
        delayed.apply(&[0.1; 3], Share::new(3, 7), 0.7, 0.9).unwrap();
        assert_eq!(delayed.gathered.as_ref().unwrap().weight, 3);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), count in 0usize..9) {
            let _ = ModuleState::decode(&bytes, ModuleId { level: 0, expert: 0 }, count);
            for format in [1, 2] {
                let likely = [&b"pswm"[..], &[format, 0, 0, 0, 0, 0, 0, 0], &bytes].concat();
                let _ = ModuleState::decode(&likely, ModuleId { level: 0, expert: 0 }, count);
            }
        }
    }
}
