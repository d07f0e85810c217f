//! `pathswarm revoke`: revokes the access of a peer, or an invitation.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::access::invitation::{Grant, InvitationToken};
use crate::cli::swarm::mistake::Mistake;
use crate::cli::swarm::{Globals, access};
use crate::names::PeerKey;
use crate::peer::access::access_control::AccessControl;
use crate::peer::access::invitation_token;
use crate::peer::driver::control_socket;
use crate::peer::driver::handle::Order;
use crate::peer::folder::lock_store;
use crate::peer::folder::present_folder;

/// Revoke the access of a peer to a run by invitation, or an unused invitation.
#[derive(Args)]
pub struct Revoke {
    /// The folder of the peer that invited it, directly or through others; it may be running or not.
    folder: PathBuf,
    /// The peer's key, in full or as status shows it; or its invitation, or the file with the invitation.
    whom: String,
}

impl Revoke {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let order = self.order()?;
        let access_control = access::sponsor(&self.folder)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let done = match runtime.block_on(control_socket::order(&self.folder, order.clone()))? {
            Some(Ok(done)) => done,
            Some(Err(reason)) => {
                return Err(Mistake::new(reason).hint("ask the creator, or the peer that invited that one").into());
            }
            None => self.without_the_peer(&access_control, order)?,
        };
        globals.output().text(&done)?;
        globals.output().json(&json!({ "event": "revoked", "message": done }))?;
        Ok(())
    }

    fn order(&self) -> Result<Order, Mistake> {
        match invitation_token::read(&self.whom) {
            Ok(InvitationToken { grant: Grant::OneTime(one), .. }) => Ok(Order::TakeBack(one)),
            Ok(InvitationToken { grant: Grant::Credential(pass), .. }) => match pass.0.last() {
                Some(last) => Ok(Order::SendAway(last.to)),
                None => Err(Mistake::new("the invitation names no peer").hint("give a peer's key")),
            },
            Err(_) => match self.shown_as() {
                Some(peer) => Ok(Order::SendAway(peer)),
                None if self.is_short() => Err(Mistake::new(format!("{}: a shortened key", self.whom)).hint(
                    "give all 64 digits (pathswarm status DIR --format json prints them), or start the peer of the \
                     folder: while it runs, 8 digits do if it knows exactly one such peer",
                )),
                None => Ok(Order::SendAway(access::key(&self.whom)?)),
            },
        }
    }

    /// Whether it may be a key as `status` shows it.
    fn is_short(&self) -> bool {
        let digits = self.whom.trim_start_matches('…');
        (8..64).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    }

    /// The one peer whose key begins with these digits, as `status` shows it.
    fn shown_as(&self) -> Option<PeerKey> {
        if !self.is_short() {
            return None;
        }
        let digits = self.whom.trim_start_matches('…');
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let status: Value = serde_json::from_str(&runtime.block_on(control_socket::status(&self.folder)).ok()?).ok()?;
        let peers = status["peers"].as_array()?.iter().filter_map(Value::as_str);
        let mut named = peers.filter(|peer| peer.starts_with(digits));
        named.next().filter(|_| named.next().is_none())?.parse().ok()
    }

    /// The peer does not run, so it tells the others at its next start.
    fn without_the_peer(&self, access_control: &AccessControl, order: Order) -> anyhow::Result<String> {
        // Keeps the peer from starting meanwhile.
        let _lock = lock_store(&present_folder(&self.folder))?;
        let revocation = match order {
            Order::SendAway(peer) => access_control.send_away(peer).map(Some),
            Order::TakeBack(one) => access_control.take_back(&one),
            Order::Amend { .. } => return Err(anyhow::anyhow!("this is no order about access")),
        };
        Ok(match revocation.map_err(access::explain)? {
            Some(revocation) => {
                format!("access of peer {} is revoked; the other peers learn of it once this peer runs", revocation.of)
            }
            None => "the invitation is revoked; it had not been used".to_owned(),
        })
    }
}
