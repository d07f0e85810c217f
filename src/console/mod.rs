//! The web console: a page that shows what this process knows of its swarm, and the metrics of the same.
//!
//! The page is a part of the program (`page/`, plain ES modules) and asks nothing but this server. It reads one stream of
//! frames (`stream`), each as JSON. Everything is read only, but that a question about text may be asked (`talk`). On loopback it is open to this machine, since
//! [`Guard`] refuses pages of other origins; elsewhere it wants a token, which the printed link carries behind `#`, so that
//! browsers neither send nor store it.

mod assets;
#[cfg(test)]
mod page_tests;
mod stream;
mod talk;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tokio::sync::Semaphore;

use crate::http::{Guard, Limits, Server};
use crate::peer::inference::talk::Talk;
use crate::telemetry::Telemetry;
use crate::telemetry::metrics::format::Format;

/// Nothing but what this server sends may run, be shown or be asked, and no other page may frame this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Viewers that follow at a time. Each holds at most the frames that it is behind, and a connection.
const MOST_VIEWERS: usize = 64;

/// Questions that are answered at a time.
const MOST_TALKS: usize = 1;

/// Only a question has a body: its text, as JSON writes it, and a few numbers.
const LIMITS: Limits = Limits {
    connections: 128,
    connections_per_ip: 32,
    body_bytes: 6 * talk::MOST_TEXT_BYTES + (1 << 10),
    header_timeout_ms: 10_000,
};

/// What a server shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// The page, its data, and the metrics.
    Page,
    /// The metrics alone.
    Metrics,
}

/// A running console. It closes when dropped.
#[must_use = "the console closes when this is dropped"]
pub struct Console {
    server: Server,
    link: String,
}

/// What handlers share.
#[derive(Clone)]
struct Shared {
    telemetry: Telemetry,
    viewers: Arc<Semaphore>,
    /// Whom the page can ask, if anybody.
    talk: Option<Arc<Talk>>,
    talks: Arc<Semaphore>,
}

impl Console {
    /// Serves what is known on `listener`, and asks `talk` what viewers ask. Elsewhere than on loopback, viewers need
    /// `token`, or one that is drawn here.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn open(
        telemetry: &Telemetry,
        listener: TcpListener,
        token: Option<&str>,
        shows: Shows,
        talk: Option<Arc<Talk>>,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let token = match address.ip().to_canonical().is_loopback() {
            true => None,
            false => Some(token.map_or_else(Guard::new_token, str::to_owned)),
        };
        let open_paths = if shows == Shows::Page { assets::PATHS } else { &[] };
        let guard = Guard::new(address).with_tokens(token.as_deref(), open_paths);
        let shared = Shared {
            telemetry: telemetry.clone(),
            viewers: Arc::new(Semaphore::new(MOST_VIEWERS)),
            talk,
            talks: Arc::new(Semaphore::new(MOST_TALKS)),
        };
        let router = guard.before(routes(shows, shared)).layer(map_response(with_policy));
        let server = Server::start(listener, router, LIMITS)?;
        Ok(Self { server, link: link(address, token.as_deref(), shows) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// What a user opens.
    pub fn link(&self) -> &str {
        &self.link
    }
}

fn link(address: SocketAddr, token: Option<&str>, shows: Shows) -> String {
    // An address that stands for all is none that a browser opens.
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let place = SocketAddr::new(ip, address.port());
    match (shows, token) {
        (Shows::Page, Some(token)) => format!("http://{place}/#token={token}"),
        (Shows::Page, None) => format!("http://{place}/"),
        (Shows::Metrics, Some(token)) => format!("http://{place}/metrics (Authorization: Bearer {token})"),
        (Shows::Metrics, None) => format!("http://{place}/metrics"),
    }
}

fn routes(shows: Shows, shared: Shared) -> Router {
    let metrics = Router::new().route("/metrics", get(metrics).with_state(shared.telemetry.clone()));
    let router = match shows {
        Shows::Metrics => metrics,
        Shows::Page => assets::routes(metrics)
            .route("/api/state", get(state))
            .route("/api/status", get(status))
            .route("/api/talk", get(talk::about).post(talk::ask))
            .route("/api/stream", get(stream::stream)),
    };
    router.with_state(shared)
}

async fn with_policy(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert(HeaderName::from_static("x-frame-options"), HeaderValue::from_static("DENY"));
    response
}

/// The metrics of a server that has other routes besides.
pub fn metrics_route(telemetry: Telemetry) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(telemetry)
}

async fn metrics(State(telemetry): State<Telemetry>, headers: HeaderMap) -> Response {
    let format = Format::accepted(headers.get(ACCEPT).and_then(|value| value.to_str().ok()));
    match telemetry.metrics(format) {
        Ok(text) => ([(CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn state(State(shared): State<Shared>) -> Response {
    let whole = shared.telemetry.subscribe().whole;
    ([(CONTENT_TYPE, "application/json")], whole.to_string()).into_response()
}

async fn status(State(shared): State<Shared>) -> Response {
    Json(shared.telemetry.statuses().await).into_response()
}
