//! Binds the address of a server as a user types it.

use std::io;
use std::net::{TcpListener, ToSocketAddrs as _};

/// Why no server listens on an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("{text:?} is not an address to listen on; write HOST:PORT, as 127.0.0.1:{port}")]
    Address { text: String, port: u16 },
    #[error("{text:?} has no IP address: {source}")]
    Name { text: String, source: io::Error },
    #[error("cannot listen on {text}: another program does; choose another port, or 0 for any that is free")]
    InUse { text: String },
    #[error("cannot listen on {text}: {source}")]
    Bind { text: String, source: io::Error },
}

/// Listens on `text`: `HOST:PORT`, `HOST`, or `PORT` on this machine alone. `port` is the one that `HOST` leaves out.
///
/// # Errors
/// See [`ListenError`].
pub fn listen(text: &str, port: u16) -> Result<TcpListener, ListenError> {
    let text = text.trim();
    let named = if text.parse::<u16>().is_ok() {
        format!("127.0.0.1:{text}")
    } else if let Ok(address) = text.trim_matches(['[', ']']).parse::<std::net::IpAddr>() {
        std::net::SocketAddr::new(address, port).to_string()
    } else if !text.is_empty() && !text.contains([':', '/']) {
        format!("{text}:{port}")
    } else {
        text.to_owned()
    };
    let port_of = named.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
    let Some((host, Ok(_))) = port_of else {
        return Err(ListenError::Address { text: text.to_owned(), port });
    };
    if host.is_empty() || host.contains('/') {
        return Err(ListenError::Address { text: text.to_owned(), port });
    }
    let addresses: Vec<_> =
        named.to_socket_addrs().map_err(|source| ListenError::Name { text: text.to_owned(), source })?.collect();
    TcpListener::bind(addresses.as_slice()).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { text: named },
        _ => ListenError::Bind { text: named, source },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard_on(text: &str) -> String {
        listen(text, 0).unwrap().local_addr().unwrap().ip().to_string()
    }

    #[test]
    fn a_port_alone_is_on_this_machine() {
        assert_eq!(heard_on("0"), "127.0.0.1");
        assert_eq!(heard_on(" 127.0.0.1 "), "127.0.0.1");
        assert_eq!(heard_on("127.0.0.1:0"), "127.0.0.1");
    }

    #[test]
    fn what_is_no_address_is_refused_with_one_that_is() {
        for text in ["", ":80", "http://127.0.0.1:80", "127.0.0.1:x", "127.0.0.1:70000", "/tmp/socket"] {
            let error = listen(text, 8080).unwrap_err();
            assert!(matches!(error, ListenError::Address { .. }), "{text}: {error}");
            assert!(error.to_string().contains("127.0.0.1:8080"), "{error}");
        }
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let first = listen("0", 0).unwrap();
        let port = first.local_addr().unwrap().port();
        let error = listen(&port.to_string(), 0).unwrap_err();
        assert!(matches!(error, ListenError::InUse { .. }), "{error}");
        assert!(error.to_string().contains(&port.to_string()), "{error}");
    }
}
