//! A small run that is served, and a client that speaks HTTP without knowing much of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::run::{TIMEOUT, World, pathswarm, program};

/// The name of the run that [`World::new`] describes.
pub const NAME: &str = "processes";

/// A run of a few steps, collected.
pub fn collected(world: &World) -> String {
    let short = ["phases=2", "inner_steps=30", "ancestor_steps=30", "warmup_steps=1"];
    let folder = world.name("run");
    let mut arguments = vec!["simulate", &world.config, "--corpus", &world.corpus, "--dir", &folder, "--peers", "2"];
    let sets = short.map(|set| format!("training.{set}"));
    sets.iter().for_each(|set| arguments.extend(["--set", set]));
    let output = pathswarm(&[&arguments[..], &["--set", "threads=1"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    format!("{folder}/model")
}

/// Puts other documents in the place of those of each domain.
pub fn rewrite(world: &World, others: impl Fn(&[String]) -> Vec<String>) {
    for file in std::fs::read_dir(&world.corpus).unwrap() {
        let file = file.unwrap().path();
        let lines = std::fs::read_to_string(&file).unwrap();
        let text = |line| serde_json::from_str::<Value>(line).unwrap()["text"].as_str().unwrap().to_owned();
        let texts: Vec<String> = lines.lines().map(text).collect();
        let lines: Vec<String> = others(&texts).iter().map(|text| json!({ "text": text }).to_string()).collect();
        std::fs::write(&file, lines.join("\n")).unwrap();
    }
}

/// Whoever asks a server.
pub struct Client {
    /// Such as `127.0.0.1:40000`.
    pub address: String,
}

/// A server that runs.
pub struct Served {
    client: Client,
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Deref for Served {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of a response that is no error.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// The error that it is.
    #[track_caller]
    pub fn error(&self) -> Value {
        let value = self.json();
        assert!(value["error"]["message"].is_string() && value["error"]["type"].is_string(), "{value}");
        value["error"].clone()
    }

    /// The data of its events.
    #[track_caller]
    pub fn events(&self) -> Vec<Value> {
        assert!(self.head.contains("text/event-stream"), "{}", self.head);
        let body = String::from_utf8(self.body.clone()).unwrap();
        let data: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(data.last(), Some(&"[DONE]"), "{body}");
        data[..data.len() - 1].iter().map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

impl Served {
    pub fn start(whom: &str, more: &[&str]) -> Self {
        let arguments = [&["serve", whom, "--listen", "127.0.0.1:0", "--format", "json"], more].concat();
        let mut child = program().args(&arguments).args(["--set", "threads=1"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        Self { client: Client::of(&told), child, said }
    }

    /// Its memory.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        1_024 * line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap()
    }

    /// Its number among the processes.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends as with Ctrl-C. Returns the exit status and the last event.
    pub fn stop(mut self) -> (Option<i32>, Value) {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let status = self.child.wait().unwrap().code();
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        (status, serde_json::from_str(rest.lines().last().unwrap()).unwrap())
    }
}

impl Client {
    /// For what a server tells when it serves.
    pub fn of(told: &Value) -> Self {
        assert_eq!(told["event"], "serving", "{told}");
        let url = told["url"].as_str().unwrap();
        Self { address: url.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap().to_owned() }
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// A connection on which a request was sent, and no answer was read.
    pub fn send(&self, head: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        // In HTTP/1.0, the answer ends with the connection.
        let head =
            format!("{head} HTTP/1.0\r\nhost: {}\r\n{headers}content-length: {}\r\n\r\n", self.address, body.len());
        // A server that refuses a request need not read it to its end.
        drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
        stream
    }

    pub fn ask(&self, head: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let mut stream = self.send(head, headers, body);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no head: {bytes:?}"));
        let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, head: head.to_lowercase(), body: bytes[at + 4..].to_vec() }
    }

    pub fn get(&self, path: &str) -> Response {
        self.ask(&format!("GET {path}"), &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Response {
        self.ask(&format!("POST {path}"), &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// A completion by the routed model, with these fields.
    pub fn complete(&self, fields: Value) -> Response {
        self.post("/v1/completions", &with_model(fields))
    }

    /// The same of a chat.
    pub fn chat(&self, fields: Value) -> Response {
        self.post("/v1/chat/completions", &with_model(fields))
    }

    /// Requests that are answered or wait.
    pub fn requests(&self) -> u64 {
        self.get("/health").ok()["requests"].as_u64().unwrap()
    }

    /// Waits until no request is answered or waits.
    pub fn wait_until_idle(&self) {
        self.wait_for_requests(0);
    }

    /// Waits until so many requests are being answered.
    #[expect(clippy::disallowed_methods, reason = "patience has an end")]
    pub fn wait_for_requests(&self, count: u64) {
        let began = Instant::now();
        while self.requests() != count {
            assert!(began.elapsed() < TIMEOUT, "{} requests and never {count}", self.requests());
            std::thread::yield_now();
        }
    }

    /// Waits until the metrics, which are counted from time to time, are so.
    #[expect(clippy::disallowed_methods, reason = "patience has an end")]
    pub fn wait_for_metrics(&self, headers: &[(&str, &str)], are: impl Fn(&str) -> bool) {
        let began = Instant::now();
        loop {
            let text = String::from_utf8(self.ask("GET /metrics", headers, b"").body).unwrap();
            if are(&text) {
                return;
            }
            assert!(began.elapsed() < TIMEOUT, "{text}");
            std::thread::yield_now();
        }
    }
}

fn with_model(mut fields: Value) -> Value {
    if fields.get("model").is_none() {
        fields["model"] = json!(NAME);
    }
    fields
}

/// A folder of the repository.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}
