//! Thousands of malformed requests: each is refused in OpenAI's form, none is an error of the server's, and it goes on with as
//! much memory as before.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use pathswarm::seed::Seed;
use rand::{Rng, RngExt};
use serde_json::{Map, Value, json};

use crate::client::{NAME, Served, collected};
use crate::run::{TIMEOUT, World};

const REQUESTS: usize = 4_000;

/// Connections that say what is no request.
const CONNECTIONS: usize = 2_000;

/// More memory than after the largest requests, in bytes: what allocators keep besides.
const MORE_BYTES: u64 = 64 << 20;

const ROUTES: [&str; 3] = ["/v1/completions", "/v1/chat/completions", "/v1/embeddings"];

const FIELDS: [&str; 32] = [
    "prompt",
    "messages",
    "input",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "n",
    "best_of",
    "stop",
    "seed",
    "stream",
    "stream_options",
    "echo",
    "logprobs",
    "top_logprobs",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "suffix",
    "user",
    "tools",
    "path",
    "without_paths",
    "route_every",
    "encoding_format",
    "dimensions",
    "response_format",
    "model",
    "unheard_of",
];

fn one<'a, T>(rng: &mut impl Rng, of: &'a [T]) -> &'a T {
    &of[rng.random_range(0..of.len())]
}

fn value(rng: &mut impl Rng, depth: u32) -> Value {
    match rng.random_range(0..if depth == 0 { 8 } else { 11 }) {
        0 => Value::Null,
        1 => json!(rng.random::<bool>()),
        2 => json!(rng.random_range(-3..400)),
        3 => json!(rng.random::<i64>()),
        4 => json!(f64::from_bits(rng.random::<u64>())),
        5 => json!(rng.random_range(-2.5..2.5)),
        6 => json!(one(
            rng,
            &["", "ba ke", "\u{0}", "漢字 🦀", "base64", "user", "processes", "<|end|>", "\nUser:", "1e999"]
        )),
        7 => json!("x".repeat(rng.random_range(0..3_000))),
        8 => (0..rng.random_range(0..6)).map(|_| value(rng, depth - 1)).collect(),
        9 => json!({ "role": one(rng, &["user", "assistant", "tool"]), "content": value(rng, depth - 1) }),
        _ => {
            let fields = (0..rng.random_range(0..4)).map(|_| ((*one(rng, &FIELDS)).to_owned(), value(rng, depth - 1)));
            Value::Object(fields.collect::<Vec<_>>().into_iter().collect())
        }
    }
}

/// A request for a route that is right, but for some fields.
fn body(rng: &mut impl Rng, route: &str) -> Vec<u8> {
    let mut fields = Map::new();
    fields.insert("model".to_owned(), json!(NAME));
    match route {
        "/v1/completions" => fields.insert("prompt".to_owned(), json!("ba ke")),
        "/v1/embeddings" => fields.insert("input".to_owned(), json!("ba ke")),
        _ => fields.insert("messages".to_owned(), json!([{ "role": "user", "content": "ba" }])),
    };
    if route != "/v1/embeddings" {
        fields.insert("max_tokens".to_owned(), json!(3));
    }
    for _ in 0..rng.random_range(0..3) {
        fields.insert((*one(rng, &FIELDS)).to_owned(), value(rng, 3));
    }
    let mut bytes = Value::Object(fields).to_string().into_bytes();
    match rng.random_range(0..8) {
        0 => bytes.truncate(rng.random_range(0..bytes.len())),
        1 => {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        2 => bytes = (0..rng.random_range(0..200)).map(|_| rng.random::<u8>()).collect(),
        _ => {}
    }
    bytes
}

#[test]
fn thousands_of_malformed_requests_break_nothing() {
    let world = World::new();
    let served = Served::start(&collected(&world), &["--max-tokens", "40"]);
    let mut rng = Seed::root(34).generator();
    let (mut answered, mut refused) = (0, 0);
    large(&served);
    let before = served.resident_bytes();
    for number in 0..REQUESTS {
        let route = *one(&mut rng, &ROUTES);
        let body = body(&mut rng, route);
        let response = served.ask(&format!("POST {route}"), &[], &body);
        match response.status {
            200 => answered += 1,
            400 | 404 => {
                refused += 1;
                let error = response.error();
                assert!(error["message"].as_str().unwrap().len() < 1_000, "{error}");
            }
            status => panic!(
                "{number}: {route} {status}: {} to {}",
                String::from_utf8_lossy(&response.body),
                String::from_utf8_lossy(&body)
            ),
        }
    }
    assert!(answered > 200 && refused > 1_000, "{answered} {refused}");
    for _ in 0..CONNECTIONS {
        no_request(&served, &mut rng);
    }
    served.wait_until_idle();
    served.complete(json!({ "prompt": "ba ke", "max_tokens": 3 })).ok();
    let after = served.resident_bytes();
    assert!(after < before + MORE_BYTES, "{before} bytes before, {after} after");
}

/// Requests that are as large as they may be, and larger.
fn large(served: &Served) {
    for (body, status) in [
        ("[".repeat(100_000).into_bytes(), 400),
        (b"{\"model\": \"processes\", \"prompt\": ".to_vec(), 400),
        (vec![b' '; 5 << 20], 413),
        (json!({ "model": NAME, "prompt": "ba ke ".repeat(600_000) }).to_string().into_bytes(), 400),
        (json!({ "model": NAME, "prompt": vec!["ba"; 300] }).to_string().into_bytes(), 400),
        (
            json!({ "model": NAME, "prompt": "ba", "n": 256, "best_of": 256, "max_tokens": 1 })
                .to_string()
                .into_bytes(),
            200,
        ),
    ] {
        let response = served.ask("POST /v1/completions", &[], &body);
        assert_eq!(
            response.status,
            status,
            "{}",
            String::from_utf8_lossy(&response.body[..response.body.len().min(300)])
        );
    }
}

/// Says what is no request, or not a whole one. The server closes the connection, or answers that the client is wrong.
fn no_request(served: &Served, rng: &mut impl Rng) {
    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let noise: Vec<u8> = (0..rng.random_range(0..2_000)).map(|_| rng.random::<u8>()).collect();
    let head = format!("POST {} HTTP/1.1\r\nhost: {}\r\n", one(rng, &ROUTES), served.address);
    let said: Vec<u8> = match rng.random_range(0..10) {
        0 => noise,
        1 => [head.as_bytes(), b"content-length: 18446744073709551616\r\n\r\n"].concat(),
        2 => [head.as_bytes(), b"content-length: 5\r\ncontent-length: 6\r\n\r\n{}"].concat(),
        3 => [head.as_bytes(), b"transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n", &noise].concat(),
        4 => [head.as_bytes(), b"transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n", &noise].concat(),
        5 => [head.as_bytes(), b"x: ", &vec![b'a'; rng.random_range(0..100_000)], b"\r\n\r\n"].concat(),
        6 => [head.as_bytes(), "x: y\r\n".repeat(rng.random_range(0..3_000)).as_bytes(), b"\r\n"].concat(),
        7 => format!("GET /{} HTTP/1.1\r\n\r\n", "%00/../".repeat(rng.random_range(0..900))).into_bytes(),
        8 => [head.as_bytes(), b"content-length: 1000\r\n\r\n{"].concat(),
        _ => head.as_bytes()[..rng.random_range(0..head.len())].to_vec(),
    };
    // A server that refuses need not read to the end.
    drop(stream.write_all(&said).and_then(|()| stream.shutdown(Shutdown::Write)));
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).map(str::to_owned);
    let is_refused = status.as_deref().is_none_or(|status| status.starts_with('4'));
    assert!(is_refused, "{answer} to {}", String::from_utf8_lossy(&said));
    // A connection that is reset has been closed, too; one that stays open has not.
    assert!(!read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "a connection stays open");
}
