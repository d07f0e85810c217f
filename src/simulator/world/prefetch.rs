//! Thousands of peers fit in no processor's cache, and gossip goes to one after the other: most of the time would go by
//! waiting for memory, one read after the other. So what the next few events will read is read for all of them at once,
//! while it does not matter in which order it comes. Nothing follows from it.

use std::hint::black_box;

use crate::simulator::world::{Due, World};

/// So many events.
const AHEAD: usize = 12;

/// With fewer peers, all is in the cache anyhow.
const FEW_PEERS: usize = 256;

impl World {
    /// Before every event.
    pub(super) fn look_ahead(&mut self) {
        if self.peers.len() <= FEW_PEERS {
            return;
        }
        if self.seen_ahead > 0 {
            self.seen_ahead -= 1;
            return;
        }
        self.seen_ahead = AHEAD;
        let coming = || self.due.coming().take(AHEAD);
        for (index, _, due) in coming() {
            let said =
                if let Due::Heard { message, .. } = due { Some(std::mem::discriminant(&**message)) } else { None };
            black_box((self.peers[*index].up, self.peers[*index].node.next_deadline(), said));
        }
        for (index, _, due) in coming() {
            if let Due::Heard { module, author, .. } = due {
                let node = &self.peers[*index].node;
                black_box((node.knows(*author), node.pending(*module).0));
            }
        }
    }
}
