//! One path at its present state: from a collected run, or from the folders of stopped peers, without the rest of the
//! run.

use std::path::PathBuf;
use std::sync::Arc;

use crate::config::RunConfig;
use crate::model::exchange;
use crate::names::{PathId, RunId};
use crate::outer::ModuleState;
use crate::peer::Collected;
use crate::peer::collect::stores::{Stores, manifest_of};
use crate::peer::collect::{CollectError, no_path};
use crate::peer::manifest::{Manifest, ManifestError};
use crate::text::Tokenizer;

/// A path, or its ancestor, with its tokenizer.
pub struct Checkpoint {
    pub config: RunConfig,
    pub tokenizer: Tokenizer,
    /// Its parameters, level by level.
    pub levels: Vec<Vec<f32>>,
    /// What no level lists, beside adapters.
    pub frozen: Arc<[f32]>,
}

impl Checkpoint {
    /// From a collected run; the ancestor if no path is named.
    pub fn of_collected(collected: &Collected, path: Option<PathId>) -> Result<Self, CollectError> {
        let levels = match path {
            None => collected.ancestor.to_vec(),
            Some(path) => {
                no_path(path, &collected.grid)?;
                collected.levels_of(path)?
            }
        };
        let tokenizer = Tokenizer::from_json(collected.tokenizer.json())?;
        let config = collected.manifest.config.clone();
        Ok(Self { config, tokenizer, levels, frozen: collected.frozen.clone() })
    }

    /// From the newest states of a path's modules in these folders; the ancestor if no path is named.
    pub fn in_stores(folders: &[PathBuf], path: Option<PathId>) -> Result<Self, CollectError> {
        let first = folders.first().ok_or(CollectError::PartInNoFolder("the run"))?;
        let bytes = manifest_of(first)?;
        let run = RunId(*blake3::hash(&bytes).as_bytes());
        let (mut manifest, _) = Manifest::decode(&bytes)?;
        let mut stores = Stores::open(folders, run)?;
        manifest.take_table(&stores.part(manifest.shards.table, "the shard table")?)?;
        stores.look(folders, &manifest.plan()?)?;
        let tokenizer = Tokenizer::from_json(&stores.part(manifest.tokenizer, "the tokenizer")?)?;
        let RunConfig { model, levels, .. } = &manifest.config;
        let ancestor = match path {
            Some(_) if manifest.config.frozen().is_none() => Vec::new(),
            _ => stores.part(manifest.ancestor, "the ancestor")?,
        };
        let frozen = exchange::decode_frozen(&ancestor, model, levels)?.into();
        let levels = match path {
            None => {
                let level = |level| exchange::decode_level(&ancestor, model, level);
                levels.iter().map(level).collect::<Result<_, _>>()?
            }
            Some(path) => newest(&stores, &manifest, path, folders.len())?,
        };
        Ok(Self { config: manifest.config, tokenizer, levels, frozen })
    }
}

fn newest(stores: &Stores, manifest: &Manifest, path: PathId, folders: usize) -> Result<Vec<Vec<f32>>, CollectError> {
    let grid = manifest.config.grid().map_err(ManifestError::from)?;
    no_path(path, &grid)?;
    let (mut levels, mut missing) = (Vec::new(), Vec::new());
    for (module, count) in grid.modules_of(path).into_iter().zip(manifest.level_counts()) {
        match stores.states(module).next().transpose()? {
            Some((bytes, _)) => levels.push(ModuleState::decode(&bytes, module, count)?.parameters),
            None => missing.push(module),
        }
    }
    if missing.is_empty() { Ok(levels) } else { Err(CollectError::InNoFolder { modules: missing, folders }) }
}
