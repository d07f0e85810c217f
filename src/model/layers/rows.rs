//! How gathered tokens lie in their sequences: attention wants each sequence in a row of its own.

use tch::{Device, Kind, TchError, Tensor};

/// For tokens of several sequences, one sequence after the other and each in order: where each lies in a table with a row for
/// each sequence, as long as the longest. What a row lacks is filled up behind it, where causal attention does not look and
/// another must not.
pub struct Rows {
    rows: i64,
    longest: i64,
    /// How many tokens each row has; nothing if all rows are full.
    lengths: Vec<i64>,
    /// Which token lies in each place of the table; nothing if all rows are full.
    filling: Option<Tensor>,
    /// In which place of the table each token lies.
    places: Option<Tensor>,
}

impl Rows {
    /// Of the tokens that belong to these sequences, `[tokens]`, in ascending order.
    pub fn of(sequences: &[i64], device: Device) -> Result<Self, TchError> {
        let runs: Vec<&[i64]> = sequences.chunk_by(|a, b| a == b).collect();
        let longest = runs.iter().map(|run| run.len()).max().unwrap_or(0);
        let (rows, all) = (runs.len() as i64, runs.len() * longest);
        if all == sequences.len() {
            return Ok(Self { rows, longest: longest as i64, lengths: Vec::new(), filling: None, places: None });
        }
        let (mut filling, mut places) = (Vec::with_capacity(all), Vec::with_capacity(sequences.len()));
        for (row, run) in runs.iter().enumerate() {
            let first = places.len() as i64;
            places.extend((0..run.len()).map(|place| (row * longest + place) as i64));
            filling.extend((0..longest).map(|place| if place < run.len() { first + place as i64 } else { first }));
        }
        let on_device = |values: &[i64]| Tensor::f_from_slice(values)?.f_to_device(device);
        Ok(Self {
            rows,
            longest: longest as i64,
            lengths: runs.iter().map(|run| run.len() as i64).collect(),
            filling: Some(on_device(&filling)?),
            places: Some(on_device(&places)?),
        })
    }

    /// `[tokens, ..]` to `[rows, longest, ..]`.
    pub fn apart(&self, tokens: &Tensor) -> Result<Tensor, TchError> {
        let mut shape = tokens.size();
        shape.splice(0..1, [self.rows, self.longest]);
        match &self.filling {
            None => tokens.f_reshape(shape.as_slice()),
            Some(filling) => tokens.f_index_select(0, filling)?.f_view(shape.as_slice()),
        }
    }

    /// Which places of the table are no filling, `[rows, 1, 1, longest]`; nothing if none is.
    pub fn present(&self, device: Device) -> Result<Option<Tensor>, TchError> {
        if self.lengths.is_empty() {
            return Ok(None);
        }
        let lengths = Tensor::f_from_slice(&self.lengths)?.f_view([self.rows, 1])?;
        let present = Tensor::f_arange(self.longest, (Kind::Int64, Device::Cpu))?.f_lt_tensor(&lengths)?;
        Ok(Some(present.f_view([self.rows, 1, 1, self.longest])?.f_to_device(device)?))
    }

    /// `[rows · longest, width]` to `[tokens, width]`.
    pub fn together(&self, table: &Tensor) -> Result<Tensor, TchError> {
        match &self.places {
            None => Ok(table.shallow_clone()),
            Some(places) => table.f_index_select(0, places),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_from_their_rows() {
        for sequences in [&[0, 0, 2, 3, 3, 3][..], &[1, 1, 4, 4], &[5], &[]] {
            let rows = Rows::of(sequences, Device::Cpu).unwrap();
            let tokens = Tensor::arange(3 * sequences.len() as i64, (tch::Kind::Float, Device::Cpu)).view([-1, 3]);
            let apart = rows.apart(&tokens).unwrap();
            assert_eq!(apart.size(), [rows.rows, rows.longest, 3]);
            assert!(rows.together(&apart.reshape([-1, 3])).unwrap().equal(&tokens));
        }
    }

    #[test]
    fn a_short_row_begins_with_its_own_tokens() {
        let rows = Rows::of(&[0, 0, 0, 7], Device::Cpu).unwrap();
        let apart = rows.apart(&Tensor::from_slice(&[10i64, 11, 12, 13])).unwrap();
        assert_eq!(Vec::<Vec<i64>>::try_from(&apart).unwrap(), [[10, 11, 12], [13, 13, 13]]);
    }
}
