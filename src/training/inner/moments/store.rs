//! One moment of one tensor, in the machine's format.

use rayon::ThreadPool;
use rayon::prelude::*;
use tch::{Device, Kind, TchError, Tensor};

use crate::config::MomentFormat;
use crate::model::host_values::{host_values, host_values_mut};
use crate::training::inner::moments::blocks::{self, BLOCK, Which};
use crate::training::inner::moments::by_tensor_ops;
use crate::training::inner::moments::rounding::{Rounding, from_bf16, to_bf16};

/// Values that are encoded at once: whole blocks, and what bounds the memory of intermediate values on a card.
pub const CHUNK: usize = 1 << 22;

/// Values in one piece of work on the CPU, whole blocks.
pub const PIECE: usize = 1 << 14;

/// A moment of a tensor, flat.
pub enum Store {
    /// f32.
    Wide(Tensor),
    /// bfloat16.
    Narrow(Tensor),
    Blocks {
        which: Which,
        /// A byte for each value.
        codes: Tensor,
        /// A 32-bit integer for each block.
        ranges: Tensor,
    },
}

/// Part of a moment on the CPU.
pub enum Piece<'a> {
    Wide(&'a mut [f32]),
    Narrow(&'a mut [u16]),
    Blocks { which: Which, codes: &'a mut [u8], ranges: &'a mut [i32] },
}

impl Store {
    pub fn zeros(format: MomentFormat, which: Which, count: usize, device: Device) -> Result<Self, TchError> {
        let zeros = |count: usize, kind| Tensor::f_zeros([count as i64], (kind, device));
        Ok(match format {
            MomentFormat::F32 => Self::Wide(zeros(count, Kind::Float)?),
            MomentFormat::Bf16 => Self::Narrow(zeros(count, Kind::BFloat16)?),
            MomentFormat::Bits8 => Self::Blocks {
                which,
                codes: zeros(count, Kind::Uint8)?,
                ranges: zeros(count.div_ceil(BLOCK), Kind::Int)?,
            },
        })
    }

    /// Pieces of [`PIECE`] values, on the CPU.
    pub fn pieces(&mut self) -> Vec<Piece<'_>> {
        match self {
            Self::Wide(values) => host_values_mut(values).chunks_mut(PIECE).map(Piece::Wide).collect(),
            Self::Narrow(values) => host_values_mut(values).chunks_mut(PIECE).map(Piece::Narrow).collect(),
            Self::Blocks { which, codes, ranges } => {
                let codes = host_values_mut(codes).chunks_mut(PIECE);
                let ranges = host_values_mut(ranges).chunks_mut(PIECE / BLOCK);
                codes.zip(ranges).map(|(codes, ranges)| Piece::Blocks { which: *which, codes, ranges }).collect()
            }
        }
    }

    /// The f32 values, flat. Those of the store itself if they are f32.
    pub fn wide(&self) -> Result<Tensor, TchError> {
        match self {
            Self::Wide(values) => Ok(values.shallow_clone()),
            Self::Narrow(values) => values.f_to_kind(Kind::Float),
            Self::Blocks { which, codes, ranges } if codes.device() == Device::Cpu => {
                let mut values = Tensor::f_empty([codes.numel() as i64], (Kind::Float, Device::Cpu))?;
                let all = host_values_mut::<f32>(&mut values).chunks_mut(BLOCK);
                let codes = host_values(codes).chunks(BLOCK).zip(host_values(ranges));
                for ((codes, range), values) in codes.zip(all) {
                    blocks::decode(*which, (codes, *range), values);
                }
                Ok(values)
            }
            Self::Blocks { codes, .. } => self.wide_part(0, codes.numel()),
        }
    }

    /// So many f32 values from a multiple of [`BLOCK`] on, by operations of libtorch.
    pub fn wide_part(&self, from: usize, count: usize) -> Result<Tensor, TchError> {
        let part = |of: &Tensor, from: usize, count: usize| of.f_narrow(0, from as i64, count as i64);
        match self {
            Self::Wide(values) => part(values, from, count),
            Self::Narrow(values) => part(values, from, count)?.f_to_kind(Kind::Float),
            Self::Blocks { which, codes, ranges } => {
                let ranges = part(ranges, from / BLOCK, count.div_ceil(BLOCK))?;
                by_tensor_ops::decode(*which, &part(codes, from, count)?, &ranges)
            }
        }
    }

    /// Takes f32 values, flat.
    pub fn set(&mut self, pool: &ThreadPool, values: &Tensor, rounding: Rounding) -> Result<(), TchError> {
        if let Self::Wide(own) = self {
            return own.f_copy_(values).map(drop);
        }
        let count = values.numel();
        if values.device() != Device::Cpu {
            return (0..count).step_by(CHUNK).try_for_each(|from| {
                let part = values.f_narrow(0, from as i64, CHUNK.min(count - from) as i64)?;
                self.set_part(from, &part, rounding)
            });
        }
        let values = values.f_contiguous()?;
        let work: Vec<_> = self.pieces().into_iter().zip(host_values::<f32>(&values).chunks(PIECE)).collect();
        pool.install(|| {
            work.into_par_iter().enumerate().for_each(|(number, (mut piece, values))| {
                let mut noise = [0; BLOCK];
                for (block, values) in values.chunks(BLOCK).enumerate() {
                    rounding.fill(number * PIECE + block * BLOCK, &mut noise);
                    piece.encode(block * BLOCK, values, &noise);
                }
            });
        });
        Ok(())
    }

    /// Takes f32 values from a multiple of [`BLOCK`] on, by operations of libtorch.
    pub fn set_part(&mut self, from: usize, values: &Tensor, rounding: Rounding) -> Result<(), TchError> {
        let put = |own: &Tensor, from: usize, values: &Tensor| {
            own.f_narrow(0, from as i64, values.numel() as i64)?.f_copy_(values).map(drop)
        };
        match self {
            Self::Wide(own) => put(own, from, values),
            Self::Narrow(own) => put(own, from, &by_tensor_ops::to_bf16(values, (rounding, from))?),
            Self::Blocks { which, codes, ranges } => {
                let (new_codes, new_ranges) = by_tensor_ops::encode(*which, values, (rounding, from))?;
                put(codes, from, &new_codes)?;
                put(ranges, from / BLOCK, &new_ranges)
            }
        }
    }
}

impl Piece<'_> {
    /// The values of a block, from a multiple of [`BLOCK`] on, as many as are asked for.
    #[inline(always)]
    pub fn decode(&self, from: usize, values: &mut [f32]) {
        let until = from + values.len();
        match self {
            Self::Wide(own) => values.copy_from_slice(&own[from..until]),
            Self::Narrow(own) => from_bf16(&own[from..until], values),
            Self::Blocks { which, codes, ranges } => {
                blocks::decode(*which, (&codes[from..until], ranges[from / BLOCK]), values);
            }
        }
    }

    /// Takes the values of a block, from a multiple of [`BLOCK`] on, with what is added to each.
    #[inline(always)]
    pub fn encode(&mut self, from: usize, values: &[f32], noise: &[u32]) {
        let until = from + values.len();
        match self {
            Self::Wide(own) => own[from..until].copy_from_slice(values),
            Self::Narrow(own) => to_bf16(values, &mut own[from..until], noise),
            Self::Blocks { which, codes, ranges } => {
                ranges[from / BLOCK] = blocks::encode(*which, values, &mut codes[from..until], noise);
            }
        }
    }
}
