//! Sequences one after another in a single row, so that short ones need no padding.
//!
//! All of a network but attention computes each token by itself. Attention takes the sequences apart, those of one length
//! at once. So it needs no mask, no token reaches another sequence, and a short sequence costs what it costs alone. Tables
//! of similar lengths or masked rows of several sequences take 1.5 to 4 times as long on a CPU. A GPU waits for the
//! processor that starts its kernels, so there attention takes tables of similar lengths.

use tch::{Device, TchError, Tensor};

use crate::model::layers::rows::Rows;

/// The number of tokens is a multiple of this, which the kernels of products want. A single document of web text is some
/// 200 tokens: a multiple of 16 would be more than 3% fill.
const TOKEN_STEP: usize = 8;

/// Beyond that, fill is less than one part in this. Batches then have few different numbers of tokens, so that libtorch
/// prepares kernels for few shapes.
const LEAST_PARTS: usize = 64;

/// Where each sequence lies in the row. Fill at the end of the row is one more sequence.
pub struct Packed {
    /// Sequences that lie side by side and are computed at once, with the number of their tokens.
    groups: Vec<(i64, Rows)>,
    /// The position of each token in its own sequence, `[tokens]`; 0 for fill.
    positions: Tensor,
}

impl Packed {
    /// Sequences of these lengths in this order. Sorted by length, most are computed at once.
    pub fn of(lengths: &[usize], device: Device) -> Result<Self, TchError> {
        Self::grouped(lengths, if device.is_cuda() { 2 } else { 1 }, device)
    }

    /// The same where the lengths of a group differ by at most this factor.
    pub(crate) fn grouped(lengths: &[usize], factor: usize, device: Device) -> Result<Self, TchError> {
        let used: usize = lengths.iter().sum();
        let tokens = filled(used);
        let mut positions: Vec<i64> = lengths.iter().flat_map(|length| 0..*length as i64).collect();
        positions.resize(tokens, 0);
        let mut alike: Vec<Vec<usize>> = Vec::new();
        for length in lengths.iter().copied().chain([tokens - used]).filter(|length| *length > 0) {
            match alike.last_mut() {
                Some(group) if length <= factor * group[0] && group[0] <= factor * length => group.push(length),
                _ => alike.push(vec![length]),
            }
        }
        let group = |lengths: &Vec<usize>| {
            let each = lengths.iter().enumerate();
            let sequences: Vec<i64> = each.flat_map(|(row, length)| std::iter::repeat_n(row as i64, *length)).collect();
            Ok((sequences.len() as i64, Rows::of(&sequences, device)?))
        };
        let groups = alike.iter().map(group).collect::<Result<_, TchError>>()?;
        Ok(Self { groups, positions: Tensor::f_from_slice(&positions)?.f_to_device(device)? })
    }

    /// Tokens of the row, with fill.
    pub fn tokens(&self) -> usize {
        self.positions.numel()
    }

    /// The position of each token in its own sequence, `[tokens]`.
    pub fn positions(&self) -> &Tensor {
        &self.positions
    }

    /// Applies causal attention to each sequence by itself. Queries, keys and values are `[1, tokens, heads, head]`.
    /// `attend` gets those of some sequences, `[sequences, longest, heads, head]`, where shorter ones are filled at their
    /// end, and returns as much for the queries. The result is `[1, tokens, heads · head]`.
    pub fn attended(
        &self,
        queries_keys_values: [Tensor; 3],
        attend: &dyn Fn(Tensor, Tensor, Tensor) -> Result<Tensor, TchError>,
    ) -> Result<Tensor, TchError> {
        let sizes: Vec<i64> = self.groups.iter().map(|(tokens, _)| *tokens).collect();
        let [queries, keys, values] =
            queries_keys_values.map(|all| all.f_squeeze_dim(0)?.f_split_with_sizes(sizes.as_slice(), 0));
        let mut mixed = Vec::with_capacity(self.groups.len());
        for ((((_, rows), q), k), v) in self.groups.iter().zip(queries?).zip(keys?).zip(values?) {
            let table = attend(rows.apart(&q)?, rows.apart(&k)?, rows.apart(&v)?)?;
            mixed.push(rows.together(&table.f_flatten(2, 3)?.f_flatten(0, 1)?)?);
        }
        Tensor::f_cat(&mixed, 0)?.f_unsqueeze(0)
    }
}

/// Tokens of a row that begins with so many of sequences.
fn filled(used: usize) -> usize {
    let step = (used / (2 * LEAST_PARTS)).next_power_of_two().max(TOKEN_STEP);
    used.max(1).next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    fn tokens_of_groups(packed: &Packed) -> Vec<i64> {
        packed.groups.iter().map(|(tokens, _)| *tokens).collect()
    }

    #[test]
    fn positions_begin_anew_in_each_sequence_and_the_row_is_filled_to_a_multiple() {
        let packed = Packed::of(&[5, 3, 0, 3], Device::Cpu).unwrap();
        let positions: Vec<i64> = Vec::try_from(packed.positions()).unwrap();
        assert_eq!(positions, [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 0, 0, 0, 0, 0]);
        assert_eq!(tokens_of_groups(&packed), [5, 6, 5]);
        assert_eq!(Packed::of(&[0], Device::Cpu).unwrap().tokens(), 8, "never nothing");
        assert_eq!(tokens_of_groups(&Packed::of(&[32, 32], Device::Cpu).unwrap()), [64]);
    }

    #[test]
    fn few_tokens_are_fill_and_few_numbers_of_tokens_occur() {
        assert!((1..60_000).all(|used| filled(used) - used < (used / LEAST_PARTS).max(TOKEN_STEP)));
        let all: std::collections::BTreeSet<usize> = (32_768..65_536).map(filled).collect();
        assert!(all.len() <= 2 * LEAST_PARTS + 1 && all.iter().all(|tokens| tokens.is_multiple_of(TOKEN_STEP)));
    }

    #[test]
    fn attention_gets_each_sequence_by_itself_in_groups_of_any_kind() {
        let tokens = Tensor::arange(32 * 4, (Kind::Float, Device::Cpu)).view([1, 32, 2, 2]);
        let of_first = |q: Tensor, k: Tensor, v: Tensor| {
            assert!(q.equal(&k) && k.equal(&v));
            q.f_narrow(1, 0, 1)?.f_expand_as(&v)
        };
        for (factor, groups) in [(1, vec![10, 4, 11, 7]), (2, vec![14, 18])] {
            let packed = Packed::grouped(&[5, 5, 4, 11], factor, Device::Cpu).unwrap();
            assert_eq!(tokens_of_groups(&packed), groups);
            let mixed = packed.attended([&tokens, &tokens, &tokens].map(Tensor::shallow_clone), &of_first).unwrap();
            assert_eq!(mixed.size(), [1, 32, 4]);
            let begins: Vec<f32> = Vec::try_from(mixed.select(2, 0).flatten(0, -1)).unwrap();
            let expected = [(0, 5), (5, 5), (10, 4), (14, 11), (25, 7)].map(|(first, length)| vec![first; length]);
            assert_eq!(begins, expected.concat().iter().map(|first| 4.0 * *first as f32).collect::<Vec<_>>());
        }
    }
}
