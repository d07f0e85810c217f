//! A swarm is seen from outside: peers tell visitors their status, and a page follows it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use super::{address, told};
use crate::run::{RUN, TIMEOUT, mistake, program};
use crate::swarm::{Swarm, modules, newest};

/// `watch`, which ends with the test.
struct Watching {
    child: Child,
    link: String,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Watching {
    fn start(address: &str) -> Self {
        let mut child = program()
            .args(["watch", address, "--web=127.0.0.1:0", "--format", "json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let link = loop {
            let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if event["event"] == "web" {
                break event["link"].as_str().unwrap().to_owned();
            }
        };
        // Ends with the command.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, link }
    }

    /// A request to the page's server.
    fn request(&self, request: &str, body: &str) -> TcpStream {
        let address = self.link.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let length = body.len();
        write!(stream, "{request} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        stream
    }

    /// The body of its answer.
    fn ask(&self, request: &str, body: &str) -> String {
        let mut answer = String::new();
        self.request(request, body).read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// What the page shows, once it satisfies the condition.
    #[expect(clippy::disallowed_methods, reason = "patience has an end")]
    fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        let mut frames = BufReader::new(self.request("GET /api/stream", "")).lines();
        loop {
            let shown: Value = serde_json::from_str(&self.ask("GET /api/state", "")).unwrap();
            if holds(&shown) {
                return shown;
            }
            assert!(began.elapsed() < TIMEOUT, "never: {what}; the last seen: {shown}");
            let frame = frames.find(|line| line.as_ref().unwrap().starts_with("data:"));
            frame.expect("the page goes on").unwrap();
        }
    }
}

/// The owners of a module, as the peers that are shown name them.
fn owners(shown: &Value, module: &str) -> Vec<String> {
    let peers = shown["state"]["peers"].as_object().unwrap().values();
    peers.filter_map(|peer| Some(peer["status"]["modules"][module]["owner"].as_str()?.to_owned())).collect()
}

#[test]
fn a_visitor_is_told_what_peers_tell_their_owners() {
    let mut swarm = Swarm::start(RUN, 2);
    let statuses = swarm.until("both train", |statuses| statuses.len() == 2 && newest(statuses) >= 1);
    let seen = told(&["status", address(&statuses[0])]);
    assert_eq!(seen.len(), 2, "both peers, by the address of one: {seen:?}");
    for status in &seen {
        let own = statuses.iter().find(|own| own["peer"] == status["peer"]).expect("a peer of the swarm");
        for key in ["run", "name", "phases", "peers"] {
            assert_eq!(status[key], own[key], "{key}");
        }
        assert_eq!(modules(status).len(), modules(own).len());
        assert_eq!((&status["bans"], &status["activity"]["queues"]), (&json!([]), &json!([])));
    }
}

#[test]
fn a_machine_that_tells_its_status_to_nobody_tells_it_to_nobody() {
    let mut swarm = Swarm::start_with(RUN, 1, &["--set", "tell_status=off"]);
    let statuses = swarm.until("it trains", |statuses| statuses.len() == 1);
    let said = mistake(&["status", address(&statuses[0])]);
    assert!(said.contains("tells its status to nobody") && said.contains("tell_status"), "{said}");
}

#[test]
fn a_page_from_outside_shows_who_replaces_a_killed_owner_and_asks_the_swarm() {
    let mut swarm = Swarm::start(RUN, 3);
    let everybody = |statuses: &[Value]| statuses.len() == 3 && newest(statuses) >= 1;
    let statuses = swarm.until("all train", everybody);
    let watching = Watching::start(address(&statuses[0]));
    watching.until("three peers", |shown| shown["state"]["peers"].as_object().is_some_and(|all| all.len() == 3));
    let asked = json!({ "text": "bake", "tokens": 12, "temperature": 0.8, "top_k": 40, "seed": 1, "every": 4,
                        "path": null });
    let answer = watching.ask("POST /api/talk", &asked.to_string());
    let said: Vec<Value> =
        answer.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    assert!(said[0]["path"].is_u64(), "{answer}");
    let tokens = said.iter().filter(|event| event["p"].as_f64().is_some_and(|p| p > 0.0 && p <= 1.0)).count();
    assert_eq!(said.last().unwrap()["tokens"], tokens, "{answer}");
    // Not the one by whose address the page looks.
    let (number, key) = (1..3)
        .map(|number| (number, swarm.key(number).unwrap()))
        .find(|(_, key)| statuses.iter().flat_map(modules).any(|module| module["owner"] == key.as_str()))
        .expect("a newcomer owns a module");
    let owned = statuses.iter().flat_map(modules).find(|module| module["owner"] == key.as_str()).unwrap();
    let module = owned["module"].as_str().unwrap().to_owned();
    swarm.kill(number);
    let shown = watching.until("another owner", |shown| owners(shown, &module).iter().any(|owner| *owner != key));
    assert!(shown["events"].as_array().is_some_and(|events| !events.is_empty()));
}
