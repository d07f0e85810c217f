//! The replicated state of a module: everything its next update depends on, in one canonical encoding.
//!
//! The BLAKE3 of that encoding is what an update attests, and also the name under which the state is stored and
//! fetched as a blob. Two members with the same hash hold the same bits.

use std::io::{self, Write};

use rayon::prelude::*;

use super::CHUNK_VALUES;
use super::nesterov;
use crate::names::{BlobHash, ModuleId, Version};

const MAGIC: [u8; 4] = *b"pswm";
const FORMAT_VERSION: u16 = 1;
const HEADER_BYTES: usize = 28;

/// Values turned into bytes at a time, when writing.
const WRITTEN_VALUES: usize = 1 << 16;

/// The largest magnitude of an average that is applied. The exact sum stops at 8, and √P is at most √2²⁰ = 1024; this
/// leaves room for the codec's rounding, and keeps parameters finite for longer than any run.
const MAX_AVERAGE: f32 = 16384.0;

/// A module's parameters and the state of its outer optimiser, at one version.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleState {
    /// Which module.
    pub module: ModuleId,
    /// How many updates it has had.
    pub version: Version,
    /// Its parameters, flat.
    pub parameters: Vec<f32>,
    /// Nesterov's momentum, as many values.
    pub momentum: Vec<f32>,
}

/// Why bytes are not the expected state, or an average cannot be applied.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum StateError {
    /// Another kind of file.
    #[error("not a module's state")]
    NotAState,
    /// Written by a newer program.
    #[error("format version {0} of the module's state is unknown; this program reads version {FORMAT_VERSION}")]
    Version(u16),
    /// Another module's.
    #[error("the state is of module {found}, expected {expected}")]
    Module {
        /// What its header says.
        found: ModuleId,
        /// What was asked for.
        expected: ModuleId,
    },
    /// Too few or too many bytes or values.
    #[error("module {module}: expected {expected} values, found {found}")]
    Count {
        /// Whose.
        module: ModuleId,
        /// Values found.
        found: u64,
        /// Values of the module.
        expected: usize,
    },
    /// The bytes are not as many as the header says.
    #[error("the state is {found} bytes long, expected {expected}")]
    Size {
        /// Bytes found.
        found: usize,
        /// Bytes that the header asks for.
        expected: u64,
    },
    /// NaN, infinity, or an average no sum can give.
    #[error("module {0}: a value is not finite, or too large for an update")]
    Unfit(ModuleId),
}

impl ModuleState {
    /// Version 0: these parameters, momentum at rest.
    pub fn initial(module: ModuleId, parameters: Vec<f32>) -> Self {
        let momentum = vec![0.0; parameters.len()];
        Self { module, version: Version(0), parameters, momentum }
    }

    /// Applies an update: one Nesterov step, and the next version.
    ///
    /// # Errors
    /// If the average is of another length, not finite or beyond what an exact sum can give. The state is as it was.
    pub fn apply(&mut self, average: &[f32], learning_rate: f32, momentum_factor: f32) -> Result<(), StateError> {
        let (module, expected) = (self.module, self.parameters.len());
        if average.len() != expected || self.momentum.len() != expected {
            return Err(StateError::Count { module, found: average.len() as u64, expected });
        }
        if !all_within(average, MAX_AVERAGE) {
            return Err(StateError::Unfit(module));
        }
        nesterov::step(&mut self.parameters, &mut self.momentum, average, learning_rate, momentum_factor);
        self.version = self.version.next();
        Ok(())
    }

    /// Bytes of an encoded state with `count` parameters.
    pub fn size_bytes(count: usize) -> u64 {
        HEADER_BYTES as u64 + 2 * size_of::<f32>() as u64 * count as u64
    }

    /// The canonical encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::size_bytes(self.parameters.len()) as usize);
        self.write_to(&mut bytes).expect("a vector takes all bytes");
        bytes
    }

    /// Writes the canonical encoding, without a second copy of it in memory.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(MAGIC);
        header.extend(FORMAT_VERSION.to_le_bytes());
        header.extend(self.module.level.to_le_bytes());
        header.extend(self.module.expert.to_le_bytes());
        header.extend(self.version.0.to_le_bytes());
        header.extend((self.parameters.len() as u64).to_le_bytes());
        out.write_all(&header)?;
        let mut buffer = vec![0; WRITTEN_VALUES * size_of::<f32>()];
        for values in self.parameters.chunks(WRITTEN_VALUES).chain(self.momentum.chunks(WRITTEN_VALUES)) {
            for (bytes, value) in buffer.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                *bytes = value.to_le_bytes();
            }
            out.write_all(&buffer[..size_of_val(values)])?;
        }
        Ok(())
    }

    /// BLAKE3 of the canonical encoding.
    pub fn hash(&self) -> BlobHash {
        let mut hasher = blake3::Hasher::new();
        self.write_to(&mut hasher).expect("a hasher takes all bytes");
        BlobHash(*hasher.finalize().as_bytes())
    }

    /// The state in these bytes, if it is of the module `expected`, which has `count` parameters.
    ///
    /// # Errors
    /// If the bytes are anything but exactly that, or a value is not finite.
    pub fn decode(bytes: &[u8], expected: ModuleId, count: usize) -> Result<Self, StateError> {
        let (header, values) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(StateError::NotAState)?;
        let (magic, fields) = header.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(StateError::NotAState);
        }
        let format = u16::from_le_bytes(field(fields, 0));
        if format != FORMAT_VERSION {
            return Err(StateError::Version(format));
        }
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
        if bytes.len() as u64 != Self::size_bytes(count) {
            return Err(StateError::Size { found: bytes.len(), expected: Self::size_bytes(count) });
        }
        let (parameters, momentum) = values.split_at(values.len() / 2);
        let state = Self { module: expected, version, parameters: floats(parameters), momentum: floats(momentum) };
        let finite = all_within(&state.parameters, f32::MAX) && all_within(&state.momentum, f32::MAX);
        if finite { Ok(state) } else { Err(StateError::Unfit(expected)) }
    }
}

/// `N` bytes of the header at `at`; both are constants that lie within it.
fn field<const N: usize>(fields: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&fields[at..at + N]);
    bytes
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.par_iter().with_min_len(CHUNK_VALUES).map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// False if any value is beyond the bound or not finite.
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
        ModuleState { module, version: Version(258), parameters, momentum }
    }

    #[test]
    fn the_encoding_is_what_the_document_says() {
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
        assert_eq!(state.encode().len() as u64, ModuleState::size_bytes(2));
    }

    #[test]
    fn hash_and_blob_name_are_one() {
        for count in [0, 1, WRITTEN_VALUES - 1, WRITTEN_VALUES, 2 * WRITTEN_VALUES + 5] {
            let state = state(count);
            let bytes = state.encode();
            assert_eq!(state.hash(), BlobHash::of(&bytes));
            assert_eq!(ModuleState::decode(&bytes, state.module, count), Ok(state));
        }
    }

    #[test]
    fn everything_in_a_state_changes_its_hash() {
        let original = state(3);
        let mut others = vec![original.clone(); 5];
        others[0].version = Version(259);
        others[1].module.level = 4;
        others[2].module.expert = 0;
        others[3].parameters[2] = -original.parameters[2];
        others[4].momentum[0] = 0.0;
        assert!(others.iter().all(|other| other.hash() != original.hash()));
    }

    #[test]
    fn only_the_expected_state_is_accepted() {
        let good = state(3);
        let bytes = good.encode();
        let decode = |bytes: &[u8]| ModuleState::decode(bytes, good.module, 3);
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err());
        }
        assert!(matches!(decode(&[&bytes[..], &[0]].concat()), Err(StateError::Size { .. })));
        let other = ModuleId { level: 3, expert: 1 };
        assert!(matches!(ModuleState::decode(&bytes, other, 3), Err(StateError::Module { .. })));
        assert!(matches!(ModuleState::decode(&bytes, good.module, 4), Err(StateError::Count { found: 3, .. })));
        let mut newer = bytes.clone();
        newer[4] = 2;
        assert_eq!(decode(&newer), Err(StateError::Version(2)));
        for bad in [f32::NAN, f32::INFINITY] {
            let bad = ModuleState { momentum: vec![0.0, 0.0, bad], ..good.clone() };
            assert_eq!(decode(&bad.encode()), Err(StateError::Unfit(good.module)));
        }
    }

    #[test]
    fn an_update_that_cannot_be_right_changes_nothing() {
        let good = state(3);
        let mut state = good.clone();
        for average in [&[0.1, 0.1][..], &[0.1, f32::NAN, 0.1], &[0.1, 0.1, 20_000.0]] {
            assert!(state.apply(average, 0.7, 0.9).is_err());
            assert_eq!(state, good);
        }
        state.apply(&[0.1, 0.0, -0.1], 0.7, 0.9).unwrap();
        assert_eq!(state.version, Version(259));
        assert!(state.parameters[0] != good.parameters[0]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), count in 0usize..9) {
            let _ = ModuleState::decode(&bytes, ModuleId { level: 0, expert: 0 }, count);
            let mut likely = b"pswm\x01\0\0\0\0\0\0\0".to_vec();
            likely.extend(bytes);
            let _ = ModuleState::decode(&likely, ModuleId { level: 0, expert: 0 }, count);
        }
    }
}
