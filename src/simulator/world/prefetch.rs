//! Prefetching for large swarms. Thousands of peers fit in no processor's cache, and gossip goes to one after the
//! other, so most of the time would be spent waiting for memory, one read after another. So the memory for the next few
//! events is read for all of them at once, when the order does not matter. It has no effect on the simulation.

use std::hint::black_box;

use crate::simulator::world::{Due, World};

/// How many events are prefetched at once.
const AHEAD: usize = 12;

/// With fewer peers, everything fits in the cache.
const FEW_PEERS: usize = 256;

impl World {
    /// Prefetches the next events. Called before every event.
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
