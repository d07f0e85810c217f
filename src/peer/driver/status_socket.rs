//! The door for `pathswarm status`: a Unix socket in the peer's folder, for its user alone.
//!
//! A connection gets one line of JSON and is closed.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use crate::peer::driver::handle::Watcher;

/// Most bytes of a status.
const MAX_STATUS_BYTES: u64 = 16 << 20;

/// How long one that asks may take to say what, or to read the answer; others wait meanwhile.
pub(in crate::peer) const PATIENCE: Duration = Duration::from_secs(5);

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
    open(path(folder), move |mut stream| {
        let watcher = watcher.clone();
        async move {
            let Some(status) = watcher.status_with_hashes().await else { return Ok(()) };
            let line = format!("{}\n", serde_json::to_string(&status).map_err(io::Error::other)?);
            within(PATIENCE, stream.write_all(line.as_bytes())).await
        }
    })
}

/// Waits no longer than that for another process: whoever is slow, or hangs up early, has lost interest.
pub(in crate::peer) async fn within<T>(patience: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(patience, work).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// A socket that this user alone can open, and whose every connection is looked at, one after the other.
///
/// # Errors
/// If the socket cannot be made.
pub(in crate::peer) fn open<F>(path: PathBuf, event_loop: impl Fn(UnixStream) -> F + Send + 'static) -> io::Result<Door>
where
    F: Future<Output = io::Result<()>> + Send,
{
    // The store's lock says that no other peer lives here: what is there is a dead one's.
    let unready = path.with_extension("new");
    for left in [&path, &unready] {
        match std::fs::remove_file(left) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // Under its name it is private from the first moment.
    let listener = UnixListener::bind(&unready)?;
    std::fs::set_permissions(&unready, std::fs::Permissions::from_mode(0o600))?;
    let user = std::fs::metadata(&unready)?.uid();
    std::fs::rename(&unready, &path)?;
    Ok(Door(tokio::spawn(async move {
        loop {
            // Such as too many open files, which passes.
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(PATIENCE).await;
                continue;
            };
            // Whatever became of the file's mode since.
            if !stream.peer_cred().is_ok_and(|asker| is_user(asker.uid(), user)) {
                tracing::warn!("another user has tried to ask this peer");
                continue;
            }
            if let Err(error) = event_loop(stream).await {
                tracing::debug!(%error, "one who asked has gone");
            }
        }
    })))
}

/// Who may ask: the user whose peer this is, and root, who may do anything.
fn is_user(asker: u32, user: u32) -> bool {
    asker == user || asker == 0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_its_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path());
        // What a peer that was killed has left, for everybody to open.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        let _door = open(path.clone(), |mut stream| async move { stream.write_all(b"here").await }).unwrap();
        let about = std::fs::metadata(&path).unwrap();
        assert_eq!(about.permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
        assert_eq!(ask(folder.path()).await.unwrap(), "here");
        let me = about.uid();
        assert!(is_user(me, me) && is_user(0, 1_000));
        assert!(!is_user(1_001, 1_000) && !is_user(1_000, 0));
    }
}
