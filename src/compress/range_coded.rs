//! Encoding of the positions and marks of a few values in nearly the fewest possible bits.
//!
//! A position is encoded as its distance from the one before. The class of the distance, its highest bit and the next
//! one, goes through a range coder with the chunk's own frequencies; its lower bits are stored plainly. Likewise, the
//! upper bits of a mark go through the range coder, and its lowest bit, a sign, is stored plainly.
//! `docs/results/compression.md` compares this with other encodings.

use constriction::stream::model::ContiguousCategoricalEntropyModel;
use constriction::stream::queue::{DefaultRangeDecoder, DefaultRangeEncoder};
use constriction::stream::{Decode, Encode};

use super::quantize::PayloadError;

/// Frequencies add up to 2 to this power.
const PRECISION: usize = 12;
const WHOLE: u32 = 1 << PRECISION;

/// Of distances below 2^18: two for each highest bit.
const MOST_CLASSES: usize = 36;

type Frequencies = ContiguousCategoricalEntropyModel<u32, Vec<u32>, PRECISION>;

/// Positions in rising order, with a mark each.
#[derive(Default)]
pub(super) struct Kept {
    places: Vec<u32>,
    marks: Vec<u8>,
}

impl Kept {
    pub fn clear(&mut self) {
        self.places.clear();
        self.marks.clear();
    }

    /// Adds a position after the last one.
    pub fn push(&mut self, place: u32, mark: u8) {
        self.places.push(place);
        self.marks.push(mark);
    }

    /// The number of positions between each one and the one before.
    fn distances(&self) -> impl Iterator<Item = u32> {
        let mut next = 0;
        self.places.iter().map(move |place| {
            let distance = place - next;
            next = place + 1;
            distance
        })
    }
}

/// A distance's class, and its number of plain lower bits.
fn class_of(distance: u32) -> (usize, u32) {
    if distance < 2 {
        return (distance as usize, 0);
    }
    let highest = distance.ilog2();
    (2 * highest as usize + (distance >> (highest - 1) & 1) as usize, highest - 1)
}

/// The smallest distance of a class, and its number of lower bits.
fn distances_of(class: usize) -> (u32, u32) {
    match class {
        0 | 1 => (class as u32, 0),
        _ => {
            let lower = class as u32 / 2 - 1;
            ((2 | class as u32 & 1) << lower, lower)
        }
    }
}

/// Appends the encoding. `marks` is the number of different marks, without their lowest bit.
pub(super) fn write(kept: &Kept, marks: usize, bytes: &mut Vec<u8>) {
    bytes.extend((kept.places.len() as u32).to_le_bytes());
    if kept.places.is_empty() {
        return;
    }
    let (mut of_classes, mut of_marks) = ([0; MOST_CLASSES], [0; 128]);
    for (distance, mark) in kept.distances().zip(&kept.marks) {
        of_classes[class_of(distance).0] += 1;
        of_marks[usize::from(mark >> 1)] += 1;
    }
    // At least two, as the range coder requires.
    let classes = of_classes.iter().rposition(|count| *count > 0).map_or(2, |last| (last + 1).max(2));
    bytes.push(classes as u8);
    let classes = write_frequencies(&of_classes[..classes], bytes);
    let marks = write_frequencies(&of_marks[..marks.max(2)], bytes);
    let (mut coder, mut plain) = (DefaultRangeEncoder::new(), PlainBits::default());
    for (distance, mark) in kept.distances().zip(&kept.marks) {
        let (class, lower) = class_of(distance);
        let told =
            coder.encode_symbol(class, &classes).and_then(|()| coder.encode_symbol(usize::from(mark >> 1), &marks));
        told.expect("each symbol has a frequency, and the coder's memory grows");
        plain.push((distance & ((1 << lower) - 1)) << 1 | u32::from(mark & 1), lower + 1);
    }
    let plain = plain.finish();
    bytes.extend((plain.len() as u32).to_le_bytes());
    bytes.extend(plain);
    let words: Vec<u32> = coder.into();
    bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
}

/// Converts counts to frequencies above zero.
fn write_frequencies(counts: &[u32], bytes: &mut Vec<u8>) -> Frequencies {
    let all: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    let spare = WHOLE - counts.len() as u32;
    let mut frequencies: Vec<u32> =
        counts.iter().map(|count| 1 + (u64::from(*count) * u64::from(spare) / all.max(1)) as u32).collect();
    let left = WHOLE - frequencies.iter().sum::<u32>();
    let most = (0..counts.len()).max_by_key(|at| counts[*at]).unwrap_or(0);
    frequencies[most] += left;
    bytes.extend(frequencies.iter().flat_map(|frequency| (*frequency as u16).to_le_bytes()));
    model(&frequencies).expect("they add up to the whole, and none is zero")
}

fn model(frequencies: &[u32]) -> Option<Frequencies> {
    Frequencies::from_nonzero_fixed_point_probabilities(frequencies, false).ok()
}

/// Calls `each` with every position and its mark.
pub(super) fn read(
    bytes: &[u8],
    count: usize,
    marks: usize,
    mut each: impl FnMut(usize, u8) -> Result<(), PayloadError>,
) -> Result<(), PayloadError> {
    let mut rest = bytes;
    let kept = u32::from_le_bytes(*take(&mut rest)?) as usize;
    if kept == 0 {
        return if rest.is_empty() { Ok(()) } else { Err(PayloadError::Padding) };
    }
    let [classes] = *take(&mut rest)?;
    if kept > count || !(2..=MOST_CLASSES).contains(&usize::from(classes)) {
        return Err(PayloadError::Unfit);
    }
    let classes = read_frequencies(&mut rest, usize::from(classes))?;
    let of_marks = read_frequencies(&mut rest, marks.max(2))?;
    let plain_bytes = u32::from_le_bytes(*take(&mut rest)?) as usize;
    let (plain, words) = rest.split_at_checked(plain_bytes).ok_or(PayloadError::Unfit)?;
    let (words, odd) = words.as_chunks::<4>();
    if !odd.is_empty() {
        return Err(PayloadError::Unfit);
    }
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let (mut coder, mut plain) =
        (DefaultRangeDecoder::from_compressed(words).map_err(|_| PayloadError::Unfit)?, Plain::of(plain));
    let mut next = 0;
    for _ in 0..kept {
        let class = coder.decode_symbol(&classes).map_err(|_| PayloadError::Unfit)?;
        let mark = coder.decode_symbol(&of_marks).map_err(|_| PayloadError::Unfit)?;
        let (least, lower) = distances_of(class);
        let told = plain.next(lower + 1).ok_or(PayloadError::Unfit)?;
        let place = next + (least + (told >> 1)) as usize;
        if place >= count || mark >= marks {
            return Err(PayloadError::Unfit);
        }
        each(place, (mark as u8) << 1 | (told & 1) as u8)?;
        next = place + 1;
    }
    if coder.maybe_exhausted() && plain.is_over() { Ok(()) } else { Err(PayloadError::Padding) }
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Result<&'a [u8; N], PayloadError> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(PayloadError::Unfit)?;
    *bytes = rest;
    Ok(taken)
}

fn read_frequencies(bytes: &mut &[u8], count: usize) -> Result<Frequencies, PayloadError> {
    let mut frequencies = Vec::with_capacity(count);
    for _ in 0..count {
        frequencies.push(u32::from(u16::from_le_bytes(*take(bytes)?)));
    }
    let whole = frequencies.iter().sum::<u32>() == WHOLE && !frequencies.contains(&0);
    model(&frequencies).filter(|_| whole).ok_or(PayloadError::Unfit)
}

/// Plain bits, the lowest first, 32 at a time.
#[derive(Default)]
struct PlainBits {
    bytes: Vec<u8>,
    pending: u64,
    count: u32,
}

impl PlainBits {
    /// At most 32 bits.
    fn push(&mut self, bits: u32, count: u32) {
        self.pending |= u64::from(bits) << self.count;
        self.count += count;
        if self.count >= 32 {
            self.bytes.extend((self.pending as u32).to_le_bytes());
            self.pending >>= 32;
            self.count -= 32;
        }
    }

    fn finish(mut self) -> Vec<u8> {
        let bytes = self.count.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.pending.to_le_bytes()[..bytes]);
        self.bytes
    }
}

/// Reads plain bits.
struct Plain<'a> {
    bytes: &'a [u8],
    pending: u64,
    count: u32,
}

impl<'a> Plain<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, pending: 0, count: 0 }
    }

    fn next(&mut self, count: u32) -> Option<u32> {
        while self.count < count {
            let (byte, rest) = self.bytes.split_first()?;
            self.pending |= u64::from(*byte) << self.count;
            (self.bytes, self.count) = (rest, self.count + 8);
        }
        let bits = self.pending & ((1 << count) - 1);
        self.pending >>= count;
        self.count -= count;
        Some(bits as u32)
    }

    /// Whether only the zeros that pad the last byte remain.
    fn is_over(&self) -> bool {
        self.bytes.is_empty() && self.count < 8 && self.pending == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_distance_is_its_class_and_its_lower_bits() {
        for distance in 0..1 << 18 {
            let (class, lower) = class_of(distance);
            let (least, bits) = distances_of(class);
            assert!(class < MOST_CLASSES && bits == lower && least <= distance && distance - least < 1 << lower);
        }
    }

    fn read_all(bytes: &[u8], count: usize, marks: usize) -> Result<Vec<(u32, u8)>, PayloadError> {
        let mut all = Vec::new();
        read(bytes, count, marks, |place, mark| {
            all.push((place as u32, mark));
            Ok(())
        })?;
        Ok(all)
    }

    proptest! {
        #[test]
        fn places_and_marks_come_back(
            places in prop::collection::btree_set(0u32..1 << 18, 0..400),
            marks in prop::collection::vec(0u8..14, 400),
        ) {
            let expected: Vec<(u32, u8)> = places.into_iter().zip(marks).collect();
            let mut kept = Kept::default();
            expected.iter().for_each(|(place, mark)| kept.push(*place, *mark));
            let mut bytes = Vec::new();
            write(&kept, 7, &mut bytes);
            prop_assert_eq!(read_all(&bytes, 1 << 18, 7).unwrap(), expected);
        }

        #[test]
        fn no_changed_bytes_make_it_panic(
            places in prop::collection::btree_set(0u32..1000, 1..200),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut kept = Kept::default();
            places.iter().for_each(|place| kept.push(*place, (*place % 4) as u8));
            let mut bytes = Vec::new();
            write(&kept, 2, &mut bytes);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(all) = read_all(&bytes, 1000, 2) {
                prop_assert!(all.is_sorted_by(|a, b| a.0 < b.0) && all.iter().all(|(place, mark)| *place < 1000 && *mark < 4));
            }
        }
    }

    #[test]
    fn few_of_many_take_what_there_is_to_know() {
        // One of 64 at random and two equal marks: 64 · 0.116 bits of positions, 2 bits of marks.
        let mut kept = Kept::default();
        let mut state = 1u32;
        for place in 0..1 << 18 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if state >> 26 == 0 {
                kept.push(place, (state >> 8) as u8 & 3);
            }
        }
        let mut bytes = Vec::new();
        write(&kept, 2, &mut bytes);
        let bits = 8.0 * bytes.len() as f64 / kept.places.len() as f64;
        assert!(bits < 7.43 + 2.0 + 0.15, "{bits}");
    }
}
