//! Rotary positions (RoFormer, section 3.2) of queries and keys.
//!
//! The rotation is that of NeoX: in each head, dimension `i` is paired with `i + rotated/2`, where only the first
//! `rotated` dimensions of a head are turned. It is computed as one complex product, which needs the two of a pair side
//! by side. So the rows of the query and key weights are first brought into that order, which is cheap. Queries and keys
//! are permuted alike, so their inner products do not change.

use tch::{Device, Kind, TchError, Tensor};

use crate::config::{ModelConfig, Positions};

/// The complex numbers that rotate each pair at each position, `[context, 1, rotated/2]`; `None` if positions are
/// learned. Their length is 1 unless the scaling says otherwise.
pub fn rotation(model: &ModelConfig, device: Device) -> Result<Option<Tensor>, TchError> {
    if model.positions != Positions::Rotary {
        return Ok(None);
    }
    let (frequencies, length) = model.rotary().frequencies(model.head_width());
    let pairs = frequencies.len() as i64;
    let positions = Tensor::f_arange(model.context as i64, (Kind::Double, Device::Cpu))?.f_unsqueeze(1)?;
    let angles = positions.f_mul(&Tensor::f_from_slice(&frequencies)?)?.f_view([model.context as i64, 1, pairs])?;
    let scaled = |part: Tensor| part.f_mul_scalar(length)?.f_to_kind(Kind::Float);
    Ok(Some(Tensor::f_complex(&scaled(angles.f_cos()?)?, &scaled(angles.f_sin()?)?)?.f_to_device(device)?))
}

/// Which dimensions of a head are turned.
#[derive(Clone, Copy)]
pub(super) struct Rotary {
    pub head_width: i64,
    /// An even number of them, the first.
    pub rotated: i64,
}

impl Rotary {
    /// Reorders the rows of each head of a weight, bias or norm, `[heads · head, ..]`, from halves (`a0 a1 .. b0 b1 ..`)
    /// to pairs (`a0 b0 a1 b1 ..`).
    pub fn pairs_together(&self, rows: &Tensor) -> Result<Tensor, TchError> {
        let apart = rows.f_reshape([-1, self.head_width, rows.size().get(1).copied().unwrap_or(1)])?;
        let turned =
            if self.rotated == self.head_width { apart.shallow_clone() } else { apart.f_narrow(1, 0, self.rotated)? };
        let size = turned.size();
        let halves = turned.f_reshape([size[0], 2, self.rotated / 2, size[2]])?;
        let pairs = halves.f_transpose(1, 2)?.f_reshape(size.as_slice())?;
        let rest = self.head_width - self.rotated;
        let pairs = if rest == 0 { pairs } else { Tensor::f_cat(&[pairs, apart.f_narrow(1, self.rotated, rest)?], 1)? };
        pairs.f_reshape(rows.size().as_slice())
    }

    /// The same of queries and keys `[batch, time, heads, head]`.
    pub fn pairs_in_heads(&self, heads: &Tensor) -> Result<Tensor, TchError> {
        let (batch, time, count, width) = heads.size4()?;
        let halves = heads.f_narrow(3, 0, self.rotated)?.f_reshape([batch, time, count, 2, self.rotated / 2])?;
        let pairs = halves.f_transpose(3, 4)?.f_reshape([batch, time, count, self.rotated])?;
        let rest = width - self.rotated;
        if rest == 0 { Ok(pairs) } else { Tensor::f_cat(&[pairs, heads.f_narrow(3, self.rotated, rest)?], 3) }
    }

    /// Queries and keys `[batch, time, heads, head]` with pairs side by side, rotated. `rotation` is `[time, 1,
    /// rotated/2]`, complex.
    pub fn turned(&self, heads: &Tensor, rotation: &Tensor) -> Result<Tensor, TchError> {
        let (batch, time, count, width) = heads.size4()?;
        let kind = heads.f_kind()?;
        let first = if self.rotated == width { heads.shallow_clone() } else { heads.f_narrow(3, 0, self.rotated)? };
        // Rotated in f32 even if products are bfloat16: far positions need the precision.
        let pairs = first.f_to_kind(Kind::Float)?.f_reshape([batch, time, count, self.rotated / 2, 2])?;
        let turned = pairs.f_view_as_complex()?.f_mul(rotation)?.f_view_as_real()?;
        let turned = turned.f_to_kind(kind)?.f_view([batch, time, count, self.rotated])?;
        if self.rotated == width {
            return Ok(turned);
        }
        Tensor::f_cat(&[turned, heads.f_narrow(3, self.rotated, width - self.rotated)?], 3)
    }
}
