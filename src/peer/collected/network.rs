//! One network in memory that plays the ancestor and every path of a collected run in turn, whatever their number.

use super::Collected;
use crate::config::{DeviceChoice, Precision};
use crate::model::{PathModel, open_device};
use crate::names::PathId;
use crate::routing::features_of;

/// Who is in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cast {
    Nobody,
    Ancestor,
    Path(PathId),
}

/// A network and the run that it plays.
pub struct Network<'a> {
    collected: &'a Collected,
    model: PathModel,
    plays: Cast,
}

impl<'a> Network<'a> {
    /// # Errors
    /// If the device cannot be opened, or memory is short.
    pub fn new(collected: &'a Collected, device: DeviceChoice) -> anyhow::Result<Self> {
        let config = &collected.manifest().config;
        let model = PathModel::new(&config.model, &config.levels, open_device(device)?, Precision::F32)?;
        Ok(Self { collected, model, plays: Cast::Nobody })
    }

    /// The ancestor.
    ///
    /// # Errors
    /// If its parameters do not fit.
    pub fn ancestor(&mut self) -> anyhow::Result<&PathModel> {
        if self.plays != Cast::Ancestor {
            self.load(self.collected.ancestor())?;
            self.plays = Cast::Ancestor;
        }
        Ok(&self.model)
    }

    /// A path.
    ///
    /// # Errors
    /// If a module's file is damaged.
    pub fn path(&mut self, path: PathId) -> anyhow::Result<&PathModel> {
        if self.plays != Cast::Path(path) {
            self.load(&self.collected.levels_of(path)?)?;
            self.plays = Cast::Path(path);
        }
        Ok(&self.model)
    }

    fn load(&mut self, levels: &[Vec<f32>]) -> anyhow::Result<()> {
        self.plays = Cast::Nobody;
        for (level, values) in levels.iter().enumerate() {
            self.model.set_level(level, values)?;
        }
        Ok(())
    }

    /// The path of each document, by its first tokens and the ancestor's features of them.
    ///
    /// # Errors
    /// If a prefix is empty, or does not fit the model.
    pub fn routes(&mut self, prefixes: &[&[u32]]) -> anyhow::Result<Vec<PathId>> {
        let router = self.collected.router();
        if !router.needs_features() {
            return Ok(router.route_all(&[], prefixes));
        }
        let width = router.width();
        let model = self.ancestor()?;
        let mut failed = None;
        let features = features_of(prefixes, width, &mut |batch| {
            model.prefix_features(batch).unwrap_or_else(|error| {
                failed.get_or_insert(error);
                Vec::new()
            })
        });
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(router.route_all(&features?, prefixes)),
        }
    }
}
