//! Several peers on loopback, as processes: started, killed, frozen, started again, and listened to.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use serde_json::Value;

use super::run::{Peer, RUN, TIMEOUT, World, unhurried};

/// As many peers as the grid of [`run_of_eight`] has paths.
pub const EIGHT: usize = 8;

/// A run of a 4×2 grid, so that each of eight peers has a path, and each module several members.
pub fn run_of_eight(inner_steps: u64, phases: u64) -> String {
    RUN.replacen("experts = 2", "experts = 4", 1)
        .replace("inner_steps = 400", &format!("inner_steps = {inner_steps}"))
        .replace("phases = 12", &format!("phases = {phases}"))
}

/// Where a peer lives, and the peer, unless it is dead.
struct Home {
    folder: PathBuf,
    peer: Option<Peer>,
    frozen: bool,
    /// With what it was created with; after that is lost, it comes back like any other.
    creator: bool,
}

/// Peers of one run, which take their time. The first is its creator.
pub struct Swarm {
    pub world: World,
    homes: Vec<Home>,
    /// Whether newcomers bring the text, as the creator does.
    own_text: bool,
    /// Further arguments of everybody.
    further: Vec<&'static str>,
    /// Further arguments of the creator: the model or the run that this one begins with.
    origin: Vec<String>,
}

impl Swarm {
    /// The creator, and then all others at once.
    pub fn start(run: &str, peers: usize) -> Self {
        Self::start_on(World::of(run, peers as u64), peers)
    }

    /// The same, of a run and a corpus that are there.
    pub fn start_on(world: World, peers: usize) -> Self {
        Self::begin(world, peers, (false, &[]), Vec::new())
    }

    /// The creator, and then all others at once, with these further arguments.
    pub fn start_with(run: &str, peers: usize, further: &[&'static str]) -> Self {
        Self::begin(World::of(run, peers as u64), peers, (false, further), Vec::new())
    }

    /// The same, where everybody brings the corpus.
    pub fn start_with_own_text(world: World, peers: usize) -> Self {
        Self::begin(world, peers, (true, &[]), Vec::new())
    }

    /// The same, of a run that begins with a model in a folder of the creator's.
    pub fn start_beside(world: World, ancestor: String, peers: usize) -> Self {
        Self::begin(world, peers, (false, &[]), vec!["--ancestor".to_owned(), ancestor])
    }

    /// The same, of a run that goes on from a collected one.
    pub fn start_from(world: World, earlier: String, peers: usize) -> Self {
        Self::begin(world, peers, (false, &[]), vec!["--from".to_owned(), earlier])
    }

    fn begin(world: World, peers: usize, (own_text, further): (bool, &[&'static str]), origin: Vec<String>) -> Self {
        let folder = |number| world.path(&format!("peer-{number}"));
        let home = |number| Home { folder: folder(number), peer: None, frozen: false, creator: number == 0 };
        let homes = (0..peers).map(home);
        let mut swarm = Self { homes: homes.collect(), world, own_text, further: further.to_vec(), origin };
        swarm.found();
        let creator = swarm.homes[0].peer.as_mut().unwrap();
        let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
        for number in 1..peers {
            swarm.join(number, &address);
        }
        swarm
    }

    fn found(&mut self) {
        let command = ["found", &self.world.config, "--corpus", &self.world.corpus, "--share-text"];
        let command = if self.own_text { &command[..4] } else { &command[..] };
        let origin: Vec<&str> = self.origin.iter().map(String::as_str).collect();
        let command = [command, &origin, &self.further].concat();
        let home = &mut self.homes[0];
        home.peer = Some(Peer::start(&home.folder, &unhurried(&command)));
    }

    fn join(&mut self, number: usize, address: &str) {
        let home = &mut self.homes[number];
        let command = ["join", address, "--corpus", &self.world.corpus];
        let command = if self.own_text { &command[..] } else { &command[..2] };
        let command = [command, &self.further].concat();
        home.peer = Some(Peer::start(&home.folder, &unhurried(&command)));
    }

    pub fn folder(&self, number: usize) -> PathBuf {
        self.homes[number].folder.clone()
    }

    pub fn folders(&self) -> Vec<PathBuf> {
        self.homes.iter().map(|home| home.folder.clone()).collect()
    }

    /// Without a word, as kill -9 does.
    pub fn kill(&mut self, number: usize) {
        self.homes[number].peer.take().unwrap().kill();
    }

    /// As its user would start it: the creator with what it was created with while its folder has that, everybody else
    /// with the address of a peer that runs.
    pub fn restart(&mut self, number: usize) {
        let home = &mut self.homes[number];
        home.creator &= home.folder.join("store").exists();
        if home.creator {
            return self.found();
        }
        let statuses = self.statuses();
        let address = statuses.iter().find_map(|status| status["addresses"][0].as_str()).expect("nobody can be joined");
        self.join(number, address);
    }

    pub fn freeze(&mut self, number: usize) {
        self.homes[number].frozen = true;
        self.homes[number].peer.as_ref().unwrap().signal("STOP");
    }

    pub fn thaw(&mut self, number: usize) {
        self.homes[number].frozen = false;
        self.homes[number].peer.as_ref().unwrap().signal("CONT");
    }

    fn awake(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.homes.iter_mut().filter(|home| !home.frozen).filter_map(|home| home.peer.as_mut())
    }

    /// Waits until somebody says something.
    pub fn listen(&mut self) {
        let mut awake = self.awake();
        awake.next().expect("nobody is awake").catch_up();
        awake.for_each(Peer::pass_over);
    }

    /// What those say that are awake and have opened their doors.
    pub fn statuses(&mut self) -> Vec<Value> {
        self.awake().filter_map(|peer| peer.status()).collect()
    }

    /// The peer that lives in a folder.
    pub fn key(&mut self, number: usize) -> Option<String> {
        Some(self.homes[number].peer.as_ref()?.status()?["peer"].as_str()?.to_owned())
    }

    /// Listens until all who are awake answer, and what they say satisfies the condition.
    #[expect(clippy::disallowed_methods, reason = "patience has an end")]
    pub fn until(&mut self, what: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let began = Instant::now();
        loop {
            let (statuses, awake) = (self.statuses(), self.awake().count());
            if statuses.len() == awake && holds(&statuses) {
                return statuses;
            }
            assert!(began.elapsed() < TIMEOUT, "never: {what}; the last seen: {}", summary(&statuses));
            self.listen();
        }
    }
}

/// The modules of a status.
pub fn modules(status: &Value) -> &[Value] {
    status["modules"].as_array().map_or(&[], Vec::as_slice)
}

pub fn module_names(statuses: &[Value]) -> BTreeSet<String> {
    statuses.iter().flat_map(modules).filter_map(|module| Some(module["module"].as_str()?.to_owned())).collect()
}

pub fn newest(statuses: &[Value]) -> u64 {
    statuses.iter().flat_map(modules).filter_map(|module| module["version"].as_u64()).max().unwrap_or(0)
}

/// Whether members of a module have the same state of the same version.
pub fn agree(statuses: &[Value]) -> bool {
    let mut heads: BTreeMap<&str, BTreeSet<(u64, &str)>> = BTreeMap::new();
    for module in statuses.iter().flat_map(modules) {
        let (Some(version), Some(state)) = (module["version"].as_u64(), module["state_hash"].as_str()) else {
            return false;
        };
        heads.entry(module["module"].as_str().unwrap()).or_default().insert((version, state));
    }
    let versions =
        |seen: &BTreeSet<(u64, &str)>| seen.iter().map(|(version, _)| *version).collect::<BTreeSet<_>>().len();
    heads.values().all(|seen| seen.len() == versions(seen))
}

/// Who trains which path, standbys left out.
pub fn holders(statuses: &[Value]) -> Vec<(u64, String)> {
    let mut held = Vec::new();
    for status in statuses {
        for path in status["paths"].as_array().into_iter().flatten().filter(|path| path["stage"] != "standby") {
            held.push((path["path"].as_u64().unwrap(), status["peer"].as_str().unwrap().to_owned()));
        }
    }
    held.sort();
    held
}

/// A line for each peer: enough to see what is amiss.
pub fn summary(statuses: &[Value]) -> String {
    let mut lines = String::new();
    for status in statuses {
        lines += &format!("\n{:.8} of run {:.8}:", status["peer"].as_str().unwrap(), status["run"].as_str().unwrap());
        lines += &format!(" waits for {};", status["waits_for"]);
        for path in status["paths"].as_array().into_iter().flatten() {
            lines += &format!(" path {} {} {} {};", path["path"], path["stage"], path["phase"], path["waits_for"]);
        }
        for module in modules(status) {
            let owner = module["owner"].as_str().unwrap_or("nobody");
            let (name, version, term) = (&module["module"], &module["version"], &module["term"]);
            lines += &format!(" {name} v{version} term {term} of {owner:.8},");
        }
    }
    lines
}
