//! Layout of gathered tokens in their sequences: attention needs each sequence in its own row.

use tch::{Device, Kind, TchError, Tensor};

/// Places tokens of several sequences, sorted by sequence and position, in a table with one row for each sequence, as
/// long as the longest. Shorter rows are filled at their end. Causal attention does not reach the fill; full attention
/// masks it.
pub struct Rows {
    rows: i64,
    longest: i64,
    /// Length of each row; empty if all rows are full.
    lengths: Vec<i64>,
    /// The token in each cell of the table; `None` if all rows are full.
    filling: Option<Tensor>,
    /// The cell of each token.
    places: Option<Tensor>,
}

impl Rows {
    /// From the sequence of each token, `[tokens]`, ascending.
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

    /// The mask of cells without fill, `[rows, 1, 1, longest]`; `None` without fill.
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
