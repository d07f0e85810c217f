//! A network with a pool that is small enough for tests.

use crate::config::{Architecture, DnaConfig, LevelConfig, ModelConfig, Pool, Positions};
use crate::grid::Sharing;
use crate::model::transformer::samples::small_model;

/// One block, then three steps through five modules of all kinds.
pub(crate) fn dna_model() -> ModelConfig {
    let modules = Pool { transformer: 2, attention: 1, mlp: 1, identity: 1 };
    ModelConfig {
        architecture: Architecture::Dna,
        blocks: 1,
        positions: Positions::Learned,
        dna: Some(DnaConfig { modules, steps: 3, top_k: 1, skips: None, bias_rate: 1e-3, fixed_routers: false }),
        ..small_model()
    }
}

/// Of [`dna_model`], with any number of steps.
pub(crate) fn dna_levels() -> Vec<LevelConfig> {
    let model = dna_model();
    let parts: Vec<String> = model.parts().iter().map(ToString::to_string).filter(|part| part != "balance").collect();
    let level = |parts| LevelConfig { parts, sharing: Sharing::Shared };
    vec![level(parts), level(vec!["balance".to_owned()])]
}
