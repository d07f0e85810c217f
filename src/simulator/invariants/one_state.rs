//! Invariant: the same update makes the same state everywhere.

use std::collections::BTreeMap;

use crate::names::{BlobHash, ModuleId};
use crate::protocol::wire::message::Head;

/// Every head ever reached.
#[derive(Debug, Default)]
pub struct OneState {
    seen: BTreeMap<(ModuleId, BlobHash), BlobHash>,
}

impl OneState {
    /// # Errors
    /// If a peer reached another state with the same update.
    pub fn look(&mut self, module: ModuleId, head: Head) -> Result<(), String> {
        let state = *self.seen.entry((module, head.update)).or_insert(head.state.hash);
        if state == head.state.hash {
            return Ok(());
        }
        Err(format!("module {module} version {}: states {state} and {}", head.version, head.state.hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{BlobRef, Version};

    #[test]
    fn two_states_of_one_update_are_found() {
        let module = ModuleId { level: 0, expert: 0 };
        let head = |state: &[u8]| Head {
            version: Version(1),
            update: BlobHash([1; 32]),
            state: BlobRef::of(state),
            weight: 1,
        };
        let mut invariant = OneState::default();
        assert!(invariant.look(module, head(b"a")).is_ok());
        assert!(invariant.look(module, head(b"a")).is_ok());
        assert!(invariant.look(module, head(b"b")).is_err());
    }
}
