//! Bans peers by their score.

use libp2p::PeerId;

use crate::names::PeerKey;
use crate::network::identity::{peer_id, peer_key};
use crate::network::protection::offences::{Ban, Offence, now_s};
use crate::network::swarm::actor::Actor;

impl Actor {
    /// Records an offence of a peer.
    pub(crate) fn penalize(&mut self, peer: &PeerId, offence: Offence) {
        let Some(key) = peer_key(peer).filter(|_| peer != self.swarm.local_peer_id()) else { return };
        tracing::debug!(%peer, ?offence, "an offence");
        let now_s = now_s();
        if let Some(ban) = self.scores.penalize(key, offence, now_s) {
            let Ban { until_s, times, reason, .. } = &ban;
            tracing::warn!(%peer, seconds = until_s.saturating_sub(now_s), times, reason, "a peer is banned");
            // Closes its connections, and refuses new ones.
            self.swarm.behaviour_mut().banned.block_peer(*peer);
            self.tell_bans();
        }
    }

    /// The same, from the application.
    pub(crate) fn penalize_key(&mut self, peer: PeerKey, offence: Offence) {
        if let Some(peer) = peer_id(peer) {
            self.penalize(&peer, offence);
        }
    }

    /// Restores the bans of an earlier start.
    pub(crate) fn restore_bans(&mut self, bans: Vec<Ban>) {
        let now_s = now_s();
        self.scores.restore(bans, now_s);
        let banned: Vec<PeerId> = self.scores.banned(now_s).filter_map(peer_id).collect();
        for peer in banned {
            self.swarm.behaviour_mut().banned.block_peer(peer);
        }
        self.tell_bans();
    }

    /// Lifts the bans whose time is over.
    pub(crate) fn end_bans(&mut self) {
        let blocked = self.swarm.behaviour().banned.blocked_peers();
        if blocked.is_empty() {
            return;
        }
        let banned: Vec<PeerId> = self.scores.banned(now_s()).filter_map(peer_id).collect();
        let over: Vec<PeerId> = blocked.iter().filter(|peer| !banned.contains(peer)).copied().collect();
        for peer in over {
            tracing::info!(%peer, "a ban is over");
            self.swarm.behaviour_mut().banned.unblock_peer(peer);
        }
    }

    fn tell_bans(&self) {
        self.bans.send_replace(self.scores.bans());
    }
}
