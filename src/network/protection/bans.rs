//! Keeping out whoever does what no honest peer does.

use libp2p::PeerId;

use crate::network::identity::{peer_id, peer_key};
use crate::network::protection::score::{Ban, Offence, now_s};
use crate::network::swarm::actor::Actor;

impl Actor {
    /// A peer has done something that no honest peer does.
    pub(in crate::network) fn blame(&mut self, peer: &PeerId, offence: Offence) {
        let Some(key) = peer_key(peer).filter(|_| peer != self.swarm.local_peer_id()) else { return };
        tracing::debug!(%peer, ?offence, "an offence");
        let now_s = now_s();
        if let Some(ban) = self.conduct.blame(key, offence, now_s) {
            let Ban { until_s, times, reason, .. } = &ban;
            tracing::warn!(%peer, seconds = until_s.saturating_sub(now_s), times, reason, "a peer is banned");
            // Ends its connections, and refuses others.
            self.swarm.behaviour_mut().banned.block_peer(*peer);
            self.tell_bans();
        }
    }

    /// Those of an earlier start.
    pub(in crate::network) fn restore_bans(&mut self, bans: Vec<Ban>) {
        let now_s = now_s();
        self.conduct.restore(bans, now_s);
        let banned: Vec<PeerId> = self.conduct.banned(now_s).filter_map(peer_id).collect();
        for peer in banned {
            self.swarm.behaviour_mut().banned.block_peer(peer);
        }
        self.tell_bans();
    }

    /// Whose time is over may come again.
    pub(in crate::network) fn end_bans(&mut self) {
        let blocked = self.swarm.behaviour().banned.blocked_peers();
        if blocked.is_empty() {
            return;
        }
        let banned: Vec<PeerId> = self.conduct.banned(now_s()).filter_map(peer_id).collect();
        let over: Vec<PeerId> = blocked.iter().filter(|peer| !banned.contains(peer)).copied().collect();
        for peer in over {
            tracing::info!(%peer, "a ban is over");
            self.swarm.behaviour_mut().banned.unblock_peer(peer);
        }
    }

    fn tell_bans(&self) {
        self.bans.send_replace(self.conduct.bans());
    }
}
