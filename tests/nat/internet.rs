//! A small internet of network namespaces. It is gone when it is dropped, whatever happened in it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use crate::parts::SAID;

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What a router does with the port of a packet that goes out. Both let nobody in who was not sent something first.
#[derive(Clone, Copy)]
pub enum Router {
    /// It stays, whoever the packet goes to: a hole can be punched.
    KeepsPorts,
    /// It is always the same other one: whoever sees a packet knows it.
    HasItsOwnPort,
    /// It is another for every address that packets go to: nobody can be told a port that will be right.
    ChangesPorts,
}

/// The internet, 203.0.113.0/24, and two houses with a router each.
pub struct Internet {
    outside: Namespace,
    routers: [Namespace; 2],
    houses: [Namespace; 2],
}

/// A machine with a network of its own. It is gone when it is dropped.
pub struct Namespace(String);

/// A process in one of the namespaces.
pub struct Part {
    child: Child,
    lines: Receiver<String>,
}

/// Several namespaces at once must not share names, nor those of two runs of these tests.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Whether this machine can have namespaces; else, why not.
static ABLE: OnceLock<Result<(), String>> = OnceLock::new();

impl Internet {
    /// None where this machine cannot have one.
    pub fn build(first: Router, second: Router) -> Option<Self> {
        let add = Namespace::add;
        let internet = Self {
            outside: add("outside")?,
            routers: [add("router1")?, add("router2")?],
            houses: [add("house1")?, add("house2")?],
        };
        internet.lay_out();
        internet.connect(0, first);
        internet.connect(1, second);
        Some(internet)
    }

    fn lay_out(&self) {
        let outside = self.outside.name();
        run(&format!("ip -n {outside} link add street type bridge"));
        run(&format!("ip -n {outside} link set street up"));
        for host in 1..=3 {
            run(&format!("ip -n {outside} address add 203.0.113.{host}/24 dev street"));
        }
    }

    /// A house, its router, and the router's line to the internet.
    fn connect(&self, which: usize, kind: Router) {
        let [outside, router, house] = [&self.outside, &self.routers[which], &self.houses[which]].map(Namespace::name);
        let (net, line) = (which + 1, format!("line{which}"));
        run(&format!("ip -n {outside} link add {line} type veth peer name wan netns {router}"));
        run(&format!("ip -n {outside} link set {line} master street up"));
        run(&format!("ip -n {router} address add 203.0.113.1{net}/24 dev wan"));
        run(&format!("ip -n {router} link set wan up"));
        run(&format!("ip -n {router} link add lan type veth peer name eth0 netns {house}"));
        run(&format!("ip -n {router} address add 192.168.{net}.1/24 dev lan"));
        run(&format!("ip -n {router} link set lan up"));
        run(&format!("ip -n {house} address add 192.168.{net}.2/24 dev eth0"));
        run(&format!("ip -n {house} link set eth0 up"));
        run(&format!("ip -n {house} route add default via 192.168.{net}.1"));
        run(&format!("ip netns exec {router} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'"));
        let masquerade = match kind {
            Router::KeepsPorts => "oifname wan masquerade",
            Router::HasItsOwnPort => "oifname wan udp sport 4001 masquerade to :40001; oifname wan masquerade",
            Router::ChangesPorts => "oifname wan masquerade random,fully-random",
        };
        let rules = format!(
            "table inet router {{
                chain in {{ type filter hook input priority 0; policy accept; iifname wan drop; }}
                chain through {{
                    type filter hook forward priority 0; policy drop;
                    iifname lan accept; ct state established,related accept;
                }}
                chain out {{ type nat hook postrouting priority 100; {masquerade}; }}
            }}"
        );
        run(&format!("ip netns exec {router} nft '{rules}'"));
    }

    /// A relay at an address of the internet.
    pub fn relay(&self, ip: &str) -> Part {
        self.outside("relay", &[("LISTEN", ip)])
    }

    /// Somebody on the internet itself.
    pub fn outside(&self, part: &str, settings: &[(&str, &str)]) -> Part {
        Part::begin(&self.outside, part, settings)
    }

    /// A program that will run on the internet itself.
    #[cfg(feature = "learning")]
    pub fn program_outside(&self) -> Command {
        self.outside.program()
    }

    /// A program that will run in a house, 0 or 1.
    #[cfg(feature = "learning")]
    pub fn program_in_house(&self, house: usize) -> Command {
        self.houses[house].program()
    }

    /// Somebody in the first house.
    pub fn first_house(&self, part: &str, settings: &[(&str, &str)]) -> Part {
        Part::begin(&self.houses[0], part, settings)
    }

    /// The machine of the first house gets another address from its router, and loses the one that it had.
    #[cfg(feature = "learning")]
    pub fn readdress_first_house(&self, ip: &str) {
        let house = self.houses[0].name();
        run(&format!("ip -n {house} address del 192.168.1.2/24 dev eth0"));
        run(&format!("ip -n {house} address add {ip}/24 dev eth0"));
        run(&format!("ip -n {house} route add default via 192.168.1.1"));
    }

    /// Somebody in the second.
    pub fn second_house(&self, part: &str, settings: &[(&str, &str)]) -> Part {
        Part::begin(&self.houses[1], part, settings)
    }
}

impl Namespace {
    /// None where this machine cannot have one.
    pub fn add(what: &str) -> Option<Self> {
        if let Err(reason) = ABLE.get_or_init(able) {
            println!("skipped: {reason}");
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let added = Self(format!("pathswarm-{}-{number}-{what}", std::process::id()));
        run(&format!("ip netns add {}", added.0));
        run(&format!("ip -n {} link set lo up", added.0));
        Some(added)
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// A program that will run there.
    #[cfg(feature = "learning")]
    pub fn program(&self) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(env!("CARGO_BIN_EXE_pathswarm"));
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // What was not made cannot be removed, and nobody is there to hear of it.
        let _ = Command::new("ip").args(["netns", "del", &self.0]).stderr(Stdio::null()).status();
    }
}

impl Part {
    fn begin(namespace: &Namespace, part: &str, settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace.name()]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "parts::plays_its_part", "--nocapture"]).env("PATHSWARM_NAT_PART", part);
        command.envs(settings.iter().map(|(name, value)| (format!("PATHSWARM_NAT_{name}"), value)));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let (said, lines) = sync_channel(1_000);
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let told = match line.split_once(SAID) {
                    Some((_, told)) => said.send(told.to_owned()),
                    None => Ok(()),
                };
                if told.is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// What it says next that begins so. Everything else is passed over.
    pub fn hear(&self, beginning: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(TIMEOUT);
            let line = line.unwrap_or_else(|error| panic!("waited for {beginning:?} in vain: {error}"));
            if let Some(rest) = line.strip_prefix(beginning).and_then(|rest| rest.strip_prefix(": ")) {
                return rest.to_owned();
            }
        }
    }

    /// How it sees its own reachability, after all that it has said so far.
    pub fn outlook(&self) -> String {
        self.hear("outlook")
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn able() -> Result<(), String> {
    let id = Command::new("id").arg("-u").output().map_err(|error| format!("id: {error}"))?;
    if id.stdout.trim_ascii() != b"0" {
        return Err("network namespaces need root".to_owned());
    }
    for (tool, argument) in [("ip", "-V"), ("nft", "--version")] {
        let found = Command::new(tool).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            return Err(format!("{tool} is missing (Debian's iproute2 and nftables)"));
        }
    }
    // In a container even root may lack what it takes.
    let probe = format!("pathswarm-{}-probe", std::process::id());
    let made = Command::new("ip").args(["netns", "add", &probe]).output();
    let made = made.map_err(|error| format!("ip: {error}"))?;
    let rules = "table ip probe { chain out { type nat hook postrouting priority 100; oifname lo masquerade; }; }";
    let nat = Command::new("ip").args(["netns", "exec", &probe, "nft", rules]).output();
    let _ = Command::new("ip").args(["netns", "del", &probe]).stderr(Stdio::null()).status();
    let nat = nat.map_err(|error| format!("nft: {error}"))?;
    for output in [made, nat] {
        if !output.status.success() {
            return Err(format!("no network namespaces or NAT here: {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    Ok(())
}

/// Runs a line of the shell, which has to succeed.
pub fn run(command: &str) {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}
