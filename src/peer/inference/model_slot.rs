//! One network in memory that runs the ancestor and all paths of a run in turn, for the server and for a collected
//! folder.

use crate::config::{DeviceChoice, Precision, RunConfig};
use crate::model::{ForwardError, PathModel, open_device};
use crate::names::{BlobHash, PathId};
use crate::query::{Prompt, TokenSpan};
use crate::routing::{Router, features_of};
use crate::seed::Seed;
use crate::training::smaller_batches::in_batches;
use crate::training::{
    EvaluateError, GenerateError, Sampling, Sequences, TokenScore, generate, generate_with_scores, right_classes,
    target_losses,
};

/// The source of a level's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Ancestor,
    /// A module; the hash names the version.
    Module(BlobHash),
    /// A path's own parameters, by their name.
    Own(BlobHash),
}

/// A network, and the sources of its levels.
pub struct ModelSlot {
    model: PathModel,
    holds: Vec<Option<Part>>,
}

impl ModelSlot {
    /// `frozen` is what no level lists, beside adapters.
    pub fn new(config: &RunConfig, device: DeviceChoice, frozen: &[f32]) -> anyhow::Result<Self> {
        let mut model = PathModel::new(&config.model, &config.levels, open_device(device)?, Precision::F32)?;
        model.set_frozen(frozen)?;
        Ok(Self { model, holds: vec![None; config.levels.len()] })
    }

    pub fn model(&self) -> &PathModel {
        &self.model
    }

    /// Lets texts go on with networks that differ only from one of these blocks on.
    pub fn keep_streams(&mut self, blocks: Vec<usize>) {
        self.model.keep_streams(blocks);
    }

    /// The network with these parts, one for each level. `read` is called for each level that has another part so far.
    pub fn load(
        &mut self,
        parts: &[Part],
        read: &mut dyn FnMut(usize) -> anyhow::Result<Vec<f32>>,
    ) -> anyhow::Result<&PathModel> {
        for (level, part) in parts.iter().enumerate() {
            let holds = self.holds.get(level).copied().flatten();
            if holds != Some(*part) {
                let values = read(level)?;
                self.holds[level] = None;
                self.model.set_level(level, &values)?;
                self.holds[level] = Some(*part);
            }
        }
        Ok(&self.model)
    }

    /// The network with all levels from one source, which is read only if needed, level by level.
    pub fn load_whole(
        &mut self,
        part: Part,
        read: impl FnOnce() -> anyhow::Result<Vec<Vec<f32>>>,
    ) -> anyhow::Result<&PathModel> {
        if self.holds.iter().any(|holds| *holds != Some(part)) {
            let mut levels = read()?;
            let parts = vec![part; self.holds.len()];
            self.load(&parts, &mut |level| Ok(levels.get_mut(level).map(std::mem::take).unwrap_or_default()))?;
        }
        Ok(&self.model)
    }
}

/// The paths of texts by their first tokens. Needs the ancestor in the network if the router uses features.
pub fn routes(router: &Router, ancestor: Option<&PathModel>, prefixes: &[&[u32]]) -> anyhow::Result<Vec<PathId>> {
    let Some(model) = ancestor.filter(|_| router.needs_features()) else {
        anyhow::ensure!(!router.needs_features(), "the router needs the ancestor");
        return Ok(router.route_all(&[], prefixes));
    };
    Ok(router.route_all(&features(model, prefixes)?, prefixes))
}

/// The ancestor's features of texts by their first tokens, row-major `[prefixes, width]`.
pub fn features(ancestor: &PathModel, prefixes: &[&[u32]]) -> anyhow::Result<Vec<f32>> {
    let mut failed = None;
    let features = features_of(prefixes, ancestor.config().width, &mut |batch| {
        let mut rows = Vec::new();
        let computed = in_batches(batch, <[_]>::len, |batch| {
            rows.extend(ancestor.prefix_features(batch)?);
            Ok::<_, ForwardError>(())
        });
        if let Err(error) = computed {
            failed.get_or_insert(error);
            rows.clear();
        }
        rows
    });
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(features?),
    }
}

/// The nats of each piece. Pieces of one text, one after the other, are read at once: the answers of a conversation cost
/// what the conversation costs.
pub fn nats(model: &PathModel, pieces: &[TokenSpan]) -> Result<Vec<f64>, EvaluateError> {
    let texts: Vec<&[TokenSpan]> = pieces.chunk_by(follows).collect();
    let losses = target_losses(model, &Texts(&texts), 1, &mut || {})?;
    let mut nats = Vec::with_capacity(pieces.len());
    for (text, losses) in texts.iter().zip(&losses) {
        let mut losses = losses.iter();
        for piece in *text {
            let own = losses.by_ref().take(piece.tokens.len().saturating_sub(piece.from.max(1) as usize));
            let sum: f64 = own.map(|loss| f64::from(*loss)).sum();
            if !sum.is_finite() {
                return Err(EvaluateError::NotFinite { sequence: nats.len(), nats: sum });
            }
            nats.push(sum);
        }
    }
    Ok(nats)
}

/// Whether a piece is scored behind another in the same text.
fn follows(before: &TokenSpan, piece: &TokenSpan) -> bool {
    before.tokens.len() <= piece.from as usize && piece.tokens.starts_with(&before.tokens)
}

/// The number of images whose class is the likeliest.
pub fn right(model: &PathModel, pieces: &[TokenSpan]) -> Result<u64, EvaluateError> {
    right_classes(model, &Texts(&pieces.chunks(1).collect::<Vec<_>>()))
}

/// The next tokens: fewer than requested if the text ends.
pub fn continue_text(model: &PathModel, opening: &Prompt) -> Result<Vec<u32>, GenerateError> {
    generate(model, &opening.tokens, &sampling(opening))
}

/// The same tokens with their scores.
pub fn continue_with_scores(model: &PathModel, opening: &Prompt) -> Result<Vec<TokenScore>, GenerateError> {
    generate_with_scores(model, &opening.tokens, &sampling(opening))
}

fn sampling(opening: &Prompt) -> Sampling {
    Sampling {
        count: opening.count as usize,
        temperature: opening.temperature.get(),
        top_k: opening.top_k as usize,
        seed: Seed::root(opening.seed).child("continuation"),
        stop: opening.stop,
        before: opening.before as usize,
    }
}

/// Texts of which some pieces are scored: the last one is the whole text.
struct Texts<'a>(&'a [&'a [TokenSpan]]);

impl Sequences for Texts<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn sequence(&self, index: usize) -> &[u32] {
        self.0[index].last().map_or(&[], |whole| &whole.tokens)
    }

    fn targets(&self, index: usize, first: usize) -> Vec<(usize, u32)> {
        let counted = |piece: &TokenSpan| {
            let tokens = piece.tokens.iter().enumerate().skip(first.max(piece.from as usize));
            tokens.map(|(position, token)| (position - 1, *token)).collect::<Vec<_>>()
        };
        self.0[index].iter().flat_map(counted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::{small_levels, small_model, small_path};

    #[test]
    fn a_text_read_in_windows_on_one_path_costs_what_it_costs_as_a_whole() {
        let path = small_path(&small_model(), &small_levels());
        let tokens: Vec<u32> = (0..25).map(|place| place * 37 % 300).collect();
        let whole = nats(&path, &[TokenSpan { tokens: tokens.clone(), from: 8 }]).unwrap();
        for every in [1, 4, 7, 17] {
            let windows: Vec<TokenSpan> = (8..25)
                .step_by(every)
                .map(|from| TokenSpan { tokens: tokens[..25.min(from + every)].to_vec(), from: from as u32 })
                .collect();
            let sum: f64 = nats(&path, &windows).unwrap().iter().sum();
            assert!((sum - whole[0]).abs() < 1e-4 * whole[0], "{every}: {sum} {}", whole[0]);
        }
        let all = nats(&path, &[TokenSpan { tokens, from: 1 }]).unwrap();
        assert!(all[0] > whole[0]);
    }

    #[test]
    fn the_answers_of_a_conversation_are_read_at_once_and_scored_as_each_alone() {
        let path = small_path(&small_model(), &small_levels());
        let of = |factor: u32, from: u32, until: u32| TokenSpan {
            tokens: (0..until).map(|place| place * factor % 300).collect(),
            from,
        };
        // Two conversations, of which the second begins as a piece that is scored twice.
        let pieces = [of(37, 3, 6), of(37, 8, 12), of(37, 20, 25), of(41, 1, 9), of(41, 1, 9), of(41, 9, 14)];
        let texts: Vec<usize> = pieces.chunk_by(follows).map(<[_]>::len).collect();
        assert_eq!(texts, [3, 1, 2]);
        let together = nats(&path, &pieces).unwrap();
        assert_eq!(together.len(), pieces.len());
        for (piece, nats_of) in pieces.iter().zip(together) {
            let alone = nats(&path, std::slice::from_ref(piece)).unwrap()[0];
            assert!((nats_of - alone).abs() < 1e-4 * alone, "{nats_of} {alone}");
        }
    }
}
