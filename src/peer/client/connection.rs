//! A client of the swarm. It sends requests and fetches blobs, but serves nothing, does not listen and takes no path.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::access::authentication::{AuthenticationRequest, AuthenticationResponse};
use crate::names::{BlobRef, ModuleId, PeerKey};
use crate::network::limits::DONORS;
use crate::network::{Multiaddr, NetworkEvent, NetworkEvents, NetworkHandle, Provider, Stopped};
use crate::peer::access::signatures::signatures_hold;
use crate::protocol::wire::encoding;
use crate::protocol::wire::encoding::Framed;
use crate::protocol::{Request, Response};

/// Pending requests in all.
const AT_ONCE: usize = 16;

/// Pending requests to one peer: the network's limit.
const AT_ONCE_OF_ONE: usize = 8;

/// Peers whose addresses are remembered.
const MAX_PEERS: usize = 4_096;

pub(in crate::peer) struct Client {
    pub(in crate::peer) network: NetworkHandle,
    pub(in crate::peer) events: NetworkEvents,
    book: BTreeMap<PeerKey, Vec<Multiaddr>>,
    /// Peers that did not answer the last request at all.
    silent: BTreeSet<PeerKey>,
    next_id: u64,
    /// Shown to each peer before anything else, in a run by invitation.
    shown: Option<AuthenticationRequest>,
    /// Peers that have seen it.
    introduced: BTreeSet<PeerKey>,
}

/// What was sent for a request.
#[derive(Clone, Copy)]
enum Sent {
    /// The authentication request that must come first.
    AuthenticationRequest(usize),
    /// The request itself.
    Query(usize),
}

impl Sent {
    fn question(self) -> usize {
        match self {
            Self::AuthenticationRequest(index) | Self::Query(index) => index,
        }
    }
}

/// The outcome of a request: a response with valid signatures, or the reason why there is none.
pub(in crate::peer) type Answer = Result<Response, String>;

impl Client {
    pub(in crate::peer) fn new(
        network: NetworkHandle,
        events: NetworkEvents,
        shown: Option<AuthenticationRequest>,
    ) -> Self {
        let (book, silent, introduced) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { network, events, book, silent, next_id: 1, shown, introduced }
    }

    /// Remembers a peer's addresses. Returns whether the peer is new.
    pub(in crate::peer) fn learn(&mut self, peer: PeerKey, addresses: Vec<Multiaddr>) -> bool {
        if peer == self.network.me() || addresses.is_empty() {
            return false;
        }
        if let Some(known) = self.book.get_mut(&peer) {
            known.extend(addresses.into_iter().filter(|address| !known.contains(address)).collect::<Vec<_>>());
            known.truncate(crate::protocol::limits::MAX_ADDRESSES);
            return false;
        }
        let room = self.book.len() < MAX_PEERS;
        if room {
            self.book.insert(peer, addresses);
        }
        room
    }

    /// Whether the last request had no response at all: the peer is gone, or slow.
    pub(in crate::peer) fn is_silent(&self, peer: PeerKey) -> bool {
        self.silent.contains(&peer)
    }

    /// Forgets silent peers, unless all are. Other peers name those that are alive.
    pub(in crate::peer) fn forget_silent(&mut self) {
        if self.book.keys().any(|peer| !self.silent.contains(peer)) {
            let silent = std::mem::take(&mut self.silent);
            self.book.retain(|peer, _| !silent.contains(peer));
        }
    }

    /// All known peers.
    pub(in crate::peer) fn peers(&self) -> Vec<PeerKey> {
        self.book.keys().copied().collect()
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Sends these requests, some at a time. Answers are in the order of the requests.
    pub(in crate::peer) async fn ask_each(&mut self, questions: &[(PeerKey, Request)]) -> Result<Vec<Answer>, Stopped> {
        let mut answers: Vec<Answer> = vec![Err("not asked".to_owned()); questions.len()];
        let mut waiting: VecDeque<usize> = (0..questions.len()).collect();
        let mut under_way: BTreeMap<u64, Sent> = BTreeMap::new();
        loop {
            while under_way.len() < AT_ONCE
                && let Some(index) = next(&mut waiting, &under_way, questions)
            {
                match self.send_next(index, &questions[index]) {
                    Ok((id, sent)) => drop(under_way.insert(id, sent)),
                    Err(reason) => answers[index] = Err(reason),
                }
            }
            if under_way.is_empty() {
                return Ok(answers);
            }
            let event = self.events.next().await.ok_or(Stopped)?;
            if let NetworkEvent::Response { id, result, .. } = event
                && let Some(sent) = under_way.remove(&id)
            {
                let index = sent.question();
                let (peer, _) = questions[index];
                match &result {
                    Ok(_) => drop(self.silent.remove(&peer)),
                    Err(_) => drop(self.silent.insert(peer)),
                }
                if matches!(sent, Sent::AuthenticationRequest(_)) && result.is_ok() {
                    // Admitted or not: the request is answered or refused.
                    self.introduced.insert(peer);
                    waiting.push_front(index);
                    continue;
                }
                answers[index] = result.map_err(|error| error.to_string()).and_then(|bytes| read(&bytes));
                if answers[index].is_err() {
                    // A peer that has restarted has forgotten us.
                    self.introduced.remove(&peer);
                }
            }
        }
    }

    /// Sends the authentication request first, if needed, else the request.
    fn send_next(&mut self, index: usize, (to, request): &(PeerKey, Request)) -> Result<(u64, Sent), String> {
        match &self.shown {
            Some(request) if !self.introduced.contains(to) => {
                let request = request.clone();
                Ok((self.send(*to, &request)?, Sent::AuthenticationRequest(index)))
            }
            _ => Ok((self.send(*to, request)?, Sent::Query(index))),
        }
    }

    fn send<T: Framed>(&mut self, to: PeerKey, request: &T) -> Result<u64, String> {
        let bytes = encoding::encode(request).map_err(|error| error.to_string())?;
        let id = self.new_id();
        let addresses = self.book.get(&to).cloned().unwrap_or_default();
        self.network.request(id, to, addresses, bytes).map_err(|error| error.to_string())?;
        Ok(id)
    }

    /// Presents the credential to a peer that has not seen it.
    async fn introduce(&mut self, to: PeerKey) -> Result<(), Stopped> {
        let Some(request) = self.shown.clone().filter(|_| !self.introduced.contains(&to)) else { return Ok(()) };
        let Ok(wanted) = self.send(to, &request) else { return Ok(()) };
        loop {
            match self.events.next().await.ok_or(Stopped)? {
                NetworkEvent::Response { id, result, .. } if id == wanted => {
                    if result.is_ok() {
                        self.introduced.insert(to);
                    }
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// Fetches a blob into the store from the peers that have it.
    pub(in crate::peer) async fn fetch(
        &mut self,
        blob: BlobRef,
        from: &[PeerKey],
    ) -> Result<Result<(), String>, Stopped> {
        let mut reason = "no peer has it".to_owned();
        for some in from.chunks(DONORS) {
            for peer in some {
                self.introduce(*peer).await?;
            }
            let wanted = self.new_id();
            let holders = some.iter().map(|peer| (*peer, self.book.get(peer).cloned().unwrap_or_default())).collect();
            if let Err(error) = self.network.fetch(wanted, blob, holders) {
                reason = error.to_string();
                continue;
            }
            let result = loop {
                match self.events.next().await.ok_or(Stopped)? {
                    NetworkEvent::Fetched { id, result, .. } if id == wanted => break result,
                    _ => {}
                }
            };
            match result {
                Ok(()) => return Ok(Ok(())),
                Err(error) => reason = error.to_string(),
            }
        }
        Ok(Err(reason))
    }

    /// Peers that claim in Kademlia to be members of a module.
    pub(in crate::peer) async fn providers_of(&mut self, module: ModuleId) -> Result<Vec<Provider>, Stopped> {
        let wanted = self.new_id();
        if self.network.find_providers(wanted, module).is_err() {
            return Ok(Vec::new());
        }
        loop {
            match self.events.next().await.ok_or(Stopped)? {
                NetworkEvent::Providers { id, providers, .. } if id == wanted => return Ok(providers),
                _ => {}
            }
        }
    }
}

/// The next request to a peer below its limit.
fn next(
    waiting: &mut VecDeque<usize>,
    under_way: &BTreeMap<u64, Sent>,
    questions: &[(PeerKey, Request)],
) -> Option<usize> {
    let busy = |peer: PeerKey| {
        under_way.values().filter(|sent| questions[sent.question()].0 == peer).count() >= AT_ONCE_OF_ONE
    };
    let place = waiting.iter().position(|index| !busy(questions[*index].0))?;
    waiting.remove(place)
}

fn read(bytes: &[u8]) -> Answer {
    if let Ok(AuthenticationResponse::NotInvited(reason)) = encoding::decode(bytes) {
        return Err(reason);
    }
    match encoding::decode::<Response>(bytes) {
        Ok(Response::Refused(reason)) => Err(reason),
        Ok(response) if signatures_hold(&response) => Ok(response),
        Ok(_) => Err("it answered with an update that its owner has not signed".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::BlobRef;
    use crate::network::Identity;
    use crate::protocol::limits::MAX_CONTROL_BYTES;
    use crate::protocol::module::chain::{Chain, made_up};

    #[test]
    fn only_an_answer_with_its_owners_signatures_is_an_answer() {
        let owner = Identity::generate();
        let mut signed = made_up::next(&Chain::genesis(BlobRef::of(b"genesis")), 0, 5);
        signed.update.owner = owner.key();
        signed.signature = owner.sign(&encoding::encode(&signed.update).unwrap()).to_vec();
        let answer = |signed| read(&encoding::encode(&Response::Snapshot(vec![signed])).unwrap());
        assert!(matches!(answer(signed.clone()), Ok(Response::Snapshot(_))));
        let mut forged = signed.clone();
        forged.update.version = forged.update.version.next();
        assert!(answer(forged).unwrap_err().contains("has not signed"));
        signed.signature.clear();
        assert!(answer(signed).unwrap_err().contains("has not signed"));
    }

    #[test]
    fn a_refusal_and_rubbish_are_no_answers() {
        let refused = encoding::encode(&Response::Refused("not mine".to_owned())).unwrap();
        assert_eq!(read(&refused), Err("not mine".to_owned()));
        assert!(read(b"rubbish").is_err());
        assert!(read(&vec![0; MAX_CONTROL_BYTES + 1]).is_err());
    }
}
