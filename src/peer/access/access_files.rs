//! The files of access control in a peer's folder: its own credential, and its access list.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::access::authentication::AccessList;
use crate::access::invitation::{Credential, Grant, InvitationToken};
use crate::names::RunId;
use crate::peer::access::invitation_token;
use crate::protocol::wire::encoding;
use crate::store::write_file;

/// The file with a peer's own credential.
pub fn invitation_file(folder: &Path) -> PathBuf {
    folder.join("invitation")
}

/// The file with a peer's access list.
pub fn guests_file(folder: &Path) -> PathBuf {
    folder.join("guests")
}

pub(super) fn read_access_list(folder: &Path) -> anyhow::Result<AccessList> {
    let path = guests_file(folder);
    match std::fs::read(&path) {
        Ok(bytes) => encoding::decode(&bytes).with_context(|| format!("{} is broken", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(AccessList::default()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The credential in a folder, valid or not.
pub(super) fn read_credential(folder: &Path, run: RunId) -> anyhow::Result<Option<Credential>> {
    let path = invitation_file(folder);
    if !path.exists() {
        return Ok(None);
    }
    match invitation_token::read(&path.to_string_lossy()).with_context(|| format!("cannot read {}", path.display()))? {
        InvitationToken { run: other, grant: Grant::Credential(credential), .. } if other == run => {
            Ok(Some(credential))
        }
        _ => anyhow::bail!("{} holds an invitation to another run", path.display()),
    }
}

/// Stores a credential in a peer's folder.
pub fn store_credential(folder: &Path, run: RunId, credential: Credential) -> anyhow::Result<()> {
    let token = InvitationToken { run, addresses: Vec::new(), grant: Grant::Credential(credential) };
    write_file(&invitation_file(folder), format!("{}\n", invitation_token::to_text(&token)?).as_bytes())?;
    Ok(())
}
