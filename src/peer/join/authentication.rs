//! A newcomer at the door of a run by invitation: it shows what it has, before it asks for anything.

use std::path::Path;

use crate::network::{Identity, Multiaddr, NetworkEvents, NetworkHandle, peer_at};
use crate::peer::access::access_control::{invitation_file, keep_pass};
use crate::peer::access::invitation_token;
use crate::peer::folder::key_file;
use crate::peer::join::{JoinError, ask};
use crate::protocol::invitations::{Doorway, Grant, Knock, Letter, OneTime, Pass};
use crate::protocol::wire::encoding;

/// Who knocks, and what it has.
pub(in crate::peer) struct Newcomer<'a> {
    /// Its network.
    pub network: &'a NetworkHandle,
    /// What comes out of it.
    pub events: &'a mut NetworkEvents,
    /// Who it is.
    pub identity: &'a Identity,
    /// Where its part is kept.
    pub folder: &'a Path,
}

/// Shows something to the peer at an address; what it gets for a one-time invitation.
///
/// # Errors
/// If nobody answers there, or it is turned away.
pub(in crate::peer) async fn knock(
    network: &NetworkHandle,
    events: &mut NetworkEvents,
    address: &Multiaddr,
    knock: &Knock,
) -> Result<Option<Pass>, JoinError> {
    let refused = |reason: String| JoinError::Refused { address: address.to_string(), reason };
    let bytes = encoding::encode(knock).map_err(|error| refused(error.to_string()))?;
    let (_, answer) = ask(network, events, address, bytes).await?;
    match encoding::decode::<Doorway>(&answer).map_err(|error| refused(error.to_string()))? {
        Doorway::Welcome { pass, .. } => Ok(pass),
        Doorway::NotInvited(reason) => {
            Err(JoinError::NotInvited { address: address.to_string(), reason, me: network.me() })
        }
    }
}

impl Newcomer<'_> {
    /// Knocks with what the folder has from before, or else with what it was given now, which the folder has from then on.
    /// Who has nothing does not knock: the run may be open.
    ///
    /// # Errors
    /// If it is turned away with what it has.
    pub(in crate::peer) async fn enter(&mut self, address: &Multiaddr, letter: Option<&Letter>) -> anyhow::Result<()> {
        let kept = invitation_file(self.folder);
        if kept.exists()
            && let Grant::Pass(pass) = invitation_token::read(&kept.to_string_lossy())?.grant
        {
            match self.knock(address, Knock::Present(pass)).await {
                // The new one may be better.
                Err(JoinError::NotInvited { .. }) if letter.is_some() => {}
                knocked => return Ok(knocked.map(drop)?),
            }
        }
        let Some(letter) = letter else { return Ok(()) };
        let pass = match &letter.grant {
            Grant::Pass(pass) => pass.clone(),
            // Whoever made it gives it for the key that asks, and for no other: that key must be there the next time.
            Grant::OneTime(one) => {
                self.identity.keep(&key_file(self.folder))?;
                self.redeem(address, letter, one).await?
            }
        };
        let Some(last) = pass.0.last() else { return Ok(()) };
        if last.to != self.identity.key() {
            return Err(JoinError::NotForMe { wanted: last.to, me: self.identity.key() }.into());
        }
        if let Grant::OneTime(_) = &letter.grant {
            keep_pass(self.folder, letter.run, pass.clone())?;
        }
        self.knock(address, Knock::Present(pass.clone())).await?;
        self.identity.keep(&key_file(self.folder))?;
        keep_pass(self.folder, letter.run, pass)
    }

    async fn knock(&mut self, address: &Multiaddr, what: Knock) -> Result<Option<Pass>, JoinError> {
        knock(self.network, self.events, address, &what).await
    }

    /// Only with whoever made it, and only to that key does its secret go.
    async fn redeem(&mut self, address: &Multiaddr, letter: &Letter, one: &OneTime) -> Result<Pass, JoinError> {
        let named: Vec<Multiaddr> = letter.addresses.iter().filter_map(|address| address.parse().ok()).collect();
        let is_makers = |address: &&Multiaddr| peer_at(address) == Some(one.by);
        let mut trouble = JoinError::MakerUnknown { maker: one.by };
        for address in std::iter::once(address).chain(&named).filter(is_makers) {
            match self.knock(address, Knock::Redeem(one.clone())).await {
                Ok(Some(pass)) => return Ok(pass),
                // An open run has nothing to give, and asks for nothing.
                Ok(None) => return Ok(Pass::default()),
                Err(error @ JoinError::NotInvited { .. }) => return Err(error),
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }
}
