//! Reading further tokens of texts of which caches remember the rest.
//!
//! Two paths of a grid may have the same modules below some block. A text that goes from one to the other keeps the keys and
//! values of the blocks below, and those above are computed from the stream that entered them, if caches keep it.

use tch::{TchError, Tensor};

use crate::model::dna::Dna;
use crate::model::forward_error::ForwardError;
use crate::model::layers::block::Reading;
use crate::model::layers::kv_cache::{Memory, Past, advance, grouped, together};
use crate::model::layers::watch::Unwatched;
use crate::model::transformer::PathModel;

impl PathModel {
    /// Hidden states of further tokens, `[1, tokens, width]`, f32, without gradient, after all tokens in the cache.
    pub fn read(&self, memory: &mut Memory, tokens: &[u32]) -> Result<Tensor, ForwardError> {
        let _no_gradient = tch::no_grad_guard();
        if self.config.reads_images() {
            return Err(ForwardError::NoText);
        }
        let (found, context) = (memory.read + tokens.len(), self.config.context);
        if found > context {
            return Err(ForwardError::TooLong { found, context });
        }
        let all: Vec<i64> = memory.again.iter().chain(tokens).map(|token| i64::from(*token)).collect();
        let new = Tensor::f_from_slice(&all)?.f_unsqueeze(0)?;
        self.check(&new)?;
        let begin = found - all.len();
        if begin == 0 {
            memory.blocks.clear();
        }
        self.compute_above(memory)?;
        memory.blocks.resize_with(self.caches(), Past::default);
        let past = Some((&mut memory.blocks[..], begin));
        let hidden = self.trunk_after(&new.f_to_device(self.device())?, (None, &Unwatched), &self.exact(), past)?;
        memory.read = found;
        if self.config.looks_ahead() {
            memory.again = all.iter().map(|token| *token as u32).collect();
        }
        Ok(hidden.f_narrow(1, (all.len() - tokens.len()) as i64, tokens.len() as i64)?)
    }

    /// Whether [`PathModel::read_each`] can read several texts at once: routers of blocks and of modules keep a state that
    /// it does not know.
    pub fn reads_together(&self) -> bool {
        self.dna.is_none() && self.config.directional.is_none() && !self.config.reads_images()
    }

    /// Hidden states of one further token of each of several texts, `[texts, width]`, f32, without gradient. Each text has
    /// a cache with at least one token.
    ///
    /// The products of all texts are computed at once, so that the weights come from memory once. Sums may be rounded in
    /// another order than by [`PathModel::read`].
    pub fn read_each(&self, memories: &mut [&mut Memory], tokens: &[u32]) -> Result<Tensor, ForwardError> {
        let _no_gradient = tch::no_grad_guard();
        if !self.reads_together() {
            return Err(ForwardError::NoText);
        }
        let longest = memories.iter().map(|memory| memory.read + 1).max().unwrap_or(0);
        if longest > self.config.context {
            return Err(ForwardError::TooLong { found: longest, context: self.config.context });
        }
        memories.iter_mut().try_for_each(|memory| self.compute_above(memory))?;
        let groups = grouped(&memories.iter().map(|memory| memory.read).collect::<Vec<_>>());
        let order: Vec<usize> = groups.concat();
        let rows: Vec<i64> = order.iter().map(|text| i64::from(tokens[*text])).collect();
        let rows = Tensor::f_from_slice(&rows)?.f_unsqueeze(1)?;
        self.check(&rows)?;
        let positions: Vec<i64> = order.iter().map(|text| memories[*text].read as i64).collect();
        let positions = Tensor::f_from_slice(&positions)?.f_to_device(self.device())?;
        let products = self.exact();
        let stream = self.input.vectors_at(&rows.f_to_device(self.device())?, &positions, &products)?;
        let rotation =
            self.rotation.as_ref().map(|all| all.f_index_select(0, &positions)?.f_unsqueeze(1)).transpose()?;
        let mut past = together(memories, &groups, self.caches())?;
        let hidden = self.through(stream, (None, &Unwatched), &products, (rotation, Some(&mut past)))?;
        advance(memories);
        let mut places = vec![0i64; order.len()];
        order.iter().enumerate().for_each(|(row, text)| places[*text] = row as i64);
        hidden
            .f_squeeze_dim(1)?
            .f_index_select(0, &Tensor::f_from_slice(&places)?.f_to_device(self.device())?)
            .map_err(ForwardError::from)
    }

    /// Lets caches keep the stream that enters these blocks from now on, so that texts can go on with networks that differ
    /// only from there on. Only for networks that [read together](Self::reads_together).
    pub fn keep_streams(&mut self, mut blocks: Vec<usize>) {
        blocks.retain(|block| (1..self.blocks.len()).contains(block) && self.reads_together());
        blocks.sort_unstable();
        blocks.dedup();
        self.kept = blocks;
    }

    /// Makes what another network has read the cache of this one, which computes the same below a block. Returns whether it
    /// could: the stream that enters the block was kept.
    pub fn takes_over(&self, memory: &mut Memory, block: usize) -> bool {
        let block = memory.above.map_or(block, |above| above.min(block));
        let is_above_all = block >= self.blocks.len() && self.reads_together();
        let can = memory.blocks.len() == self.caches() && (is_above_all || self.kept.contains(&block));
        if can && !is_above_all {
            memory.above = Some(block);
        }
        can
    }

    /// A cache for each block, each router and module of a pool, and each block before which the stream is kept.
    fn caches(&self) -> usize {
        self.blocks.len() + self.dna.as_ref().map_or(0, Dna::memories) + self.kept.len()
    }

    /// Keeps the stream that enters a segment, `[rows, time, width]`, if it is to be kept.
    pub(super) fn keep(&self, segment: usize, stream: &Tensor, past: &mut [Past]) -> Result<(), TchError> {
        match self.kept.iter().position(|block| *block == segment) {
            Some(place) => past.get_mut(self.blocks.len() + place).map_or(Ok(()), |past| past.keep(stream)),
            None => Ok(()),
        }
    }

    /// Computes the caches of the blocks that were of another network.
    fn compute_above(&self, memory: &mut Memory) -> Result<(), ForwardError> {
        let Some(block) = memory.above else { return Ok(()) };
        let place = self.kept.iter().position(|kept| *kept == block);
        let kept = place.and_then(|place| memory.blocks.get(self.blocks.len() + place));
        let stream = kept.map(Past::kept).transpose()?.flatten();
        let stream = stream.ok_or_else(|| TchError::Shape(format!("the stream before block {block} is not kept")))?;
        // Those of the streams above, too.
        let streams = self.kept.iter().enumerate().filter(|(_, kept)| **kept > block);
        let later = streams.map(|(place, _)| self.blocks.len() + place);
        (block..self.blocks.len()).chain(later).for_each(|place| memory.blocks[place] = Past::default());
        let (products, rotation) = (self.exact(), self.rotation_from(0, &stream)?);
        let rotation = rotation.as_ref();
        let reading = Reading { products: &products, rotation, lengths: None, packed: None, watch: &Unwatched };
        let mut above = stream.shallow_clone();
        for segment in block..self.blocks.len() {
            if segment > block {
                self.keep(segment, &above, &mut memory.blocks)?;
            }
            above = self.segment(segment, &above, &reading, Some(&mut memory.blocks))?;
        }
        memory.above = None;
        Ok(())
    }
}
