//! What a node does when it, or a peer that it hears, runs on two machines with one identity.

use crate::names::PeerKey;
use crate::protocol::Node;
use crate::protocol::action::{Action, Report};
use crate::protocol::membership::incarnation::Copy;
use crate::protocol::wire::message::{Copied, Start};

impl Node {
    /// Identifies this start of the peer. A copy counts its starts just the same, so `nonce` is drawn anew at each
    /// start. The peer's signature proves the start to the other copy. Without this call the nonce is 0.
    #[must_use]
    pub fn started_as(mut self, nonce: u64, sign: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        let incarnation = self.membership.start().incarnation;
        // Nobody else can compute this signature, and it is never published.
        self.reputation.audits_mut().set_secret(*blake3::hash(&sign(b"pathswarm audits")).as_bytes());
        let signature = sign(&Start::signed_bytes(self.me, incarnation, nonce));
        self.membership.set_start(Start { incarnation, nonce, signature });
        self
    }

    /// Two starts of one key are alive at once.
    pub(in crate::protocol) fn notice_copy(&mut self, peer: PeerKey, copy: Copy) {
        let addresses = copy.addresses.clone();
        if self.membership.note_copy(self.now, peer, copy) {
            self.report_copy(peer, addresses, false);
        }
    }

    fn report_copy(&mut self, peer: PeerKey, addresses: Vec<String>, gives_way: bool) {
        self.act(Action::Report(Report::CopiedIdentity { peer, addresses, gives_way }));
    }

    /// Another peer reports that this key has started elsewhere too. The signature is verified. The lower of two starts
    /// goes silent at once, without a goodbye, which would be attributed to the other.
    pub(in crate::protocol) fn hear_named(&mut self, named: &[Copied]) {
        let mine = self.membership.start().order();
        let Some(other) = named.iter().find(|named| named.peer == self.me) else { return };
        if other.start.order() > mine {
            self.lifecycle.go();
            self.out.stop_timers();
            self.report_copy(self.me, Vec::new(), true);
        } else if other.start.order() == mine {
            let copy = Copy { start: other.start.clone(), lower: (0, 0), addresses: Vec::new() };
            self.notice_copy(self.me, copy);
        }
    }
}
