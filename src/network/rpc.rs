//! Control: one request and one response between two peers, each at most 256 KiB, as length-prefixed bytes.

use std::io;

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::StreamProtocol;
use libp2p::request_response::{self, Codec, OutboundFailure, ProtocolSupport};

use crate::network::connectivity::connect::Unreachable;
use crate::network::limits::{CONTROL_BYTES, CONTROL_STREAMS_PER_CONNECTION, CONTROL_TIMEOUT, REQUESTS_PER_PEER};

/// The protocol that identifies a peer of this program. Its version changes with anything on which peers must agree.
pub(crate) const CONTROL_PROTOCOL: StreamProtocol = StreamProtocol::new("/pathswarm/control/1");

/// Requests and responses over libp2p.
pub(crate) type Control = request_response::Behaviour<LengthPrefixed>;

/// Names a request that waits for this peer's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestToken(pub(super) u64);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("no response within {} s", CONTROL_TIMEOUT.as_secs())]
    TimedOut,
    #[error("the connection was closed before the response")]
    Closed,
    /// The peer closed the stream without a response: it is busy, or refuses.
    #[error("the peer closed the stream without a response: it is busy or refuses to answer")]
    NotAnswered,
    #[error("the peer does not speak {CONTROL_PROTOCOL}")]
    AnotherVersion,
    #[error("not sent: {REQUESTS_PER_PEER} requests to the peer are pending, try again later")]
    Busy,
    #[error("the request failed: {0}")]
    Broken(String),
}

impl From<OutboundFailure> for RequestError {
    fn from(failure: OutboundFailure) -> Self {
        match failure {
            OutboundFailure::DialFailure => {
                let reason = "it was closed before the request could be sent".to_owned();
                Self::Unreachable(Unreachable { reason, ..Unreachable::default() })
            }
            OutboundFailure::Timeout => Self::TimedOut,
            OutboundFailure::ConnectionClosed => Self::Closed,
            OutboundFailure::UnsupportedProtocols => Self::AnotherVersion,
            OutboundFailure::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => Self::NotAnswered,
            OutboundFailure::Io(error) => Self::Broken(error.to_string()),
        }
    }
}

/// Request-response for this program.
pub(crate) fn control() -> Control {
    let config = request_response::Config::default()
        .with_request_timeout(CONTROL_TIMEOUT)
        .with_max_concurrent_streams(CONTROL_STREAMS_PER_CONNECTION);
    Control::with_codec(LengthPrefixed, [(CONTROL_PROTOCOL, ProtocolSupport::Full)], config)
}

/// Four bytes of length, little endian, then as many bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LengthPrefixed;

impl Codec for LengthPrefixed {
    type Protocol = StreamProtocol;
    type Request = Vec<u8>;
    type Response = Vec<u8>;

    async fn read_request<T: AsyncRead + Unpin + Send>(
        &mut self,
        _: &StreamProtocol,
        stream: &mut T,
    ) -> io::Result<Vec<u8>> {
        read_prefixed(stream).await
    }

    async fn read_response<T: AsyncRead + Unpin + Send>(
        &mut self,
        _: &StreamProtocol,
        stream: &mut T,
    ) -> io::Result<Vec<u8>> {
        read_prefixed(stream).await
    }

    async fn write_request<T: AsyncWrite + Unpin + Send>(
        &mut self,
        _: &StreamProtocol,
        stream: &mut T,
        bytes: Vec<u8>,
    ) -> io::Result<()> {
        write(stream, &bytes).await
    }

    async fn write_response<T: AsyncWrite + Unpin + Send>(
        &mut self,
        _: &StreamProtocol,
        stream: &mut T,
        bytes: Vec<u8>,
    ) -> io::Result<()> {
        write(stream, &bytes).await
    }
}

/// Reads length-prefixed bytes.
pub async fn read_prefixed<T: AsyncRead + Unpin + Send>(stream: &mut T) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let length = u32::from_le_bytes(length) as usize;
    if length > CONTROL_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{length} bytes announced")));
    }
    // Grows with the bytes that arrive, not with the announced length.
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

async fn write<T: AsyncWrite + Unpin + Send>(stream: &mut T, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() > CONTROL_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} bytes to send", bytes.len())));
    }
    stream.write_all(&(bytes.len() as u32).to_le_bytes()).await?;
    stream.write_all(bytes).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::io::Cursor;

    use super::*;

    #[test]
    fn bytes_arrive_as_they_were() {
        for length in [0, 1, CONTROL_BYTES] {
            let bytes = vec![7; length];
            let mut wire = Vec::new();
            block_on(write(&mut wire, &bytes)).unwrap();
            assert_eq!(wire.len(), 4 + length);
            assert_eq!(block_on(read_prefixed(&mut Cursor::new(wire))).unwrap(), bytes);
        }
    }

    #[test]
    fn too_much_is_refused_before_it_is_read() {
        let announced = u32::MAX.to_le_bytes();
        let error = block_on(read_prefixed(&mut Cursor::new(announced))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(block_on(write(&mut Vec::new(), &vec![0; CONTROL_BYTES + 1])).is_err());
    }

    #[test]
    fn a_body_that_stops_early_is_an_error() {
        let wire = [&9_u32.to_le_bytes()[..], b"short"].concat();
        let error = block_on(read_prefixed(&mut Cursor::new(wire))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
