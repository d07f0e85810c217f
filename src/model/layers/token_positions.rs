//! The tokens of a batch without padding, and their positions.

use tch::{Device, TchError, Tensor};

/// The routed tokens of a batch: all but padding, sequence by sequence.
pub struct TokenPositions {
    /// The sequence of each token.
    pub sequences: Vec<i64>,
    /// Its position in the sequence, counted from the first token that the network was given.
    pub positions: Vec<i64>,
    /// Its index among all tokens, with padding; `None` without padding.
    unpadded: Option<Tensor>,
}

impl TokenPositions {
    /// For `[batch, time]` tokens with these lengths of sequences; without `lengths`, no token is padding.
    pub fn of((batch, time): (i64, i64), lengths: Option<&Tensor>, device: Device) -> Result<Self, TchError> {
        let lengths = match lengths {
            None => vec![time; batch as usize],
            Some(lengths) => to_integers(lengths)?,
        };
        let all =
            || lengths.iter().enumerate().flat_map(|(row, length)| (0..*length).map(move |place| (row as i64, place)));
        let (sequences, positions): (Vec<i64>, Vec<i64>) = all().unzip();
        let padded = sequences.len() as i64 != batch * time;
        let unpadded: Vec<i64> =
            if padded { all().map(|(row, place)| row * time + place).collect() } else { Vec::new() };
        let unpadded = padded.then(|| Tensor::f_from_slice(&unpadded)?.f_to_device(device)).transpose()?;
        Ok(Self { sequences, positions, unpadded })
    }

    /// From `[batch, time, width]` to `[tokens, width]`.
    pub fn gather(&self, stream: &Tensor) -> Result<Tensor, TchError> {
        let width = stream.size3()?.2;
        let flat = stream.f_reshape([-1, width])?;
        self.unpadded.as_ref().map_or_else(|| Ok(flat.shallow_clone()), |unpadded| flat.f_index_select(0, unpadded))
    }

    /// Writes `tokens` back into `stream`; padding does not change.
    pub fn put_back(&self, stream: &Tensor, tokens: &Tensor) -> Result<Tensor, TchError> {
        let shape = stream.size();
        match &self.unpadded {
            None => tokens.f_view(shape.as_slice()),
            Some(unpadded) => {
                stream.f_reshape([-1, stream.size3()?.2])?.f_index_copy(0, unpadded, tokens)?.f_view(shape.as_slice())
            }
        }
    }
}

/// 64-bit integers of a tensor on any device.
pub fn to_integers(tensor: &Tensor) -> Result<Vec<i64>, TchError> {
    let flat = tensor.f_to_device(Device::Cpu)?.f_contiguous()?;
    let mut values = vec![0; flat.numel()];
    let count = values.len();
    flat.f_copy_data(&mut values, count)?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::weights::to_values;
    use tch::Kind;

    #[test]
    fn padding_is_left_out_and_stays_as_it_was() {
        let stream = Tensor::arange(12, (Kind::Float, Device::Cpu)).view([2, 3, 2]);
        let places = TokenPositions::of((2, 3), Some(&Tensor::from_slice(&[1i64, 3])), Device::Cpu).unwrap();
        assert_eq!((&places.sequences[..], &places.positions[..]), (&[0, 1, 1, 1][..], &[0, 0, 1, 2][..]));
        let tokens = places.gather(&stream).unwrap();
        let back = to_values(&places.put_back(&stream, &(tokens * 10)).unwrap()).unwrap();
        assert_eq!(back, [0., 10., 2., 3., 4., 5., 60., 70., 80., 90., 100., 110.]);
        let all = TokenPositions::of((2, 3), None, Device::Cpu).unwrap();
        assert!(all.put_back(&stream, &all.gather(&stream).unwrap()).unwrap().equal(&stream));
    }
}
