//! The door for the user's orders to a running peer: a Unix socket in the peer's folder, for that user alone.
//!
//! A connection brings one line of JSON, the order, gets one line, what came of it, and is closed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::peer::driver::handle::{Order, Watcher};
use crate::peer::driver::status_socket::{Door, PATIENCE, open, within};

/// Most bytes of an order, and of what is said to it.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// Where the socket of a peer's folder is.
pub fn path(folder: &Path) -> PathBuf {
    folder.join("control.sock")
}

/// Takes orders until the door is dropped.
///
/// # Errors
/// If the socket cannot be made.
pub fn serve(folder: &Path, watcher: Watcher) -> io::Result<Door> {
    open(path(folder), move |stream| {
        let watcher = watcher.clone();
        async move {
            let (read, mut write) = stream.into_split();
            let line = line_of(read, PATIENCE).await?;
            let answer = match serde_json::from_str::<Order>(&line) {
                Ok(order) => watcher.order(order).await.unwrap_or_else(|| Err("the peer has stopped".to_owned())),
                Err(error) => Err(format!("this is no order: {error}")),
            };
            let answer = serde_json::to_string(&answer).map_err(io::Error::other)?;
            within(PATIENCE, write.write_all(format!("{answer}\n").as_bytes())).await
        }
    })
}

async fn line_of(stream: impl AsyncRead + Unpin, patience: Duration) -> io::Result<String> {
    let mut line = String::new();
    within(patience, BufReader::new(stream.take(MAX_LINE_BYTES)).read_line(&mut line)).await?;
    Ok(line)
}

/// Gives an order to the peer that lives in a folder: what came of it, or nothing if none lives there.
///
/// # Errors
/// If it does not answer.
pub async fn order(folder: &Path, order: &Order) -> io::Result<Option<Result<String, String>>> {
    let mut stream = match UnixStream::connect(path(folder)).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let line = serde_json::to_string(order).map_err(io::Error::other)?;
    let mut answer = String::new();
    let exchange = async {
        stream.write_all(format!("{line}\n").as_bytes()).await?;
        stream.take(MAX_LINE_BYTES).read_to_string(&mut answer).await
    };
    within(2 * PATIENCE, exchange).await?;
    serde_json::from_str(&answer).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::PeerKey;

    #[tokio::test]
    async fn one_who_says_nothing_or_never_stops_keeps_nobody_out_for_long() {
        let (silent, _kept) = tokio::io::duplex(64);
        let error = line_of(silent, Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let endless = tokio::io::repeat(b'x');
        assert_eq!(line_of(endless, PATIENCE).await.unwrap().len() as u64, MAX_LINE_BYTES);
    }

    #[test]
    fn an_order_is_one_line() {
        let order = Order::SendAway(PeerKey([7; 32]));
        let line = serde_json::to_string(&order).unwrap();
        assert_eq!(line, format!("{{\"send-away\":\"{}\"}}", PeerKey([7; 32])));
        assert_eq!(serde_json::from_str::<Order>(&line).unwrap(), order);
    }
}
