//! The door for `pathswarm status`: a Unix socket in the peer's folder, which only the user can open.
//!
//! A connection gets one line of JSON and is closed.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::start::Watcher;

/// Most bytes of a status.
const MAX_STATUS_BYTES: u64 = 16 << 20;

/// How long one that asks may take to read the answer; others wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the socket of a peer's folder is.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("status.sock")
}

/// Closed when it is dropped.
#[must_use = "the door closes when this is dropped"]
pub struct Door(JoinHandle<()>);

impl Drop for Door {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Answers until the door is dropped.
///
/// # Errors
/// If the socket cannot be made.
pub fn serve(folder: &Path, watcher: Watcher) -> io::Result<Door> {
    let path = path(folder);
    // The store's lock says that no other peer lives here: what is there is a dead one's.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(Door(tokio::spawn(async move {
        loop {
            // Such as too many open files, which passes.
            let Ok((mut stream, _)) = listener.accept().await else {
                tokio::time::sleep(PATIENCE).await;
                continue;
            };
            let Some(status) = watcher.status_with_hashes().await else { return };
            let Ok(line) = serde_json::to_string(&status) else { continue };
            let line = format!("{line}\n");
            // One that hangs up early, or does not read, has lost interest.
            drop(tokio::time::timeout(PATIENCE, stream.write_all(line.as_bytes())).await);
        }
    })))
}

/// Asks the peer that lives in a folder.
///
/// # Errors
/// If none does, or it does not answer.
pub async fn ask(folder: &Path) -> io::Result<String> {
    let stream = UnixStream::connect(path(folder)).await?;
    let mut line = String::new();
    stream.take(MAX_STATUS_BYTES).read_to_string(&mut line).await?;
    Ok(line)
}
