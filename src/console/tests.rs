//! Who may ask the console, and what it costs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::{Console, MOST_VIEWERS, Shows, assets};
use crate::telemetry::Telemetry;

/// No answer takes longer on a machine that works.
const TIMEOUT: Duration = Duration::from_secs(20);

fn open(telemetry: &Telemetry) -> Console {
    Console::open(telemetry, TcpListener::bind("127.0.0.1:0").unwrap(), None, Shows::Page, None).unwrap()
}

fn connect(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // A server that refuses need not read all of it.
    let _ = stream.write_all(request.as_bytes());
    stream
}

/// The answer to a request with these headers, as text.
fn ask(address: SocketAddr, path: &str, headers: &str) -> String {
    let mut answer = Vec::new();
    let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    // A connection that is cut off has said what it had to say.
    let _ = connect(address, &request).read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// The first bytes of a stream, up to the end of its first frame.
fn first_frame(stream: &mut TcpStream) -> String {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    while !text.contains("\n\n") || !text.contains("data:") {
        let read = stream.read(&mut bytes).unwrap();
        assert!(read > 0, "the stream ended: {text}");
        text += &String::from_utf8_lossy(&bytes[..read]);
    }
    text
}

#[test]
fn the_page_is_there_with_a_strict_policy_and_nothing_beside_it() {
    let telemetry = Telemetry::default();
    let console = open(&telemetry);
    let own = format!("Host: {}\r\n", console.address());
    for path in assets::PATHS {
        let answer = ask(console.address(), path, &own);
        assert_eq!(status(&answer), 200, "{path}");
        assert!(answer.contains("default-src 'none'") && answer.contains("nosniff"), "{path}");
    }
    for path in ["/../Cargo.toml", "/%2e%2e/Cargo.toml", "//etc/passwd", "/vendor/../../mod.rs", "/vendor/", "/.env"] {
        assert_eq!(status(&ask(console.address(), path, &own)), 404, "{path}");
    }
}

#[test]
fn metrics_are_openmetrics_for_who_accepts_it_and_text_for_others() {
    let telemetry = Telemetry::default();
    let console = open(&telemetry);
    let own = format!("Host: {}\r\n", console.address());
    let plain = ask(console.address(), "/metrics", &own);
    assert!(plain.contains("content-type: text/plain; version=0.0.4") && !plain.contains("# EOF"), "{plain}");
    let accepts = format!("{own}Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n");
    let open = ask(console.address(), "/metrics", &accepts);
    assert!(open.contains("application/openmetrics-text; version=1.0.0") && open.ends_with("# EOF\n"), "{open}");
}

/// What a browser is sent for a path.
fn body(console: &Console, path: &str) -> String {
    let answer = ask(console.address(), path, &format!("Host: {}\r\n", console.address()));
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap()
}

#[test]
fn the_whole_page_takes_less_than_300_kb_compressed() {
    let telemetry = Telemetry::default();
    let console = open(&telemetry);
    let compressed = |path: &&str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(body(&console, path).as_bytes()).unwrap();
        encoder.finish().unwrap().len()
    };
    let all: usize = assets::PATHS.iter().map(compressed).sum();
    assert!(all < 300_000, "{all} bytes");
}

#[test]
fn the_page_has_all_that_it_imports_and_nothing_that_its_policy_forbids() {
    let telemetry = Telemetry::default();
    let console = open(&telemetry);
    let html = body(&console, "/");
    assert!(!html.contains("<style") && !html.contains(" style=") && !html.contains(" on"), "inline: {html}");
    assert!(html.match_indices("<script").all(|(at, _)| html[at..].split('>').next().unwrap().contains(" src=")));
    for path in assets::PATHS.iter().filter(|path| path.ends_with(".js") && !path.contains("/vendor/")) {
        let script = body(&console, path);
        assert!(!script.contains("innerHTML") && !script.contains("insertAdjacentHTML"), "{path}");
        let folder = path.rsplit_once('/').unwrap().0;
        for imported in script.split(" from '").skip(1).filter_map(|rest| rest.split('\'').next()) {
            let above = imported.strip_prefix("..").filter(|_| folder.matches('/').count() == 1);
            let found = above.map_or_else(|| format!("{folder}{}", &imported[1..]), str::to_owned);
            assert!(assets::PATHS.contains(&found.as_str()), "{path} imports {imported}");
        }
    }
}

#[test]
fn foreign_pages_and_rebound_names_are_refused() {
    let telemetry = Telemetry::default();
    let console = open(&telemetry);
    let (address, port) = (console.address(), console.address().port());
    for path in ["/", "/api/state", "/api/stream", "/api/status", "/metrics"] {
        let refused = |headers: &str| status(&ask(address, path, headers)) == 403;
        assert!(refused(&format!("Host: stranger.example:{port}\r\n")), "{path}: a name that was rebound");
        assert!(refused(&format!("Host: {address}\r\nOrigin: https://stranger.example\r\n")), "{path}: another page");
        assert!(refused(&format!("Host: {address}\r\nOrigin: null\r\n")), "{path}: a page in a sandbox");
    }
    assert_eq!(status(&ask(address, "/api/state", &format!("Host: {address}\r\nOrigin: http://{address}\r\n"))), 200);
}

#[test]
fn nothing_can_be_changed_and_what_is_too_large_is_refused() {
    let telemetry = Telemetry::default();
    let console = open(&telemetry);
    let address = console.address();
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let mut answer = String::new();
        let request = format!("{method} /api/state HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        connect(address, &request).read_to_string(&mut answer).unwrap();
        assert_eq!(status(&answer), 405, "{method}");
    }
    let long = format!("Host: {address}\r\nX: {}\r\n", "x".repeat(100_000));
    let answer = ask(address, "/api/state", &long);
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn elsewhere_than_on_loopback_the_data_needs_the_token_and_the_page_does_not() {
    let telemetry = Telemetry::default();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let console = Console::open(&telemetry, listener, None, Shows::Page, None).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], console.address().port()));
    let token = console.link().split_once("/#token=").unwrap().1.to_owned();
    assert_eq!(token.len(), 32, "128 bits");
    let own = format!("Host: {address}\r\n");
    assert_eq!(status(&ask(address, "/", &own)), 200);
    for path in ["/api/state", "/api/stream", "/api/status", "/metrics"] {
        assert_eq!(status(&ask(address, path, &own)), 401, "{path}");
        let guessed = format!("{own}Authorization: Bearer {}\r\n", "0".repeat(32));
        assert_eq!(status(&ask(address, path, &guessed)), 401, "{path}");
        assert_eq!(status(&ask(address, &format!("{path}?token={token}"), &own)), 401, "{path}: not in an address");
    }
    assert_eq!(status(&ask(address, "/api/state", &format!("{own}Authorization: Bearer {token}\r\n"))), 200);
    assert!(!ask(address, "/", &own).to_lowercase().contains("set-cookie"));
}

#[test]
fn of_twenty_viewers_one_that_never_reads_delays_nobody() {
    let telemetry = Telemetry::default();
    let console = open(&telemetry);
    let request = format!("GET /api/stream HTTP/1.1\r\nHost: {}\r\n\r\n", console.address());
    let mut viewers: Vec<TcpStream> = (0..20).map(|_| connect(console.address(), &request)).collect();
    viewers.iter_mut().for_each(|viewer| drop(first_frame(viewer)));
    let _never_reads = connect(console.address(), &request);
    // More than the buffers of a connection and of the channel hold.
    for number in 0..200 {
        telemetry.note(&format!("{number} {}", "x".repeat(50_000)));
        telemetry.send_frame();
    }
    telemetry.note("the last");
    telemetry.send_frame();
    for viewer in &mut viewers {
        let (mut text, mut bytes) = (String::new(), vec![0; 1 << 20]);
        while !text.contains("the last") {
            let read = viewer.read(&mut bytes).unwrap();
            assert!(read > 0, "the stream ended");
            text = text.split_off(text.len().saturating_sub(16)) + &String::from_utf8_lossy(&bytes[..read]);
        }
    }
}

#[test]
fn viewers_beyond_the_bound_are_told_so() {
    let telemetry = Telemetry::default();
    let console = open(&telemetry);
    let request = format!("GET /api/stream HTTP/1.1\r\nHost: {}\r\n\r\n", console.address());
    let mut viewers: Vec<TcpStream> = (0..MOST_VIEWERS).map(|_| connect(console.address(), &request)).collect();
    viewers.iter_mut().for_each(|viewer| drop(first_frame(viewer)));
    assert_eq!(status(&ask(console.address(), "/api/stream", &format!("Host: {}\r\n", console.address()))), 503);
}

#[test]
fn a_question_of_another_origin_one_too_long_and_one_that_nobody_answers_are_refused() {
    let telemetry = Telemetry::default();
    let console = open(&telemetry);
    let own = format!("Host: {}\r\n", console.address());
    let post = |headers: &str, body: &str| {
        let length = body.len();
        let request = format!(
            "POST /api/talk HTTP/1.1\r\nConnection: close\r\n{own}{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        let mut answer = Vec::new();
        let _ = connect(console.address(), &request).read_to_end(&mut answer);
        status(&String::from_utf8_lossy(&answer))
    };
    assert_eq!(post("Origin: https://elsewhere.example\r\n", "{}"), 403);
    assert_eq!(post("", &"a".repeat(1 << 20)), 413);
    assert_eq!(post("", "{}"), 404, "this console asks no run");
    let about = ask(console.address(), "/api/talk", &own);
    assert!(about.contains("this console asks no run"), "{about}");
}
