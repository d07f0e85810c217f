//! What a node does when it, or a peer that it hears, runs on two machines with one identity.

use crate::names::PeerKey;
use crate::protocol::Node;
use crate::protocol::action::{Action, Report};
use crate::protocol::membership::incarnation::Copy;
use crate::protocol::wire::message::{Copied, Start};

impl Node {
    /// Which start of the peer this is, beyond the count of starts, which a copy counts just the same: `nonce` is drawn
    /// anew at each start, and what the peer signs proves the start to the other copy. Without it, the nonce is 0.
    #[must_use]
    pub fn started_as(mut self, nonce: u64, sign: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        let incarnation = self.membership.start().incarnation;
        // What it signs cannot be known by anybody else before it is said, and this never is.
        self.reputation.audits_mut().set_secret(*blake3::hash(&sign(b"pathswarm audits")).as_bytes());
        let signature = sign(&Start::signed_bytes(self.me, incarnation, nonce));
        self.membership.set_start(Start { incarnation, nonce, signature });
        self
    }

    /// Two starts of one key live at once.
    pub(in crate::protocol) fn notice_copy(&mut self, peer: PeerKey, copy: Copy) {
        let addresses = copy.addresses.clone();
        if self.membership.note_copy(self.now, peer, copy) {
            self.report_copy(peer, addresses, false);
        }
    }

    fn report_copy(&mut self, peer: PeerKey, addresses: Vec<String>, gives_way: bool) {
        self.act(Action::Report(Report::CopiedIdentity { peer, addresses, gives_way }));
    }

    /// Another says that this key has started elsewhere as well; the signature is checked. The lower of two starts falls
    /// silent at once, without a goodbye: that would be taken for the other's.
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
