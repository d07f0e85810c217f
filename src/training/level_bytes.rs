//! Encoding of values, level by level, little endian f32, for everything that a trainer stores.

pub fn put_levels<'a>(bytes: &mut Vec<u8>, levels: impl IntoIterator<Item = &'a Vec<f32>>) {
    for level in levels {
        let before = bytes.len();
        bytes.resize(before + 4 * level.len(), 0);
        // One copy: value by value, ten million values would delay a trainer.
        for (place, value) in bytes[before..].as_chunks_mut().0.iter_mut().zip(level) {
            *place = value.to_le_bytes();
        }
    }
}

/// Reads bytes whose length the caller has checked.
pub struct LevelReader<'a>(pub &'a [u8]);

impl LevelReader<'_> {
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_first_chunk().expect("the length was checked against the sizes");
        self.0 = rest;
        *taken
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    pub fn values(&mut self, count: usize) -> Vec<f32> {
        let (taken, rest) = self.0.split_at(4 * count);
        self.0 = rest;
        taken.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
    }

    /// The values of levels of these sizes.
    pub fn levels(&mut self, sizes: &[usize]) -> Vec<Vec<f32>> {
        sizes.iter().map(|size| self.values(*size)).collect()
    }
}
