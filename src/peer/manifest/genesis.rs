//! The first states of a run's modules. Every peer can compute them from the ancestor, so they are not sent.

use anyhow::Context;

use crate::config::{OuterMode, RunConfig};
use crate::model::exchange;
use crate::names::{BlobRef, ModuleId};
use crate::outer::ModuleState;
use crate::peer::manifest::Manifest;
use crate::store::{BlobError, BlobStore};

/// A module's first state, from its level of the ancestor and its module id.
pub(crate) fn first_state(module: ModuleId, parameters: Vec<f32>, mode: OuterMode) -> Vec<u8> {
    ModuleState::initial(module, parameters, mode).encode()
}

/// The same, from the ancestor in a store. `None` if the ancestor is absent, or makes another state than the manifest
/// names: then holders of that state are asked.
pub(crate) fn make(manifest: &Manifest, blobs: &BlobStore, module: ModuleId) -> Result<Option<Vec<u8>>, BlobError> {
    let (config, ancestor) = (&manifest.config, manifest.ancestor);
    let Some(level) = config.levels.get(usize::from(module.level)) else { return Ok(None) };
    let ancestor = match blobs.get(ancestor.hash, ancestor.bytes) {
        Err(BlobError::Rotten { .. }) => None,
        found => found?,
    };
    let Some(ancestor) = ancestor else { return Ok(None) };
    let Ok(parameters) = exchange::decode_level(&ancestor, &config.model, level) else { return Ok(None) };
    let state = first_state(module, parameters, config.outer.mode);
    let named = manifest.genesis.iter().any(|(_, named)| *named == BlobRef::of(&state));
    Ok(named.then_some(state))
}

/// The parts that no level lists, beside adapters: they stay those of the ancestor, which is read only if there are any.
pub(crate) fn frozen(
    manifest: &Manifest,
    read: impl FnOnce(BlobRef) -> anyhow::Result<Option<Vec<u8>>>,
) -> anyhow::Result<Vec<f32>> {
    let RunConfig { model, levels, .. } = &manifest.config;
    if manifest.config.frozen().is_none() {
        return Ok(Vec::new());
    }
    let missing = "the ancestor, beside which adapters are trained, is not in the store; leave, and join again with an \
        empty folder";
    let ancestor = read(manifest.ancestor)?.context(missing)?;
    Ok(exchange::decode_frozen(&ancestor, model, levels)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::tests::tiny_run::Tiny;

    #[test]
    fn every_first_state_comes_of_the_ancestor_and_what_a_manifest_makes_up_does_not() {
        let tiny = Tiny::create(true);
        let (mut manifest, blobs) = (tiny.decoded.clone(), &tiny.blobs);
        for (module, state) in &manifest.genesis {
            assert_eq!(BlobRef::of(&make(&manifest, blobs, *module).unwrap().unwrap()), *state);
        }
        let (module, _) = manifest.genesis[0];
        manifest.genesis[0].1 = BlobRef::of(b"made up");
        assert_eq!(make(&manifest, blobs, module).unwrap(), None);
        let above = ModuleId { level: manifest.config.levels.len() as u16, expert: 0 };
        assert_eq!(make(&manifest, blobs, above).unwrap(), None, "the router is not the ancestor's");
        blobs.remove(manifest.ancestor.hash).unwrap();
        assert_eq!(make(&manifest, blobs, manifest.genesis[1].0).unwrap(), None);
    }
}
