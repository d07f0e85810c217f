//! Invitation tokens as text or in a file, and their making.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::access::invitation::{Credential, Invitation, InvitationToken, OneTimeInvitation};
use crate::names::{PeerKey, RunId};
use crate::network::Identity;
use crate::protocol::wire::encoding;
use crate::protocol::wire::encoding::WireError;

/// Prefix of every token.
const BEGINS: &str = "pathswarm-invitation:";

/// Limit of a token: base64 of 4 KiB, with space for line breaks.
const MOST_TEXT_BYTES: u64 = 16 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("{path}: {error}")]
    File { path: PathBuf, error: std::io::Error },
    #[error("no file with an invitation, and none itself; an invitation begins with {BEGINS}")]
    Neither,
    #[error("the invitation is incomplete: copy all of it")]
    Broken,
    #[error("the invitation cannot be read: {0}")]
    Wire(#[from] WireError),
}

/// A token as one word.
pub fn to_text(token: &InvitationToken) -> Result<String, WireError> {
    Ok(format!("{BEGINS}{}", BASE64_URL_SAFE_NO_PAD.encode(encoding::encode(token)?)))
}

/// A token from that word, or from a file with it.
pub fn read(text_or_file: &str) -> Result<InvitationToken, TokenError> {
    if text_or_file.trim_start().starts_with(BEGINS) {
        return from_text(text_or_file);
    }
    let path = Path::new(text_or_file);
    match std::fs::metadata(path) {
        Ok(about) if about.len() > MOST_TEXT_BYTES => Err(TokenError::Neither),
        Ok(_) => {
            let text = std::fs::read_to_string(path);
            from_text(&text.map_err(|error| TokenError::File { path: path.to_owned(), error })?)
        }
        Err(_) => Err(TokenError::Neither),
    }
}

/// A token from that word, ignoring line breaks.
pub fn from_text(text: &str) -> Result<InvitationToken, TokenError> {
    let word: String = text.split_whitespace().collect();
    let encoded = word.strip_prefix(BEGINS).ok_or(TokenError::Neither)?;
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(encoded).map_err(|_| TokenError::Broken)?;
    Ok(encoding::decode(&bytes)?)
}

/// Makes a credential for a peer, issued by this key and credential.
pub fn invite(by: (&Identity, &Credential), run: RunId, to: PeerKey, rank: u8, times: (u64, u64)) -> Credential {
    let (identity, credential) = by;
    let (issued_s, until_s) = times;
    let mut invitation = Invitation { to, rank, issued_s, until_s, signature: Vec::new() };
    invitation.signature = identity.sign(&invitation.signed_bytes(run, identity.key())).to_vec();
    credential.and(invitation)
}

/// Makes an invitation for the first peer that presents the secret.
pub fn invite_once(by: &Identity, run: RunId, secret: [u8; 16], rank: u8, times: (u64, u64)) -> OneTimeInvitation {
    let (use_until_s, lasts_s) = times;
    let mut one = OneTimeInvitation { by: by.key(), secret, rank, use_until_s, lasts_s, signature: Vec::new() };
    one.signature = by.sign(&one.signed_bytes(run)).to_vec();
    one
}

/// A random secret: the hash of a new secret key, which is discarded.
pub fn secret() -> [u8; 16] {
    let hash = blake3::hash(&Identity::generate().sign(b"pathswarm secret"));
    let mut secret = [0; 16];
    secret.copy_from_slice(&hash.as_bytes()[..16]);
    secret
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::invitation::{Grant, MEMBER, NO_EXPIRY_S};

    #[test]
    fn a_token_is_read_from_its_text_however_its_lines_were_broken_and_from_a_file() {
        let (one, run) = (Identity::generate(), RunId([3; 32]));
        let credential = invite((&one, &Credential::default()), run, PeerKey([2; 32]), MEMBER, (5, NO_EXPIRY_S));
        let token = InvitationToken {
            run,
            addresses: vec!["/ip4/192.0.2.1/tcp/1".to_owned()],
            grant: Grant::Credential(credential),
        };
        let text = to_text(&token).unwrap();
        assert!(text.starts_with(BEGINS) && !text.contains(char::is_whitespace));
        assert_eq!(read(&text).unwrap(), token);
        let broken = format!("  {}\r\n   {}\n", &text[..50], &text[50..]);
        assert_eq!(read(&broken).unwrap(), token);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("invitation");
        std::fs::write(&file, broken).unwrap();
        assert_eq!(read(file.to_str().unwrap()).unwrap(), token);
        assert!(matches!(read(&text[..text.len() - 3]), Err(TokenError::Broken | TokenError::Wire(_))));
        assert!(matches!(read("no such file"), Err(TokenError::Neither)));
        std::fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
        assert!(matches!(read(file.to_str().unwrap()), Err(TokenError::Neither)));
    }
}
