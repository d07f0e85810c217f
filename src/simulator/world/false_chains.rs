//! Byzantine peers that announce a head of their own making, and answer requests for it with a chain to match.

use crate::compress::frame;
use crate::names::{BlobRef, ModuleId, Phase, Term};
use crate::outer::{Share, step};
use crate::protocol::Response;
use crate::protocol::limits::VERSIONS_KEPT;
use crate::protocol::module::chain::{Chain, head_of};
use crate::protocol::wire::message::{Counted, Heartbeat, SignedUpdate, Update};
use crate::simulator::scenario::byzantine::Byzantine;
use crate::simulator::world::World;
use crate::simulator::world::actions::sign;

impl World {
    /// The heartbeat of a Byzantine peer, with the head of a chain that it makes up.
    pub(super) fn with_false_head(
        &mut self,
        index: usize,
        attack: Byzantine,
        module: ModuleId,
        heartbeat: &Heartbeat,
    ) -> Heartbeat {
        let mut chains = self.peers[index].node.chains();
        let chain = chains.find(|(of, _)| *of == module).map(|(_, chain)| chain.clone());
        drop(chains);
        let forged = chain.and_then(|chain| match attack {
            Byzantine::FalseSnapshot => {
                let stem = self.stem(index, module, &chain);
                self.false_snapshot(index, module, stem)
            }
            _ => Some(vec![self.false_extension(index, module, &chain)?]),
        });
        let head = forged.as_ref().and_then(|forged| head_of(&forged.last()?.update));
        let Some(forged) = forged.filter(|_| head.is_some()) else { return heartbeat.clone() };
        self.forged.insert((index, module), forged);
        Heartbeat { head, ..heartbeat.clone() }
    }

    /// What a Byzantine peer answers to a request for its chain.
    pub(super) fn false_answer(&self, index: usize, module: Option<ModuleId>, response: Response) -> Response {
        let forged = module.and_then(|module| self.forged.get(&(index, module))).cloned();
        match (self.behaviour(index), forged) {
            (Some(Byzantine::FalseSnapshot), Some(updates)) => Response::Snapshot(updates),
            (Some(Byzantine::FalseExtension), Some(updates)) => Response::Replay(updates),
            (Some(Byzantine::FalseHead), Some(_)) => Response::Refused("not now".to_owned()),
            _ => response,
        }
    }

    /// What a made-up chain begins with: the peer's own, at odd versions without its last update. Such a chain extends nobody's.
    fn stem(&self, index: usize, module: ModuleId, chain: &Chain) -> Chain {
        let head = chain.head();
        let genesis = self.plan.genesis[&module];
        let before = chain.before(head.update, genesis).filter(|_| !head.version.0.is_multiple_of(2));
        let readable = before.filter(|before| self.peers[index].disk.get(before.head().state.hash).is_some());
        readable.unwrap_or_else(|| chain.clone())
    }

    /// A whole chain to the last version of the module, of which the updates after the head are made up. Its state can be
    /// read in every other module.
    fn false_snapshot(&mut self, index: usize, module: ModuleId, mut chain: Chain) -> Option<Vec<SignedUpdate>> {
        let forged = VERSIONS_KEPT.min(self.plan.phases.saturating_sub(chain.head().version.0));
        for ahead in (0..forged).rev() {
            let SignedUpdate { mut update, .. } = self.false_extension(index, module, &chain)?;
            if ahead == 0 && module.expert.is_multiple_of(2) {
                update.state = self.peers[index].disk.put(vec![0xff; usize::try_from(update.state.bytes).ok()?]);
            }
            chain.push(SignedUpdate { signature: sign(&update), update });
        }
        (forged > 0).then(|| chain.updates())
    }

    /// A valid update after the head that counts contributions which nobody made.
    fn false_extension(&mut self, index: usize, module: ModuleId, chain: &Chain) -> Option<SignedUpdate> {
        let (head, values, outer) = (chain.head(), self.scenario.swarm.values, self.outer.clone());
        let average = frame::encode(outer.average_codec(), &vec![1.0; values]).ok()?;
        let blob = BlobRef::of(&average);
        let through = self.plan.slots.through(module, Phase(head.version.0));
        let steps = self.plan.inner_steps as u32;
        let weights = self.plan.expected_weights((module, head.version), through);
        let counted = weights.into_iter().map(|(path, weight)| Counted {
            path,
            parent: head.version,
            steps,
            uncapped: weight,
            weight,
            norm: 0,
            blob,
        });
        let contributions: Vec<Counted> = counted.collect();
        let portion = self.plan.portion(module, &contributions);
        let disk = &mut self.peers[index].disk;
        let share = Share::new(portion.weight, portion.full_weight);
        let state = step::apply(disk.get(head.state.hash)?, module, values, &average, share, &outer).ok()?;
        let (average, state) = (disk.put(average), disk.put(state));
        let update = Update {
            module,
            term: chain.signer().map_or(Term(1), |(term, _)| term),
            owner: self.peers[index].key,
            version: head.version.next(),
            parent: head.update,
            norm: self.plan.running_norm(chain.running_norm(), module, &contributions),
            weight: head.weight + portion.weight,
            contributions: contributions.into(),
            average,
            state,
        };
        Some(SignedUpdate { signature: sign(&update), update })
    }
}
