//! Which requests are heard.
//!
//! A browser on this machine runs pages of strangers. A page of another origin may not ask (`Origin`), and a name of a
//! stranger's that was made to stand for this machine (DNS rebinding) may not either (`Host`), unless the client shows a
//! token, which such a page does not know.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, HOST, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use rand::RngExt as _;
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

/// Why a request is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("pages of this origin may not ask this server")]
    Origin,
    #[error("this server is asked by the address that it listens on, or with a token")]
    Host,
    #[error("this server wants a token: Authorization: Bearer TOKEN")]
    Token,
}

impl Refusal {
    /// The HTTP status that says it.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Origin | Self::Host => StatusCode::FORBIDDEN,
            Self::Token => StatusCode::UNAUTHORIZED,
        }
    }
}

/// Who may ask a server.
#[derive(Clone, Debug)]
pub struct Guard {
    address: SocketAddr,
    /// Hashes of the tokens, so that comparing them takes as long for a near guess as for any other.
    tokens: Vec<blake3::Hash>,
    origins: Vec<String>,
    /// Paths that need no token, such as the page that will show it.
    open_paths: &'static [&'static str],
    answer: fn(Refusal) -> Response,
}

impl Guard {
    /// Lets everybody ask who reaches `address`, but for pages of other origins. Refusals are plain text.
    pub fn new(address: SocketAddr) -> Self {
        let answer = |refusal: Refusal| (refusal.status(), refusal.to_string()).into_response();
        Self { address, tokens: Vec::new(), origins: Vec::new(), open_paths: &[], answer }
    }

    /// Asks for one of `tokens`, if there are any, but for `open_paths`.
    #[must_use]
    pub fn with_tokens<'a>(
        mut self,
        tokens: impl IntoIterator<Item = &'a str>,
        open_paths: &'static [&'static str],
    ) -> Self {
        self.tokens = tokens.into_iter().map(|token| blake3::hash(token.as_bytes())).collect();
        self.open_paths = open_paths;
        self
    }

    /// Lets pages of these origins ask, such as `https://chat.example`; `*` is any.
    #[must_use]
    pub fn with_origins(mut self, origins: Vec<String>) -> Self {
        self.origins = origins;
        self
    }

    /// Answers refusals in the form of the server's other errors.
    #[must_use]
    pub fn with_answer(mut self, answer: fn(Refusal) -> Response) -> Self {
        self.answer = answer;
        self
    }

    /// 128 bits of chance, in hexadecimal digits.
    pub fn new_token() -> String {
        format!("{:032x}", rand::rng().random::<u128>())
    }

    /// `router` behind this guard.
    pub fn before(self, router: Router) -> Router {
        let cors = self.cors();
        let guarded = router.layer(from_fn_with_state(Arc::new(self), guarded));
        match cors {
            Some(cors) => guarded.layer(cors),
            None => guarded,
        }
    }

    /// What tells browsers that the pages of other origins may read answers.
    fn cors(&self) -> Option<CorsLayer> {
        if self.origins.is_empty() {
            return None;
        }
        let origins = if self.any_origin() {
            AllowOrigin::any()
        } else {
            AllowOrigin::list(self.origins.iter().filter_map(|it| HeaderValue::from_str(it).ok()))
        };
        let methods = AllowMethods::list([Method::GET, Method::POST]);
        Some(
            CorsLayer::new().allow_origin(origins).allow_methods(methods).allow_headers(AllowHeaders::mirror_request()),
        )
    }

    fn any_origin(&self) -> bool {
        self.origins.iter().any(|it| it == "*")
    }

    /// Whether a request for `path` with `headers` is heard.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        let text = |name| headers.get(name).and_then(|it: &HeaderValue| it.to_str().ok());
        let host = text(HOST).unwrap_or_default();
        if headers.contains_key(ORIGIN) && !self.any_origin() {
            let origin = text(ORIGIN).unwrap_or_default();
            let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")) == Some(host);
            if !own && !self.origins.iter().any(|it| it == origin) {
                return Err(Refusal::Origin);
            }
        }
        if self.tokens.is_empty() {
            return if self.is_own_name(host) { Ok(()) } else { Err(Refusal::Host) };
        }
        if self.open_paths.contains(&path) {
            return Ok(());
        }
        let shown = text(AUTHORIZATION).and_then(|it| it.split_once(' '));
        let token = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        let hash = blake3::hash(token.unwrap_or_default().as_bytes());
        if self.tokens.contains(&hash) { Ok(()) } else { Err(Refusal::Token) }
    }

    /// Whether `host` is an IP address, or a name that no stranger can give to this machine.
    fn is_own_name(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.parse() == Ok(self.address.port()) => name,
            Some((_, port)) if port.parse::<u16>().is_ok() => return false,
            _ => host,
        };
        let ip = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        ip.is_ok() || name.eq_ignore_ascii_case("localhost")
    }
}

async fn guarded(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let mut response = match guard.check(request.uri().path(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => (guard.answer)(refusal),
    };
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
