//! Network checks: ports, observed addresses, reachability, and bandwidth from a peer.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::finding::Finding;
use crate::access::authentication::AuthenticationRequest;
use crate::config::MachineConfig;
use crate::names::BlobRef;
use crate::network::{Multiaddr, NetworkEvents, NetworkHandle, Outside, Sight, StartError};
use crate::peer::join::{JoinError, fetch_blob, fetch_manifest, parts};
use crate::store::BlobStore;

/// With fewer bytes, the latency would dominate the measurement.
const LEAST_BYTES: u64 = 256 * 1024;

/// Advice for a machine without incoming connections.
const LET_IN: &str = "forward a fixed port in the router (TCP and UDP) and announce it, use upnp = true, or name a relay: relays = [\"…\"]";

/// Advice for a run by invitation, which sends blobs only to members.
const IN_WHOSE_NAME: &str = "to measure the bandwidth, name the folder of a peer of this machine that takes part in \
    the run: --as DIR; join says how to be invited";

/// The machine cannot listen.
pub fn no_ports(error: &StartError) -> Finding {
    let remedy = match error {
        StartError::NotListening { .. } => {
            "name addresses that this machine has, with --listen or with `listen` in the profile"
        }
        _ => "stop the program that uses the port, or choose other ports with --listen or with `listen` in the profile",
    };
    Finding::wrong("ports", error.to_string(), remedy)
}

/// The listening addresses.
pub async fn ports(network: &NetworkHandle, machine: &MachineConfig) -> Vec<Finding> {
    let addresses = network.listeners().await.unwrap_or_default();
    let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let found = format!("listens at {}", shown.join(", "));
    let is_any = |address: &String| address.contains("/tcp/0") || address.contains("/udp/0");
    let finding = match () {
        () if addresses.is_empty() => Finding::wrong(
            "ports",
            "no address to listen on",
            "name an address in the profile: listen = [\"/ip4/0.0.0.0/udp/4001/quic-v1\"]",
        ),
        () if machine.listen.iter().any(is_any) => {
            let remedy = "the port is chosen at the first start and kept for the run; to forward a port in a router, \
                set it in `listen`";
            Finding::good("ports", found).advice(remedy)
        }
        () => Finding::good("ports", found),
    };
    vec![finding.with("addresses", shown)]
}

/// Without an address, no peer was asked.
pub fn nobody_asked() -> Finding {
    Finding::poor(
        "outside",
        "not checked: no peer was asked how it sees this machine",
        "give the address of any peer or relay: pathswarm doctor ADDRESS",
    )
}

/// Whether a peer answers, its latency, and the bandwidth, with this authentication.
#[expect(clippy::disallowed_methods, reason = "an edge: how long others take")]
pub async fn ask(
    network: &NetworkHandle,
    events: &mut NetworkEvents,
    blobs: &BlobStore,
    address: &Multiaddr,
    shown: Option<&AuthenticationRequest>,
) -> Vec<Finding> {
    if let Err(error) = network.dial(address.clone()).await {
        let remedy = "check the address, and that the peer runs; if other machines reach it, check this machine's \
            firewall (outgoing UDP and TCP)";
        return vec![Finding::wrong("peer", error.to_string(), remedy)];
    }
    let began = Instant::now();
    let asked = fetch_manifest(network, events, address, shown).await;
    let answer_ms = began.elapsed().as_secs_f64() * 1e3;
    let (peer, _, manifest, _) = match asked {
        Ok(asked) => asked,
        // The answer of a relay.
        Err(JoinError::Refused { reason, .. }) => {
            let found = format!("answers in {answer_ms:.0} ms: {reason}");
            return vec![Finding::good("peer", found).with("answer_ms", answer_ms)];
        }
        Err(JoinError::NotInvited { reason, .. }) => {
            let found = format!("answers in {answer_ms:.0} ms: {reason}");
            return vec![Finding::good("peer", found).advice(IN_WHOSE_NAME).with("answer_ms", answer_ms)];
        }
        Err(error) => return vec![Finding::wrong("peer", error.to_string(), "ask another peer of the swarm")],
    };
    let found = format!("answers in {answer_ms:.0} ms, of run \"{}\"", manifest.config.name);
    let mut findings = vec![Finding::good("peer", found).with("answer_ms", answer_ms)];
    let largest = parts(&manifest).into_iter().max_by_key(|(blob, _)| blob.bytes);
    if let Some((blob, what)) = largest {
        findings.push(download(network, events, blobs, (blob, what), (peer, address)).await);
    }
    findings
}

#[expect(clippy::disallowed_methods, reason = "an edge: how long bytes take")]
async fn download(
    network: &NetworkHandle,
    events: &mut NetworkEvents,
    blobs: &BlobStore,
    (blob, what): (BlobRef, &'static str),
    from: (crate::names::PeerKey, &Multiaddr),
) -> Finding {
    let began = Instant::now();
    if let Err(error) = fetch_blob(network, events, blob, what, from).await {
        let remedy = "blobs need a direct connection; a relay carries only messages";
        return Finding::wrong("bandwidth", error.to_string(), remedy);
    }
    let bytes_per_s = blob.bytes as f64 / began.elapsed().as_secs_f64();
    // The blob is not needed here.
    let _ = blobs.remove(blob.hash);
    let megabits = bytes_per_s * 8.0 / 1e6;
    let megabytes = blob.bytes as f64 / 1e6;
    let found = format!("{megabits:.1} Mbit/s from there ({what}, {megabytes:.1} MB)");
    let finding = match blob.bytes < LEAST_BYTES {
        true => Finding::poor("bandwidth", found, "too few bytes to measure; ask a peer of a larger run"),
        false => Finding::good("bandwidth", found),
    };
    finding.with("download_bytes_per_s", bytes_per_s).with("bytes", blob.bytes)
}

/// The reachability of this machine, after time for tests from outside.
#[expect(clippy::disallowed_methods, reason = "an edge: how long others have")]
pub async fn reachability(network: &NetworkHandle, within: Duration) -> Vec<Finding> {
    let until = Instant::now() + within;
    let outside = loop {
        let outside = network.outside().await.unwrap_or_default();
        if outside.is_reached || Instant::now() >= until {
            break outside;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    };
    vec![reached(&outside), kind_of_router(&outside)]
}

fn reached(outside: &Outside) -> Finding {
    let addresses: Vec<String> = outside.reached_at.iter().map(ToString::to_string).collect();
    let finding = match (outside.is_reached, outside.sights.iter().all(|sight| sight.is_local)) {
        (true, _) => Finding::good("reachability", format!("others reach this machine at {}", addresses.join(", "))),
        (false, true) => Finding::good("reachability", "seen only from this machine or its own network"),
        (false, false) => {
            let found = "no connection has come in from outside; only a relay with AutoNAT tries to make one";
            Finding::poor("reachability", found, LET_IN)
        }
    };
    finding.with("reached", outside.is_reached).with("addresses", addresses)
}

/// The kind of NAT, as far as it is observable.
fn kind_of_router(outside: &Outside) -> Finding {
    let sights: Vec<String> = outside.sights.iter().map(|sight| sight.at.to_string()).collect();
    let shown = sights.join(", ");
    let mine: BTreeSet<&str> = outside.sights.iter().filter(|sight| sight.is_own).map(|_| "own").collect();
    let from_listening: Vec<&Sight> = outside.sights.iter().filter(|sight| sight.from_listening_port).collect();
    let ports: BTreeSet<Option<u16>> = from_listening.iter().map(|sight| sight.port).collect();
    let (kind, finding) = match () {
        () if sights.is_empty() => (
            "unknown",
            Finding::poor(
                "router",
                "no peer has reported the address at which it sees this machine",
                "ask a relay: pathswarm doctor ADDRESS",
            ),
        ),
        () if !mine.is_empty() => {
            ("none", Finding::good("router", format!("no NAT: seen at its own address ({shown})")))
        }
        () if outside.sights.iter().all(|sight| sight.is_local) => (
            "unknown",
            Finding::good("router", format!("not tested: all peers asked are on the local network; seen at {shown}")),
        ),
        () if ports.len() > 1 => {
            let found = format!("symmetric NAT: each connection gets its own port ({shown}), so hole punching fails");
            ("symmetric", Finding::poor("router", found, LET_IN))
        }
        () if from_listening.len() > 1 => (
            "cone",
            Finding::good(
                "router",
                format!("cone NAT: all connections share one port ({shown}), so hole punching works"),
            ),
        ),
        () => {
            let found = format!("there is a NAT: seen at {shown}");
            let remedy = "to tell which kind of NAT it is, two relays have to see this machine: name them in `relays`";
            ("unknown", Finding::poor("router", found, remedy))
        }
    };
    finding.with("kind", kind).with("seen_at", sights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::swarm::doctor::finding::Verdict;

    fn sight(port: u16) -> Sight {
        let at = format!("/ip4/203.0.113.7/udp/{port}/quic-v1").parse().unwrap();
        Sight { at, port: Some(port), from_listening_port: true, is_own: false, is_local: false }
    }

    fn kind(sights: &[Sight]) -> (String, Verdict) {
        let found = kind_of_router(&Outside { sights: sights.to_vec(), ..Outside::default() });
        (found.to_json()["values"]["kind"].as_str().unwrap().to_owned(), found.verdict)
    }

    #[test]
    fn a_router_shows_by_the_ports_that_others_see() {
        assert_eq!(kind(&[]), ("unknown".to_owned(), Verdict::Poor));
        assert_eq!(kind(&[sight(4001)]), ("unknown".to_owned(), Verdict::Poor));
        assert_eq!(kind(&[sight(4001), sight(4001)]), ("cone".to_owned(), Verdict::Good));
        assert_eq!(kind(&[sight(4001), sight(4002)]), ("symmetric".to_owned(), Verdict::Poor));
        let from_elsewhere = Sight { from_listening_port: false, ..sight(9) };
        assert_eq!(kind(&[sight(4001), from_elsewhere]), ("unknown".to_owned(), Verdict::Poor));
        assert_eq!(kind(&[Sight { is_own: true, ..sight(4001) }]), ("none".to_owned(), Verdict::Good));
    }

    #[test]
    fn who_is_not_reached_reads_what_to_do() {
        let alone = reached(&Outside { sights: vec![sight(4001)], ..Outside::default() });
        assert!(alone.remedy.unwrap().contains("relays"));
        let at = vec!["/ip4/203.0.113.7/udp/4001/quic-v1".parse().unwrap()];
        let found = reached(&Outside { is_reached: true, reached_at: at, sights: Vec::new() });
        assert!(found.verdict == Verdict::Good && found.found.contains("203.0.113.7"));
    }
}
