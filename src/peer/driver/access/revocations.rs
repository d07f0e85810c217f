//! Notices and orders about access: credentials and revocations that are heard, and revocations of this machine's user.

use crate::access::authentication::AccessNotice;
use crate::access::invitation::Revocation;
use crate::names::PeerKey;
use crate::network::Offence;
use crate::peer::access::access_control::AccessChange;
use crate::peer::driver::Driver;
use crate::peer::driver::handle::Order;
use crate::protocol::wire::encoding;

impl Driver {
    pub(super) fn take_revocations(&mut self, revocations: Vec<Revocation>) {
        let Some(access_control) = self.access.access_control.clone() else { return };
        for of in access_control.learn(revocations) {
            self.access.queue_revocation(access_control.revocation_of(of));
            self.revoked(of);
        }
    }

    fn revoked(&mut self, peer: PeerKey) {
        tracing::warn!(peer = %peer.short(), "the access of a peer was revoked");
        if peer == self.node.me() {
            let reason = "the access of this peer was revoked by a peer of its chain of invitations".to_owned();
            return self.report_refused(peer, reason);
        }
        self.disconnect(peer);
    }

    /// An access notice on a topic: a credential or a revocation.
    pub(crate) fn handle_notice(&mut self, author: PeerKey, bytes: &[u8]) {
        let Some(access_control) = self.access.access_control.clone() else { return };
        let Ok(notice) = encoding::decode::<AccessNotice>(bytes) else {
            tracing::debug!(author = %author.short(), "not a notice");
            return self.report_offence(author, Offence::Unreadable);
        };
        match access_control.hear(author, notice) {
            AccessChange::Nothing => {}
            AccessChange::Forged => self.report_offence(author, Offence::Unreadable),
            AccessChange::Admitted => tracing::debug!(author = %author.short(), "a peer was admitted"),
            AccessChange::Revoked(of) => {
                self.access.queue_revocation(access_control.revocation_of(of));
                self.revoked(of);
            }
        }
    }

    /// An order of the user.
    pub(crate) fn carry_out_order(&mut self, order: Order) -> Result<String, String> {
        if let Order::Amend { phases, requires } = order {
            return self.amend(phases, requires);
        }
        let Some(access_control) = self.access.access_control.clone() else {
            return Err("this run is open: any peer that knows an address can join, without an invitation".to_owned());
        };
        let revocation = match order {
            Order::SendAway(peer) => access_control.send_away(peer).map(Some),
            Order::TakeBack(one) => access_control.take_back(&one),
            Order::Amend { .. } => return Err("this is no order about access".to_owned()),
        };
        let Some(revocation) = revocation.map_err(|error| error.to_string())? else {
            return Ok("the invitation is revoked; it had not been used".to_owned());
        };
        let of = revocation.of;
        self.access.queue_revocation(Some(revocation));
        self.revoked(of);
        Ok(format!("access of peer {of}, and of all peers that it has invited, is revoked; the other peers are told"))
    }
}
