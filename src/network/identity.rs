//! The identity of a peer: an ed25519 key in a file that only its owner may read.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use libp2p::PeerId;
use libp2p::identity::{Keypair, PublicKey, ed25519};

use crate::names::PeerKey;

/// A key in libp2p's own encoding takes 68 bytes; a much larger file is not a key.
const KEY_FILE_BYTES: u64 = 1024;

/// A peer's secret key. [`PeerKey`] verifies its signatures.
#[derive(Clone)]
pub struct Identity {
    keypair: ed25519::Keypair,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("the key file {path}: {error}")]
    File { path: PathBuf, error: std::io::Error },
    #[error("{0} holds no ed25519 key: restore it, or remove it to become a new peer")]
    NotAKey(PathBuf),
}

impl Identity {
    /// A new identity that is not stored.
    pub fn generate() -> Self {
        Self { keypair: ed25519::Keypair::generate() }
    }

    /// The identity in this file, or a new one that [`Identity::keep`] stores there once it is certain to be used.
    pub fn load_or_generate(path: &Path) -> Result<Self, IdentityError> {
        match File::open(path) {
            Ok(file) => Self::read(&file, path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::generate()),
            Err(error) => Err(IdentityError::File { path: path.to_owned(), error }),
        }
    }

    /// Writes the key, unless the file exists.
    pub fn keep(&self, path: &Path) -> Result<(), IdentityError> {
        match self.write(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(IdentityError::File { path: path.to_owned(), error })
            }
            _ => Ok(()),
        }
    }

    /// The public key.
    pub fn key(&self) -> PeerKey {
        PeerKey(self.keypair.public().to_bytes())
    }

    /// An ed25519 signature of these bytes.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.keypair.sign(message).try_into().expect("an ed25519 signature has 64 bytes")
    }

    pub(crate) fn keypair(&self) -> Keypair {
        self.keypair.clone().into()
    }

    fn read(file: &File, path: &Path) -> Result<Self, IdentityError> {
        let failed = |error| IdentityError::File { path: path.to_owned(), error };
        keep_private(file).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(KEY_FILE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        let keypair = Keypair::from_protobuf_encoding(&bytes).ok().and_then(|keypair| keypair.try_into_ed25519().ok());
        keypair.map(|keypair| Self { keypair }).ok_or_else(|| IdentityError::NotAKey(path.to_owned()))
    }

    /// Written to a temporary file, then linked: a crash leaves no partial key, and no key is replaced.
    fn write(&self, path: &Path) -> std::io::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let bytes = self.keypair().to_protobuf_encoding().map_err(std::io::Error::other)?;
        let temporary = path.with_extension(format!("new-{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&temporary)?;
        let written = keep_private(&file)
            .and_then(|()| file.write_all(&bytes))
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::hard_link(&temporary, path));
        fs::remove_file(&temporary)?;
        written?;
        File::open(folder)?.sync_all()
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.key().short())
    }
}

/// Makes a key file readable only by its owner.
fn keep_private(file: &File) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mut permissions = file.metadata()?.permissions();
        if permissions.mode() & 0o077 != 0 {
            permissions.set_mode(0o600);
            file.set_permissions(permissions)?;
        }
    }
    Ok(())
}

/// Whether this peer signed these bytes. False for a key that is not a point on the curve.
pub fn verify(peer: PeerKey, message: &[u8], signature: &[u8]) -> bool {
    ed25519::PublicKey::try_from_bytes(&peer.0).is_ok_and(|key| key.verify(message, signature))
}

/// A peer's key from text: 64 hexadecimal digits, or libp2p's peer id.
pub fn key_of(text: &str) -> Option<PeerKey> {
    text.parse().ok().or_else(|| peer_key(&text.parse().ok()?))
}

/// The program and its version, for identify.
pub(crate) fn agent_version() -> String {
    format!("pathswarm/{}", env!("CARGO_PKG_VERSION"))
}

/// libp2p's peer id; `None` if the key is not a point on the curve.
pub(crate) fn peer_id(peer: PeerKey) -> Option<PeerId> {
    let key = ed25519::PublicKey::try_from_bytes(&peer.0).ok()?;
    Some(PublicKey::from(key).to_peer_id())
}

/// The key in libp2p's peer id; `None` for another kind of key.
pub(crate) fn peer_key(peer: &PeerId) -> Option<PeerKey> {
    // A short key is contained in the id: code 0 is the "identity" hash.
    let multihash: &libp2p::multihash::Multihash<64> = peer.as_ref();
    if multihash.code() != 0 {
        return None;
    }
    let key = PublicKey::try_decode_protobuf(multihash.digest()).ok()?;
    Some(PeerKey(key.try_into_ed25519().ok()?.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a starting peer does.
    fn kept(path: &Path) -> Result<Identity, IdentityError> {
        let identity = Identity::load_or_generate(path)?;
        identity.keep(path)?;
        Ok(identity)
    }

    #[test]
    fn a_peer_stays_the_same_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peer/key");
        let first = kept(&path).unwrap();
        let second = kept(&path).unwrap();
        assert_eq!(first.key(), second.key());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_may_read_the_key() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        kept(&path).unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        kept(&path).unwrap();
        assert_eq!(mode(), 0o600);
    }

    #[test]
    fn a_damaged_key_is_an_error_and_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, b"not a key").unwrap();
        let error = kept(&path).unwrap_err();
        assert!(error.to_string().contains("holds no ed25519 key"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"not a key");
    }

    #[test]
    fn signatures_belong_to_one_peer_and_one_message() {
        let (one, other) = (Identity::generate(), Identity::generate());
        let signature = one.sign(b"beat");
        assert!(verify(one.key(), b"beat", &signature));
        assert!(!verify(other.key(), b"beat", &signature));
        assert!(!verify(one.key(), b"meat", &signature));
        assert!(!verify(one.key(), b"beat", &signature[..63]));
        assert!(!verify(PeerKey([2; 32]), b"beat", &signature));
    }

    #[test]
    fn keys_and_libp2p_names_translate_both_ways() {
        let key = Identity::generate().key();
        assert_eq!(peer_key(&peer_id(key).unwrap()), Some(key));
        assert_eq!(peer_key(&PeerId::random()), None);
        assert_eq!(key_of(&peer_id(key).unwrap().to_string()), Some(key));
        assert_eq!(key_of(&key.to_string()), Some(key));
        assert_eq!(key_of("12D3KooW"), None);
    }
}
