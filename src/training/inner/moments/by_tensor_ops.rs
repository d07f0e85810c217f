//! The same encodings by operations of libtorch, for a card: the same bits as by slices, a few million values at a time.
//!
//! Integers are of 64 bits, so that no product and no sum of 32-bit values overflows.

use tch::{Kind, TchError, Tensor};

use crate::training::inner::moments::blocks::{BLOCK, MOST_CODES, SHIFTS, Which};
use crate::training::inner::moments::rounding::{LAST_FINITE, MULTIPLIER, Rounding};

const LOW_BITS: i64 = 0xffff_ffff;
const MAGNITUDE: i64 = 0x7fff_ffff;

/// Codes `[values]` and ranges `[blocks]` of values `[values]`, the first of which is at this place of its tensor.
pub fn encode(
    which: Which,
    values: &Tensor,
    (rounding, place): (Rounding, usize),
) -> Result<(Tensor, Tensor), TchError> {
    let count = values.numel() as i64;
    let bits = bits_of(values)?;
    let magnitudes = in_blocks(&bits.f_bitwise_and(MAGNITUDE)?)?;
    let (offset, shift) = ranges(which, &magnitudes)?;
    let noise = in_blocks(&fractions(rounding, place, values)?)?;
    let dropped = shift.f_neg()?.f_add_scalar(32)?;
    let rounded = magnitudes.f_add(&noise.f_bitwise_right_shift(&dropped)?)?.f_bitwise_right_shift(&shift)?;
    let last = shift.f_full_like(i64::from(LAST_FINITE))?.f_bitwise_right_shift(&shift)?;
    let within = rounded.f_minimum(&last)?.f_sub(&offset)?;
    let codes = match which {
        Which::First => {
            let is_zero = magnitudes.f_bitwise_right_shift(&shift)?.f_le_tensor(&offset)?;
            let signs = in_blocks(&shifted_right(&bits, 24)?.f_bitwise_and(128)?)?;
            within.f_bitwise_or_tensor(&signs)?.f_masked_fill(&is_zero, 0)?
        }
        Which::Second => within.f_clamp_min(1)?.f_masked_fill(&magnitudes.f_eq(0)?, 0)?,
    };
    let ranges = shifted_left(&offset, 3)?.f_bitwise_or_tensor(&shift.f_sub_scalar(i64::from(SHIFTS[0]))?)?;
    Ok((
        codes.f_flatten(0, -1)?.f_narrow(0, 0, count)?.f_to_kind(Kind::Uint8)?,
        ranges.f_flatten(0, -1)?.f_to_kind(Kind::Int)?,
    ))
}

/// Values `[values]` of codes `[values]` with ranges `[blocks]`.
pub fn decode(which: Which, codes: &Tensor, ranges: &Tensor) -> Result<Tensor, TchError> {
    let count = codes.numel() as i64;
    let all = in_blocks(&codes.f_to_kind(Kind::Int64)?)?;
    let ranges = ranges.f_to_kind(Kind::Int64)?.f_unsqueeze(1)?;
    let (offset, shift) = (shifted_right(&ranges, 3)?, ranges.f_bitwise_and(7)?.f_add_scalar(i64::from(SHIFTS[0]))?);
    let (codes, signs) = match which {
        Which::First => (all.f_bitwise_and(127)?, Some(shifted_left(&all.f_bitwise_and(128)?, 24)?)),
        Which::Second => (all, None),
    };
    let mut bits = codes.f_add(&offset)?.f_bitwise_left_shift(&shift)?;
    if let Some(signs) = signs {
        bits = bits.f_bitwise_or_tensor(&signs)?;
    }
    let bits = bits.f_masked_fill(&codes.f_eq(0)?, 0)?;
    float_of(&bits.f_flatten(0, -1)?.f_narrow(0, 0, count)?)
}

/// bfloat16 numbers, as [`to_bf16`](super::rounding::to_bf16) has their bits.
pub fn to_bf16(values: &Tensor, (rounding, place): (Rounding, usize)) -> Result<Tensor, TchError> {
    let bits = bits_of(values)?;
    let noise = shifted_right(&fractions(rounding, place, values)?, 16)?;
    let magnitude = bits.f_bitwise_and(MAGNITUDE)?.f_add(&noise)?.f_clamp_max(i64::from(LAST_FINITE))?;
    let upper = magnitude.f_bitwise_and(0x7fff_0000)?.f_bitwise_or_tensor(&bits.f_bitwise_and(1 << 31)?)?;
    // The lower bits are zero, so that the conversion is exact.
    float_of(&upper)?.f_to_kind(Kind::BFloat16)
}

/// The bits of f32 values.
fn bits_of(values: &Tensor) -> Result<Tensor, TchError> {
    values.f_contiguous()?.f_view_dtype(Kind::Int)?.f_to_kind(Kind::Int64)?.f_bitwise_and(LOW_BITS)
}

/// f32 values of bits.
fn float_of(bits: &Tensor) -> Result<Tensor, TchError> {
    // A conversion to fewer bits of what does not fit is not defined, so the upper half becomes negative first.
    let signed = bits.f_sub(&shifted_left(&shifted_right(bits, 31)?, 32)?)?;
    signed.f_to_kind(Kind::Int)?.f_contiguous()?.f_view_dtype(Kind::Float)
}

/// `[blocks, 256]` of `[values]`, filled with zeros.
fn in_blocks(values: &Tensor) -> Result<Tensor, TchError> {
    let (count, block) = (values.numel() as i64, BLOCK as i64);
    let missing = (block - count % block) % block;
    let whole = if missing == 0 { values.shallow_clone() } else { values.f_constant_pad_nd([0, missing])? };
    whole.f_view([-1, block])
}

/// The offset and the shift of each block, `[blocks, 1]`.
fn ranges(which: Which, magnitudes: &Tensor) -> Result<(Tensor, Tensor), TchError> {
    let greatest = magnitudes.f_amax([1i64].as_slice(), true)?;
    let [finest, coarsest] = SHIFTS.map(i64::from);
    let [of_second, of_first] = MOST_CODES.map(i64::from);
    let above = |shift: i64| shifted_right(&greatest.f_add_scalar((1i64 << shift) - 1)?, shift);
    if which == Which::First {
        let offset = above(coarsest)?.f_sub_scalar(of_first)?.f_clamp_min(0)?;
        return Ok((offset, greatest.f_full_like(coarsest)?));
    }
    let least = magnitudes.f_masked_fill(&magnitudes.f_eq(0)?, i64::from(i32::MAX))?;
    let least = least.f_amin([1i64].as_slice(), true)?.f_minimum(&greatest)?;
    let mut offset = above(coarsest)?.f_sub_scalar(of_second)?.f_clamp_min(0)?;
    let mut shift = greatest.f_full_like(coarsest)?;
    for candidate in (finest..=coarsest).rev() {
        let below = shifted_right(&least, candidate)?;
        let fits = above(candidate)?.f_sub(&below)?.f_lt(of_second)?;
        offset = below.f_sub_scalar(1)?.f_clamp_min(0)?.f_where_self(&fits, &offset)?;
        shift = shift.f_masked_fill(&fits, candidate)?;
    }
    Ok((offset, shift))
}

/// The fractions of 2^32 of consecutive places, `[values]`.
fn fractions(rounding: Rounding, place: usize, values: &Tensor) -> Result<Tensor, TchError> {
    let (count, kind) = (values.numel() as i64, (Kind::Int64, values.device()));
    let key = match rounding {
        Rounding::Nearest => return Tensor::f_full([count], 1i64 << 31, kind),
        Rounding::Random { key } => i64::from(key),
    };
    let first = i64::from(place as u32);
    let places = Tensor::f_arange_start(first, first + count, kind)?.f_bitwise_and(LOW_BITS)?;
    let mut mixed = places.f_bitwise_xor(key)?;
    for _ in 0..2 {
        let product = mixed.f_bitwise_xor_tensor(&shifted_right(&mixed, 16)?)?.f_mul_scalar(i64::from(MULTIPLIER))?;
        mixed = product.f_bitwise_and(LOW_BITS)?;
    }
    mixed.f_bitwise_xor_tensor(&shifted_right(&mixed, 16)?)
}

fn shifted_right(values: &Tensor, by: i64) -> Result<Tensor, TchError> {
    values.f_bitwise_right_shift_tensor_scalar(by)
}

fn shifted_left(values: &Tensor, by: i64) -> Result<Tensor, TchError> {
    values.f_bitwise_left_shift_tensor_scalar(by)
}
