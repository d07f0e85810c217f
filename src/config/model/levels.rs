//! Which parts of the model make up each level, and what a level's flat buffer holds.

use serde::{Deserialize, Serialize};

use crate::config::model::ModelConfig;
use crate::config::model::parts::{Part, TensorSpec};
use crate::grid::Sharing;

/// One `[[levels]]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelConfig {
    /// Names of parts: `embedding`, `block.3`, `blocks.0-5`, `final-norm`, `head`. Adapters add `adapter.3` and
    /// `adapters.0-5`; parts that no level lists are then frozen. Directional attention adds
    /// `router.3`, `routers.0-5`, `directions.3` and `directions.0-5`. A DNA model adds `router.3`, `module.3`, ranges
    /// of both, and `balance`, which needs its own level. `layer.3` and `layers.0-5` are blocks with their routers and
    /// directions.
    pub parts: Vec<String>,
    /// `"shared"`, `{ experts = K }` or `"path"`.
    pub sharing: Sharing,
}

/// Upper bound of ranges. No model has as many blocks, routers or modules.
const MOST_OF_A_KIND: usize = 1 << 14;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LevelError {
    #[error("level {level} lists {name:?}, which this model does not have; its parts are {parts}")]
    Unknown { level: usize, name: String, parts: String },
    #[error("{part} is listed in level {first} and again in level {second}; list it once")]
    Twice { part: String, first: usize, second: usize },
    #[error("no level lists {0}; every parameter must belong to one level")]
    Missing(String),
    #[error("level {0} lists no parts; list some or remove it")]
    Empty(usize),
    #[error(
        "level {0} lists balance among other parts, but balance is aggregated in another way: give it its own level"
    )]
    Balance(usize),
    #[error("{0} levels are too many; at most 65535")]
    TooMany(usize),
}

impl LevelError {
    /// The level whose list of parts is wrong, if it is one.
    pub(in crate::config) fn level(&self) -> Option<usize> {
        match self {
            Self::Unknown { level, .. } | Self::Empty(level) | Self::Balance(level) => Some(*level),
            Self::Twice { second, .. } => Some(*second),
            Self::Missing(_) | Self::TooMany(_) => None,
        }
    }
}

impl LevelConfig {
    /// Whether this level holds the balance of choices. Balance is averaged, not learnt.
    pub fn is_balance(&self) -> bool {
        self.parts == ["balance"]
    }

    /// The named parts, in the order of the file.
    fn parse(&self, model: &ModelConfig, level: usize) -> Result<Vec<Part>, LevelError> {
        let known = model.parts();
        let mut found = Vec::new();
        for name in &self.parts {
            let listed = part_names(name, model).filter(|parts| parts.iter().all(|part| known.contains(part)));
            let Some(parts) = listed else {
                let parts = known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                return Err(LevelError::Unknown { level, name: name.clone(), parts });
            };
            found.extend(parts);
            // A part is listed twice. The check comes early, since a short range can expand to a thousand parts.
            if found.len() > known.len() {
                break;
            }
        }
        Ok(found)
    }
}

fn part_names(name: &str, model: &ModelConfig) -> Option<Vec<Part>> {
    match name {
        "embedding" => return Some(vec![Part::Embedding]),
        "final-norm" => return Some(vec![Part::FinalNorm]),
        "head" => return Some(vec![Part::Head]),
        "balance" => return Some(vec![Part::Balance]),
        _ => {}
    }
    let (kind, place) = name.split_once('.')?;
    let (first, last) = match (place.split_once('-'), kind) {
        (None, "block" | "adapter" | "router" | "directions" | "layer" | "module") => (place, place),
        (Some(range), "blocks" | "adapters" | "routers" | "directions" | "layers" | "modules") => range,
        _ => return None,
    };
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    let parts = |index: usize| match kind {
        "block" | "blocks" => vec![Part::Block(index)],
        "adapter" | "adapters" => vec![Part::Adapter(index)],
        "router" | "routers" => vec![Part::Router(index)],
        "directions" => vec![Part::Directions(index)],
        "module" | "modules" => vec![Part::Module(index)],
        _ => model.layer(index),
    };
    (first <= last && last < MOST_OF_A_KIND).then(|| (first..=last).flat_map(parts).collect())
}

pub fn check_levels(model: &ModelConfig, levels: &[LevelConfig]) -> Result<(), LevelError> {
    if levels.len() > usize::from(u16::MAX) {
        return Err(LevelError::TooMany(levels.len()));
    }
    let mut places: Vec<(Part, usize)> = Vec::new();
    for (level, config) in levels.iter().enumerate() {
        let parts = config.parse(model, level)?;
        if parts.is_empty() {
            return Err(LevelError::Empty(level));
        }
        for part in parts {
            if let Some((_, first)) = places.iter().find(|(placed, _)| *placed == part) {
                return Err(LevelError::Twice { part: part.to_string(), first: *first, second: level });
            }
            places.push((part, level));
        }
    }
    let is_missing = |part: &Part| !places.iter().any(|(placed, _)| placed == part);
    match model.parts().into_iter().filter(|part| !may_be_frozen(model, *part)).find(is_missing) {
        Some(part @ (Part::Router(_) | Part::Directions(_))) if model.directional.is_some() => {
            Err(LevelError::Missing(format!("{part} (layers.0-5 lists blocks with their routers and directions)")))
        }
        Some(part) => Err(LevelError::Missing(part.to_string())),
        None => Ok(()),
    }
}

/// Beside adapters, what no level lists stays as it was pretrained.
fn may_be_frozen(model: &ModelConfig, part: Part) -> bool {
    model.adapter.is_some() && !matches!(part, Part::Adapter(_))
}

/// The parts that no level lists, as a level of their own that is never trained; `None` if there are none. Requires
/// checked levels.
pub fn frozen_parts(model: &ModelConfig, levels: &[LevelConfig]) -> Option<LevelConfig> {
    let listed: Vec<Part> = levels.iter().flat_map(|level| level.parse(model, 0).unwrap_or_default()).collect();
    let is_frozen = |part: &Part| may_be_frozen(model, *part) && !listed.contains(part);
    let parts: Vec<String> = model.parts().into_iter().filter(is_frozen).map(|part| part.to_string()).collect();
    (!parts.is_empty()).then_some(LevelConfig { parts, sharing: Sharing::Shared })
}

/// The parts of a level. Requires checked levels.
pub fn level_parts(model: &ModelConfig, level: &LevelConfig) -> Vec<Part> {
    level.parse(model, 0).unwrap_or_default()
}

/// The first block that a level changes the output of: 0 if it has the embedding, and the number of blocks if it has only what
/// comes after them. Requires checked levels.
pub fn first_block(model: &ModelConfig, level: &LevelConfig) -> usize {
    let first = |part: Part| match part {
        Part::Block(block) | Part::Adapter(block) | Part::Router(block) | Part::Directions(block) => block,
        Part::FinalNorm | Part::Head => model.blocks,
        Part::Embedding | Part::Module(_) | Part::Balance => 0,
    };
    level_parts(model, level).into_iter().map(first).min().unwrap_or(0)
}

/// A rule for swarms only: balance needs its own level.
pub fn check_balance(levels: &[LevelConfig]) -> Result<(), LevelError> {
    let mixed = |level: &LevelConfig| level.parts.len() > 1 && level.parts.iter().any(|part| part == "balance");
    levels.iter().position(mixed).map_or(Ok(()), |level| Err(LevelError::Balance(level)))
}

/// The tensors of a level's flat buffer, in order. Requires checked levels.
pub fn level_tensors(model: &ModelConfig, level: &LevelConfig) -> Vec<TensorSpec> {
    level_parts(model, level).into_iter().flat_map(|part| model.tensors(part)).collect()
}

/// Number of values in a level's flat buffer.
pub fn level_parameters(model: &ModelConfig, level: &LevelConfig) -> usize {
    level_tensors(model, level).iter().map(TensorSpec::count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::config::run::tests::SMALL;

    #[test]
    fn parts_that_are_listed_again_and_again_are_refused_before_they_are_all_looked_at() {
        let mut run = RunConfig::from_toml(SMALL).unwrap();
        run.model.blocks = 1024;
        // This fits into a manifest, but expands to 18 million parts.
        run.levels[0].parts = vec!["blocks.0-1023".to_owned(); 18_000];
        let refused = check_levels(&run.model, &run.levels).unwrap_err();
        assert!(matches!(refused, LevelError::Twice { first: 0, second: 0, .. }), "{refused}");
    }
}
