//! Authentication of a newcomer in a run by invitation: it presents its credential before any request.

use std::path::Path;

use anyhow::Context;

use crate::access::authentication::{AuthenticationRequest, AuthenticationResponse};
use crate::access::invitation::{Credential, Grant, InvitationToken, OneTimeInvitation};
use crate::network::{Identity, Multiaddr, NetworkEvents, NetworkHandle, peer_at};
use crate::peer::access::access_files::{invitation_file, store_credential};
use crate::peer::access::invitation_token;
use crate::peer::folder::key_file;
use crate::peer::join::{JoinError, ask};
use crate::protocol::wire::encoding;

/// The newcomer and its connection.
pub(crate) struct Authentication<'a> {
    pub network: &'a NetworkHandle,
    pub events: &'a mut NetworkEvents,
    pub identity: &'a Identity,
    /// The folder of its credential.
    pub folder: &'a Path,
}

/// Presents a credential or an invitation to the peer at an address. Returns the credential for a one-time invitation.
pub(crate) async fn authenticate(
    network: &NetworkHandle,
    events: &mut NetworkEvents,
    address: &Multiaddr,
    request: &AuthenticationRequest,
) -> Result<Option<Credential>, JoinError> {
    let refused = |reason: String| JoinError::Refused { address: address.to_string(), reason };
    let bytes = encoding::encode(request).map_err(|error| refused(error.to_string()))?;
    let (_, answer) = ask(network, events, address, bytes).await?;
    match encoding::decode::<AuthenticationResponse>(&answer).map_err(|error| refused(error.to_string()))? {
        AuthenticationResponse::Accepted { credential, .. } => Ok(credential),
        AuthenticationResponse::NotInvited(reason) => {
            Err(JoinError::NotInvited { address: address.to_string(), reason, me: network.me() })
        }
    }
}

impl Authentication<'_> {
    /// Authenticates with the credential of the folder, or else with the given token, which is then stored in the
    /// folder. Without either it does nothing, since the run may be open.
    ///
    /// # Errors
    /// If the peer refuses the credential.
    pub(crate) async fn enter(&mut self, address: &Multiaddr, token: Option<&InvitationToken>) -> anyhow::Result<()> {
        let kept = invitation_file(self.folder);
        if kept.exists()
            && let Grant::Credential(credential) = invitation_token::read(&kept.to_string_lossy())
                .with_context(|| format!("{}: ask for a new invitation, and join with --invitation", kept.display()))?
                .grant
        {
            match self.authenticate(address, AuthenticationRequest::Present(credential)).await {
                // The new token may be better.
                Err(JoinError::NotInvited { .. }) if token.is_some() => {}
                shown => return Ok(shown.map(drop)?),
            }
        }
        let Some(token) = token else { return Ok(()) };
        let credential = match &token.grant {
            Grant::Credential(credential) => credential.clone(),
            // Its maker issues the credential only for the requesting key, so that key must be kept.
            Grant::OneTime(one) => {
                self.identity.keep(&key_file(self.folder))?;
                self.redeem(address, token, one).await?
            }
        };
        let Some(last) = credential.0.last() else { return Ok(()) };
        if last.to != self.identity.key() {
            return Err(JoinError::NotForMe { wanted: last.to, me: self.identity.key() }.into());
        }
        if let Grant::OneTime(_) = &token.grant {
            store_credential(self.folder, token.run, credential.clone())?;
        }
        self.authenticate(address, AuthenticationRequest::Present(credential.clone())).await?;
        self.identity.keep(&key_file(self.folder))?;
        store_credential(self.folder, token.run, credential)
    }

    async fn authenticate(
        &mut self,
        address: &Multiaddr,
        what: AuthenticationRequest,
    ) -> Result<Option<Credential>, JoinError> {
        authenticate(self.network, self.events, address, &what).await
    }

    /// Asks only the maker, and sends the secret only to that key.
    async fn redeem(
        &mut self,
        address: &Multiaddr,
        token: &InvitationToken,
        one: &OneTimeInvitation,
    ) -> Result<Credential, JoinError> {
        let named: Vec<Multiaddr> = token.addresses.iter().filter_map(|address| address.parse().ok()).collect();
        let is_makers = |address: &&Multiaddr| peer_at(address) == Some(one.by);
        let mut trouble = JoinError::MakerUnknown { maker: one.by };
        for address in std::iter::once(address).chain(&named).filter(is_makers) {
            match self.authenticate(address, AuthenticationRequest::Redeem(one.clone())).await {
                Ok(Some(credential)) => return Ok(credential),
                // An open run needs no credential.
                Ok(None) => return Ok(Credential::default()),
                Err(error @ JoinError::NotInvited { .. }) => return Err(error),
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }
}
