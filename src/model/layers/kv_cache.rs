//! The cache of keys and values of earlier tokens, so that generation does not compute them again.
//!
//! The cache of a block has room for further tokens, which are written in place. Texts that are read at once lie in the
//! rows of one cache, so that attention is computed for all of them at once. Texts of very different lengths lie in
//! caches of their own ([`Group`]), since a row is as long as the longest.

use std::rc::Rc;

use tch::{Device, Kind, TchError, Tensor};

/// The least room for further tokens of a cache that is made, in tokens.
const ROOM: i64 = 64;

/// Rows of a group may be shorter than half the longest by so many tokens.
const APART: i64 = 256;

/// The cache of one block.
#[derive(Default)]
pub struct Past {
    /// Keys and values, `[rows, room, heads, head]` each.
    pairs: Option<(Tensor, Tensor)>,
    /// The row of this text, or its first.
    row: i64,
    /// Tokens of it that are in the cache.
    length: i64,
    /// Whether the room after them belongs to another text, from which this one was forked.
    borrowed: bool,
    /// The sum of the router's inputs, `[batch, 1, width]`, and their number.
    pub(in crate::model) sum: Option<(Tensor, i64)>,
    /// The caches of several texts that are read at once, in place of the above.
    pub(in crate::model) groups: Vec<Group>,
}

/// The caches of all blocks of a path.
#[derive(Default)]
pub struct Memory {
    pub(in crate::model) blocks: Vec<Past>,
    /// Number of tokens in the cache.
    pub read: usize,
    /// Tokens that must be computed again with the next ones.
    pub(in crate::model) again: Vec<u32>,
    /// The first block whose cache is of another network, and has to be computed from the stream that enters it.
    pub(in crate::model) above: Option<usize>,
}

/// One block's cache of texts that are read at once, a row each, for one further token of each.
pub(in crate::model) struct Group {
    keys: Tensor,
    values: Tensor,
    rows: Rc<GroupRows>,
}

/// What all blocks of a group have in common.
struct GroupRows {
    /// Where the new tokens go, among the places of all rows, `[rows]`.
    places: Tensor,
    /// The longest row with its new token.
    longest: i64,
    /// Added to scores: 0 for tokens of a row, and else minus infinity, `[rows, 1, 1, longest]`; `None` if all rows are
    /// equally long.
    mask: Option<Tensor>,
}

impl Memory {
    /// A second cache with the same contents. What is there is shared: nothing changes it.
    pub fn fork(&self) -> Self {
        let blocks = self.blocks.iter().map(Past::fork).collect();
        Self { blocks, read: self.read, again: self.again.clone(), above: self.above }
    }

    /// Whether all of it is token by token, so that its first tokens are a cache, too.
    pub fn is_by_token(&self) -> bool {
        let by_token = |past: &Past| past.sum.is_none() && past.groups.is_empty() && past.length == self.read as i64;
        self.again.is_empty() && self.above.is_none() && self.blocks.iter().all(by_token)
    }

    /// A second cache with the first tokens of this one; `None` if it has fewer, or is not token by token.
    pub fn first(&self, tokens: usize) -> Option<Self> {
        if tokens > self.read || !self.is_by_token() {
            return None;
        }
        let mut first = self.fork();
        first.read = tokens;
        first.blocks.iter_mut().for_each(|past| past.length = tokens as i64);
        Some(first)
    }

    /// Moves it out of caches that it shares with other texts, without room for further tokens. Returns its bytes.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn detach(&mut self) -> Result<usize, TchError> {
        let mut bytes = 0;
        for past in &mut self.blocks {
            let Some((keys, values)) = past.filled(1)? else { continue };
            let of = |all: &Tensor| all.numel() * all.kind().elt_size_in_bytes();
            bytes += of(&keys) + of(&values);
            past.pairs = Some((copied(&keys)?, copied(&values)?));
            (past.row, past.borrowed) = (0, false);
        }
        Ok(bytes)
    }
}

impl Past {
    fn fork(&self) -> Self {
        let same = Tensor::shallow_clone;
        Self {
            pairs: self.pairs.as_ref().map(|(keys, values)| (same(keys), same(values))),
            sum: self.sum.as_ref().map(|(sum, count)| (same(sum), *count)),
            borrowed: true,
            groups: Vec::new(),
            ..*self
        }
    }

    /// Keys and values of its tokens, `[batch, length, heads, head]` each.
    fn filled(&self, batch: i64) -> Result<Option<(Tensor, Tensor)>, TchError> {
        let part = |all: &Tensor| all.f_narrow(0, self.row, batch)?.f_narrow(1, 0, self.length);
        self.pairs.as_ref().map(|(keys, values)| Ok((part(keys)?, part(values)?))).transpose()
    }

    /// Copies its tokens to a row of other keys and values, where it then belongs.
    fn move_to(&mut self, (keys, values): (&Tensor, &Tensor), row: i64, batch: i64) -> Result<(), TchError> {
        if let Some((own_keys, own_values)) = self.filled(batch)? {
            let place = |all: &Tensor| all.f_narrow(0, row, batch)?.f_narrow(1, 0, self.length);
            place(keys)?.f_copy_(&own_keys)?;
            place(values)?.f_copy_(&own_values)?;
        }
        self.pairs = Some((keys.shallow_clone(), values.shallow_clone()));
        (self.row, self.borrowed) = (row, false);
        Ok(())
    }

    /// Appends keys and values, `[batch, time, heads, head]`, and returns all, `[batch, all, heads, head]`.
    pub(in crate::model) fn extended(&mut self, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor), TchError> {
        let (batch, time) = (keys.size()[0], keys.size()[1]);
        let all = self.length + time;
        let fits = self.pairs.as_ref().is_some_and(|(keys, _)| !self.borrowed && all <= keys.size()[1]);
        if !fits {
            let (more_keys, more_values) = (room(keys, batch, all)?, room(values, batch, all)?);
            self.move_to((&more_keys, &more_values), 0, batch)?;
        }
        if let Some((all_keys, all_values)) = &self.pairs {
            let place = |all: &Tensor| all.f_narrow(0, self.row, batch)?.f_narrow(1, self.length, time);
            place(all_keys)?.f_copy_(keys)?;
            place(all_values)?.f_copy_(values)?;
        }
        self.length = all;
        self.filled(batch)?.ok_or_else(|| TchError::Shape("a cache was just filled, and is empty".to_owned()))
    }

    /// Appends a stream, `[rows, time, width]`, in the place of keys; values are nothing that is read.
    pub(in crate::model) fn keep(&mut self, stream: &Tensor) -> Result<(), TchError> {
        let stream = stream.f_unsqueeze(2)?;
        let none = stream.f_narrow(3, 0, 1)?;
        let mut row = 0;
        for group in &self.groups {
            let own = |all: &Tensor| all.f_narrow(0, row, group.len());
            drop(group.extended(&own(&stream)?, &own(&none)?)?);
            row += group.len();
        }
        if self.groups.is_empty() {
            drop(self.extended(&stream, &none)?);
        }
        Ok(())
    }

    /// The stream of a text that was [kept](Self::keep), `[1, length, width]`.
    pub(in crate::model) fn kept(&self) -> Result<Option<Tensor>, TchError> {
        self.filled(1)?.map(|(stream, _)| stream.f_squeeze_dim(2)).transpose()
    }
}

fn copied(tensor: &Tensor) -> Result<Tensor, TchError> {
    let mut copy = Tensor::f_empty(tensor.size(), (tensor.f_kind()?, tensor.device()))?;
    copy.f_copy_(tensor)?;
    Ok(copy)
}

/// An empty cache like `[.., .., heads, head]` for so many rows of so many tokens, and room for more.
fn room(like: &Tensor, rows: i64, tokens: i64) -> Result<Tensor, TchError> {
    let mut shape = like.size();
    (shape[0], shape[1]) = (rows, tokens + ROOM.max(tokens / 2));
    // Not only allocated: what is masked must be a number, too.
    Tensor::f_zeros(shape.as_slice(), (like.f_kind()?, like.device()))
}

/// Texts that can be read at once: their numbers by length, the longest first, in groups of similar lengths.
pub(in crate::model) fn grouped(lengths: &[usize]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|text| std::cmp::Reverse(lengths[*text]));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for text in order {
        match groups.last_mut() {
            Some(group) if 2 * lengths[text] + APART as usize >= lengths[group[0]] => group.push(text),
            _ => groups.push(vec![text]),
        }
    }
    groups
}

/// One cache for each block, of texts that are read at once in these groups, in their order. Afterwards the texts' own
/// caches are the rows of these.
pub(in crate::model) fn together(
    memories: &mut [&mut Memory],
    groups: &[Vec<usize>],
    blocks: usize,
) -> Result<Vec<Past>, TchError> {
    let mut joined: Vec<Past> = (0..blocks).map(|_| Past::default()).collect();
    for group in groups {
        let longest = group.iter().map(|text| memories[*text].read as i64 + 1).max().unwrap_or(0);
        if !are_rows(memories, group, longest) {
            join(memories, group, longest, blocks)?;
        }
        let mut rows = None;
        for (block, joined) in joined.iter_mut().enumerate() {
            let first = group.first().and_then(|text| memories[*text].blocks.get(block)?.pairs.as_ref());
            let Some((keys, values)) = first else { continue };
            let rows = match &rows {
                Some(rows) => Rc::clone(rows),
                None => Rc::clone(rows.insert(Rc::new(GroupRows::of(memories, group, longest, keys)?))),
            };
            joined.groups.push(Group { keys: keys.shallow_clone(), values: values.shallow_clone(), rows });
        }
    }
    Ok(joined)
}

/// Whether the caches of these texts are the rows of one, in this order, with room.
fn are_rows(memories: &[&mut Memory], group: &[usize], longest: i64) -> bool {
    // All blocks are joined at once, so that the first stands for all.
    let first = |text: &usize| memories[*text].blocks.first().and_then(|past| Some((past, &past.pairs.as_ref()?.0)));
    let Some((_, whole)) = group.first().and_then(first) else { return false };
    let size = whole.size();
    let is_row = |(row, text): (usize, &usize)| {
        let found = first(text);
        found
            .is_some_and(|(past, keys)| !past.borrowed && past.row == row as i64 && keys.data_ptr() == whole.data_ptr())
    };
    size[0] == group.len() as i64 && longest <= size[1] && group.iter().enumerate().all(is_row)
}

/// Makes the caches of these texts the rows of one for each block.
fn join(memories: &mut [&mut Memory], group: &[usize], longest: i64, blocks: usize) -> Result<(), TchError> {
    for block in 0..blocks {
        let of_first = group.first().and_then(|text| memories[*text].blocks.get(block)?.pairs.as_ref());
        let Some((keys, values)) = of_first else { continue };
        let count = group.len() as i64;
        let (keys, values) = (room(keys, count, longest)?, room(values, count, longest)?);
        for (row, text) in group.iter().enumerate() {
            if let Some(past) = memories[*text].blocks.get_mut(block) {
                past.move_to((&keys, &values), row as i64, 1)?;
            }
        }
    }
    Ok(())
}

/// The texts have one token more, which is in their rows.
pub(in crate::model) fn advance(memories: &mut [&mut Memory]) {
    for memory in memories.iter_mut() {
        memory.read += 1;
        memory.blocks.iter_mut().for_each(|past| past.length += 1);
    }
}

impl GroupRows {
    fn of(memories: &[&mut Memory], group: &[usize], longest: i64, keys: &Tensor) -> Result<Self, TchError> {
        let (room, device) = (keys.size()[1], keys.device());
        let lengths: Vec<i64> = group.iter().map(|text| memories[*text].read as i64).collect();
        let places: Vec<i64> = lengths.iter().enumerate().map(|(row, length)| row as i64 * room + length).collect();
        let mask = match lengths.iter().all(|length| length + 1 == longest) {
            true => None,
            false => {
                let row = |length: &i64| {
                    let length = *length;
                    (0..longest).map(move |place| if place <= length { 0.0 } else { f32::NEG_INFINITY })
                };
                let all: Vec<f32> = lengths.iter().flat_map(row).collect();
                let mask = Tensor::f_from_slice(&all)?.f_view([lengths.len() as i64, 1, 1, longest])?;
                Some(mask.f_to_device(device)?)
            }
        };
        Ok(Self { places: Tensor::f_from_slice(&places)?.f_to_device(device)?, longest, mask })
    }
}

impl Group {
    /// Number of rows.
    pub(in crate::model) fn len(&self) -> i64 {
        self.keys.size()[0]
    }

    /// What is added to scores, if anything.
    pub(in crate::model) fn mask(&self) -> Option<&Tensor> {
        self.rows.mask.as_ref()
    }

    /// Writes the keys and values of one token of each row, `[rows, 1, heads, head]`, and returns all of them, `[rows,
    /// longest, heads, head]`.
    pub(in crate::model) fn extended(&self, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor), TchError> {
        let with = |all: &Tensor, new: &Tensor| {
            let (rows, room, heads, head) = all.size4()?;
            let _ =
                all.f_view([rows * room, heads, head])?.f_index_copy_(0, &self.rows.places, &new.f_squeeze_dim(1)?)?;
            all.f_narrow(1, 0, self.rows.longest)
        };
        Ok((with(&self.keys, keys)?, with(&self.values, values)?))
    }
}

/// The attention mask of the last `new` of `all` tokens: each attends to those up to itself. `None` if plain causality
/// or no mask does the same.
pub(in crate::model) fn mask(new: i64, all: i64, device: Device) -> Result<Option<Tensor>, TchError> {
    if new == all || new == 1 {
        return Ok(None);
    }
    Ok(Some(Tensor::f_ones([new, all], (Kind::Bool, device))?.f_tril(all - new)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_similar_lengths_are_read_at_once() {
        assert_eq!(grouped(&[3, 500, 200, 1]), [vec![1, 2], vec![0, 3]]);
        assert_eq!(grouped(&[3, 200, 250, 1]), [[2, 1, 0, 3]]);
        assert!(grouped(&[]).is_empty());
    }

    #[test]
    fn the_first_tokens_go_on_by_themselves() {
        let new = |value: f64| Tensor::full([1, 1, 2, 2], value, (Kind::Float, Device::Cpu));
        let mut memory = Memory { blocks: vec![Past::default()], ..Memory::default() };
        for value in [1.0, 2.0, 3.0] {
            drop(memory.blocks[0].extended(&new(value), &new(value)).unwrap());
            memory.read += 1;
        }
        let values = |past: &mut Past| -> Vec<f64> {
            let (keys, _) = past.extended(&new(9.0), &new(9.0)).unwrap();
            keys.select(3, 0).select(2, 0).flatten(0, -1).iter::<f64>().unwrap().collect()
        };
        let mut first = memory.first(2).unwrap();
        assert_eq!(first.detach().unwrap(), 2 * 2 * 4 * 4);
        assert_eq!((first.read, values(&mut first.blocks[0])), (2, vec![1.0, 2.0, 9.0]));
        assert_eq!(values(&mut memory.first(3).unwrap().blocks[0]), [1.0, 2.0, 3.0, 9.0]);
        assert!(memory.first(4).is_none());
        memory.blocks[0].sum = Some((new(1.0), 3));
        assert!(memory.first(2).is_none(), "a sum over all tokens has no beginning");
    }

    #[test]
    fn a_fork_leaves_what_it_was_forked_from() {
        let new = |value: f64| Tensor::full([1, 1, 2, 2], value, (Kind::Float, Device::Cpu));
        let values = |all: &Tensor| all.select(3, 0).select(2, 0).flatten(0, -1).iter::<f64>().unwrap().collect();
        let mut past = Past::default();
        drop(past.extended(&new(1.0), &new(1.0)).unwrap());
        let mut fork = past.fork();
        let (own, _) = past.extended(&new(2.0), &new(2.0)).unwrap();
        let (other, _) = fork.extended(&new(3.0), &new(3.0)).unwrap();
        let found: [Vec<f64>; 2] = [values(&own), values(&other)];
        assert_eq!(found, [[1.0, 2.0], [1.0, 3.0]]);
        // Past the room of a cache.
        let mut last = own;
        for _ in 0..3 * ROOM {
            last = past.extended(&new(4.0), &new(4.0)).unwrap().0;
        }
        let found: Vec<f64> = values(&last);
        assert_eq!((found.len() as i64, &found[..3]), (3 * ROOM + 2, &[1.0, 2.0, 4.0][..]));
    }
}
