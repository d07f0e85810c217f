//! The commands by which a creator and its guests decide about a run, and common parts of those that invite, join and visit:
//! reading invitations, and sponsors.

pub(super) mod amend;
pub(super) mod invite;
pub(super) mod revoke;

use std::path::Path;
use std::sync::Arc;

use crate::access::invitation::InvitationToken;
use crate::cli::swarm::mistake::{Mistake, OrMistake, with_causes};
use crate::names::PeerKey;
use crate::network::{Identity, Multiaddr, key_of};
use crate::peer::access::access_control::{AccessControl, AccessError};
use crate::peer::access::invitation_token;
use crate::peer::folder::{identity_of, key_file, present_folder, read_manifest};

/// The hint without an invitation.
pub const ASK: &str = "ask a peer of the run for an invitation (pathswarm invite DIR --for KEY, with the key above), \
    then join with --invitation and the same --dir";

/// The hint for a client without a sponsor.
pub const VISIT: &str = "name the folder of a peer of this machine that takes part in the run: --as DIR";

/// Parses an invitation from an argument.
pub fn read(given: &str) -> Result<InvitationToken, Mistake> {
    let shown: String = given.chars().take(60).collect();
    let read = invitation_token::read(given).map_err(|error| format!("--invitation {shown}: {error}"));
    read.or_mistake("copy all of the text that pathswarm invite printed, or name the file that contains it")
}

/// The first address in an invitation.
pub fn place(token: Option<&InvitationToken>) -> Result<Multiaddr, Mistake> {
    let places = token.into_iter().flat_map(|token| &token.addresses);
    let first = places.filter_map(|place| place.parse().ok()).next();
    first.ok_or_else(|| {
        Mistake::new("the invitation names no address of the run").hint("give the address of a running peer as well")
    })
}

/// Parses a peer's key.
pub fn key(text: &str) -> Result<PeerKey, Mistake> {
    key_of(text).ok_or(format!("{text}: not the key of a peer")).or_mistake(
        "a key has 64 hexadecimal digits, or begins with 12D3Koo; join without an invitation prints this peer's key, \
         and pathswarm status DIR --format json the keys of peers in full",
    )
}

/// What is in a peer's folder cannot be read.
pub fn unreadable(error: anyhow::Error) -> anyhow::Error {
    Mistake::new(with_causes(&error)).hint("restore that file from a copy, or name the folder of another peer").into()
}

/// The identity of a peer that has a run. Without its key, the folder is that of no peer any more.
pub fn identity_in(folder: &Path) -> anyhow::Result<Identity> {
    let key = key_file(folder);
    if !key.exists() {
        let message = format!("{} is missing, so this folder is not the peer that it was", key.display());
        return Err(Mistake::new(message).hint("restore that file from a copy").into());
    }
    identity_of(folder).map_err(|error| unreadable(error.into()))
}

/// The access control of the peer in a folder, running or not.
pub fn sponsor(folder: &Path) -> anyhow::Result<Arc<AccessControl>> {
    let folder = present_folder(folder);
    let Some((_, manifest, run)) = read_manifest(&folder).map_err(unreadable)? else {
        let message = format!("{}: not the folder of a peer", folder.display());
        return Err(Mistake::new(message).hint("name the folder of a peer: the --dir of create or join").into());
    };
    match AccessControl::of(&folder, &identity_in(&folder)?, &manifest, run)? {
        Some(access_control) => Ok(access_control),
        None => Err(explain(AccessError::Open)),
    }
}

/// The same, or nothing if the peer's run is open.
pub fn sponsor_if_needed(folder: &Path) -> anyhow::Result<Option<Arc<AccessControl>>> {
    let folder = present_folder(folder);
    let Some((_, manifest, run)) = read_manifest(&folder).map_err(unreadable)? else { return Ok(None) };
    AccessControl::of(&folder, &identity_in(&folder)?, &manifest, run)
}

/// The hint for an error.
pub fn hint(error: &AccessError) -> Option<&'static str> {
    Some(match error {
        AccessError::Open => "give the address alone; only a run with admission = \"invite\" needs invitations",
        AccessError::NotInvited(_) => "ask for an invitation for this peer: pathswarm invite DIR --for KEY",
        AccessError::NoRight(_) => {
            "ask the peer that invited this one for an invitation that allows more (pathswarm invite --may-invite 1), \
             or ask it to invite the other peer"
        }
        AccessError::NotYours { .. } => "ask the creator, or the peer that invited that one",
        AccessError::Full(_) => "revoke the access of the peer that invited them instead",
        AccessError::Disk(_) => return None,
    })
}

/// Converts an error to one of the command.
pub fn explain(error: AccessError) -> anyhow::Error {
    match hint(&error) {
        Some(hint) => Mistake::new(error).hint(hint).into(),
        None => error.into(),
    }
}
