//! Prefetching for large swarms: thousands of peers do not fit the processor's cache, and gossip goes to one after the
//! other, so most of the time would be spent waiting for memory. The memory of the next few events is read in advance,
//! in any order. This does not change any result.

use std::hint::black_box;

use crate::simulator::world::{Due, World};

/// Number of events.
const AHEAD: usize = 12;

/// With fewer peers, everything is in the cache.
const FEW_PEERS: usize = 256;

impl World {
    /// Called before every event.
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
