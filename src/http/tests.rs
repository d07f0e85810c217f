//! A real server, asked over loopback.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};

use super::{Guard, Limits, Server, listen};

const WAIT: Duration = Duration::from_secs(10);

fn server(limits: Limits, guard: impl FnOnce(Guard) -> Guard) -> Server {
    let listener = listen("0", 0).unwrap();
    let router = Router::new()
        .route("/page", get(|| async { "page" }))
        .route("/values", get(|| async { "values" }))
        .route("/length", post(|body: Bytes| async move { body.len().to_string() }));
    let guard = guard(Guard::new(listener.local_addr().unwrap()));
    Server::start(listener, guard.before(router), limits).unwrap()
}

/// The whole answer to one request, headers and all.
fn asked(address: SocketAddr, line: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let mut request = format!("{line} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        request.push_str(&format!("host: {address}\r\n"));
    }
    headers.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
    if !body.is_empty() {
        request.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn pages_of_other_origins_and_names_of_strangers_are_refused() {
    let server = server(Limits::default(), |it| it);
    let at = server.address();
    let status = |headers: &[(&str, &str)]| status(&asked(at, "GET /values", headers, ""));
    assert_eq!(status(&[]), 200);
    assert_eq!(status(&[("origin", &format!("http://{at}"))]), 200);
    assert_eq!(status(&[("host", &format!("localhost:{}", at.port()))]), 200);
    assert_eq!(status(&[("origin", "http://evil.example")]), 403);
    assert_eq!(status(&[("origin", "null")]), 403);
    assert_eq!(status(&[("host", "evil.example")]), 403);
    assert_eq!(status(&[("host", &format!("evil.example:{}", at.port()))]), 403);
    let rebound = [("host", "evil.example"), ("origin", "http://evil.example")];
    assert_eq!(status(&rebound), 403);
}

#[test]
fn where_a_token_is_asked_for_only_open_paths_are_heard_without_it() {
    let server = server(Limits::default(), |it| it.with_tokens(["secret", "another"], &["/page"]));
    let status =
        |path: &str, headers: &[(&str, &str)]| status(&asked(server.address(), &format!("GET {path}"), headers, ""));
    assert_eq!(status("/page", &[]), 200);
    assert_eq!(status("/values", &[]), 401);
    for wrong in ["Bearer", "Bearer secre", "Bearer secrets", "Basic secret", "secret"] {
        assert_eq!(status("/values", &[("authorization", wrong)]), 401, "{wrong}");
    }
    assert_eq!(status("/values", &[("authorization", "Bearer secret")]), 200);
    assert_eq!(status("/values", &[("authorization", "bearer another")]), 200);
    // Reached by a name, as behind a reverse proxy.
    assert_eq!(status("/values", &[("authorization", "Bearer secret"), ("host", "swarm.example")]), 200);
    let stranger = [("authorization", "Bearer secret"), ("origin", "http://evil.example")];
    assert_eq!(status("/values", &stranger), 403);
}

#[test]
fn a_page_that_is_named_may_ask_and_its_browser_is_told() {
    let server = server(Limits::default(), |it| it.with_origins(vec!["https://chat.example".to_owned()]));
    let named = asked(server.address(), "GET /values", &[("origin", "https://chat.example")], "");
    assert_eq!(status(&named), 200);
    assert!(named.contains("access-control-allow-origin: https://chat.example"), "{named}");
    let other = asked(server.address(), "GET /values", &[("origin", "https://other.example")], "");
    assert_eq!(status(&other), 403);
    let headers = [("origin", "https://chat.example"), ("access-control-request-method", "POST")];
    let preflight = asked(server.address(), "OPTIONS /length", &headers, "");
    assert_eq!(status(&preflight), 200);
    assert!(preflight.contains("access-control-allow-methods: GET,POST"), "{preflight}");
}

#[test]
fn bodies_and_headers_have_bounds() {
    let server = server(Limits { body_bytes: 1000, ..Limits::default() }, |it| it);
    let length = |bytes: usize| asked(server.address(), "POST /length", &[], &"x".repeat(bytes));
    assert!(length(1000).ends_with("1000"));
    assert_eq!(status(&length(1001)), 413);
    let many = vec![("x-header", "value"); 150];
    assert_eq!(status(&asked(server.address(), "GET /values", &many, "")), 431);
    assert_eq!(status(&asked(server.address(), "GET /../../etc/passwd", &[], "")), 404);
}

#[test]
fn a_client_that_asks_nothing_is_closed() {
    let server = server(Limits { header_timeout_ms: 50, connections: 1, ..Limits::default() }, |it| it);
    let mut silent = TcpStream::connect(server.address()).unwrap();
    silent.set_read_timeout(Some(WAIT)).unwrap();
    silent.write_all(b"GET /values HTTP/1.1\r\n").unwrap();
    // It holds the only place, until it is closed.
    assert_eq!(status(&asked(server.address(), "GET /values", &[], "")), 200);
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).unwrap();
}

#[test]
fn a_server_that_is_dropped_frees_its_port_and_cuts_off_who_does_not_go() {
    let server = server(Limits::default(), |it| it);
    let address = server.address();
    let idle = TcpStream::connect(address).unwrap();
    assert_eq!(status(&asked(address, "GET /page", &[], "")), 200);
    drop(server);
    drop(idle);
    assert!(TcpStream::connect(address).is_err());
}
