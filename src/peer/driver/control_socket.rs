//! The control socket: a Unix socket in the peer's folder, by which other processes of the same user ask a running peer
//! for its status or give it an order.
//!
//! A connection carries one line of JSON, the request, and one line of JSON, the answer, and is closed.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::config::RunConfig;
use crate::failpoints::failpoint;
use crate::peer::driver::handle::{Order, PeerHandle};
use crate::survival::ended;

/// Limit of a request.
const MAX_REQUEST_BYTES: u64 = 64 * 1024;

/// Limit of an answer.
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// Limit of connections, so that silent ones cannot block others.
const MAX_CONNECTIONS: usize = 16;

/// Time-out of sending the request and of reading the answer.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Request {
    Status,
    /// The configuration of the peer's run.
    Config,
    Order(Order),
}

/// The path of the socket in a peer's folder.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("control.sock")
}

/// Longest path that fits into the address of a socket everywhere: macOS has 104 bytes, Linux 108.
const MAX_PATH_BYTES: usize = 100;

/// A short path of a socket in a folder with a long name, by way of the open folder, which must be kept meanwhile.
/// Only Linux has such paths.
fn short(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok((path.to_owned(), None)) };
    if path.as_os_str().len() <= MAX_PATH_BYTES || !cfg!(target_os = "linux") {
        return Ok((path.to_owned(), None));
    }
    let folder = File::open(folder)?;
    Ok((Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name), Some(folder)))
}

/// An open control socket. It is closed when dropped.
#[must_use = "the socket closes when this is dropped"]
pub struct ControlSocket(JoinHandle<()>);

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Opens the socket for this user only, and answers a few connections at a time.
pub fn serve(folder: &Path, peer: PeerHandle) -> io::Result<ControlSocket> {
    let (listener, user) = open(&path(folder))?;
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    Ok(ControlSocket(tokio::spawn(async move { while !ended(accept(&listener, user, &peer, &permits)).await {} })))
}

async fn accept(listener: &UnixListener, user: u32, peer: &PeerHandle, permits: &Arc<Semaphore>) {
    // The semaphore is never closed.
    while let Ok(permit) = permits.clone().acquire_owned().await {
        // For instance too many open files, which is temporary.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(TIMEOUT).await;
            continue;
        };
        failpoint("control-socket");
        // The file's mode may have been changed.
        if !stream.peer_cred().is_ok_and(|client| may_connect(client.uid(), user)) {
            tracing::warn!("another user has tried to connect to the control socket");
            continue;
        }
        let peer = peer.clone();
        tokio::spawn(async move {
            if let Err(error) = answer(stream, &peer).await {
                tracing::debug!(%error, "a request on the control socket was not answered");
            }
            drop(permit);
        });
    }
}

/// The socket, and the user that may connect to it.
fn open(path: &Path) -> io::Result<(UnixListener, u32)> {
    // With the store's lock held, an existing socket is left over from a dead peer.
    let unready = path.with_extension("new");
    for left in [path, &unready] {
        match std::fs::remove_file(left) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // The socket is private before it gets its name.
    let (bound, _open) = short(&unready)?;
    let listener = UnixListener::bind(bound)?;
    std::fs::set_permissions(&unready, std::fs::Permissions::from_mode(0o600))?;
    let user = std::fs::metadata(&unready)?.uid();
    std::fs::rename(&unready, path)?;
    Ok((listener, user))
}

/// The peer's own user and root may connect.
fn may_connect(client: u32, user: u32) -> bool {
    client == user || client == 0
}

async fn answer(stream: UnixStream, peer: &PeerHandle) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let line = match serde_json::from_str(&read_line(read, TIMEOUT).await?) {
        Ok(Request::Status) => {
            let Some(status) = peer.status_with_hashes().await else { return Ok(()) };
            serde_json::to_string(&status)
        }
        Ok(Request::Config) => {
            let Some(config) = peer.config().await else { return Ok(()) };
            serde_json::to_string(&config)
        }
        Ok(Request::Order(order)) => {
            let done = peer.order(order).await.unwrap_or_else(|| Err("the peer has stopped".to_owned()));
            serde_json::to_string(&done)
        }
        Err(error) => serde_json::to_string(&Err::<String, _>(format!("the request cannot be decoded: {error}"))),
    };
    let line = format!("{}\n", line.map_err(io::Error::other)?);
    within(TIMEOUT, write.write_all(line.as_bytes())).await
}

async fn read_line(stream: impl AsyncRead + Unpin, timeout: Duration) -> io::Result<String> {
    let mut line = String::new();
    within(timeout, BufReader::new(stream.take(MAX_REQUEST_BYTES)).read_line(&mut line)).await?;
    Ok(line)
}

async fn within<T>(timeout: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(timeout, work).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn request(folder: &Path, request: &Request) -> io::Result<String> {
    let (socket, _open) = short(&path(folder))?;
    let mut stream = UnixStream::connect(socket).await?;
    let line = serde_json::to_string(request).map_err(io::Error::other)?;
    stream.write_all(format!("{line}\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The status of the peer that runs in a folder, as one line of JSON.
///
/// # Errors
/// If no peer runs in the folder, or it does not answer.
pub async fn status(folder: &Path) -> io::Result<String> {
    request(folder, &Request::Status).await
}

/// The configuration of the run of the peer that runs in a folder.
///
/// # Errors
/// If no peer runs in the folder, or it does not answer.
pub async fn config(folder: &Path) -> io::Result<RunConfig> {
    serde_json::from_str(&request(folder, &Request::Config).await?).map_err(io::Error::other)
}

/// Gives an order to the peer that runs in a folder. Returns its answer, or `None` if no peer runs there.
pub async fn order(folder: &Path, order: Order) -> io::Result<Option<Result<String, String>>> {
    match within(2 * TIMEOUT, request(folder, &Request::Order(order))).await {
        Ok(answer) => serde_json::from_str(&answer).map(Some).map_err(io::Error::other),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::PeerKey;

    #[tokio::test]
    async fn a_client_that_sends_nothing_or_never_stops_blocks_nobody_for_long() {
        let (silent, _other_end) = tokio::io::duplex(64);
        let error = read_line(silent, Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let endless = tokio::io::repeat(b'x');
        assert_eq!(read_line(endless, TIMEOUT).await.unwrap().len() as u64, MAX_REQUEST_BYTES);
    }

    #[test]
    fn a_request_is_one_line() {
        let order = Request::Order(Order::SendAway(PeerKey([7; 32])));
        let line = serde_json::to_string(&order).unwrap();
        assert_eq!(line, format!("{{\"order\":{{\"send-away\":\"{}\"}}}}", PeerKey([7; 32])));
        assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), order);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_peer_is_asked_in_a_folder_with_a_long_name() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a".repeat(120)).join("b".repeat(120));
        std::fs::create_dir_all(&folder).unwrap();
        let (listener, _) = open(&path(&folder)).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "control.sock alone");
        let answer = async {
            let (stream, _) = listener.accept().await.unwrap();
            let (read, mut write) = stream.into_split();
            assert_eq!(read_line(read, TIMEOUT).await.unwrap(), "\"status\"\n");
            write.write_all(b"running\n").await.unwrap();
        };
        let (answer, ()) = tokio::join!(status(&folder), answer);
        assert_eq!(answer.unwrap(), "running\n");
    }

    #[tokio::test]
    async fn a_socket_is_its_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path());
        // Left over from a killed peer, open for all users.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        let (listener, me) = open(&path).unwrap();
        let about = std::fs::metadata(&path).unwrap();
        assert_eq!((about.permissions().mode() & 0o777, about.uid()), (0o600, me));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
        let (connected, accepted) = tokio::join!(UnixStream::connect(&path), listener.accept());
        assert!(connected.is_ok() && accepted.is_ok());
        assert!(may_connect(me, me) && may_connect(0, 1_000));
        assert!(!may_connect(1_001, 1_000) && !may_connect(1_000, 0));
    }
}
