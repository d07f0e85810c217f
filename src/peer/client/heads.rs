//! The heads of modules, as reported by holders and signed by owners.

use std::collections::BTreeMap;

use crate::names::{ModuleId, PeerKey};
use crate::network::Stopped;
use crate::peer::client::connection::{Answer, Client};
use crate::peer::client::directory::Directory;
use crate::protocol::limits::VERSIONS_KEPT;
use crate::protocol::module::chain::Chain;
use crate::protocol::wire::message::Head;
use crate::protocol::{Request, Response, RunPlan, check_chain};

/// Holders of a module whose heads are compared.
const COMPARED: usize = 4;

/// Rounds of asking that many more.
const WAVES: usize = 8;

/// For each module, the heads of several holders, best first. `reasons` gets the last error of a module.
pub(in crate::peer) async fn heads(
    client: &mut Client,
    directory: &Directory,
    plan: &RunPlan,
    modules: &[ModuleId],
    reasons: &mut BTreeMap<ModuleId, String>,
) -> Result<BTreeMap<ModuleId, Vec<(Head, PeerKey)>>, Stopped> {
    let mut heads: BTreeMap<ModuleId, Vec<(Head, PeerKey)>> = BTreeMap::new();
    let holders: BTreeMap<ModuleId, Vec<PeerKey>> =
        modules.iter().map(|module| (*module, directory.holders(plan, *module))).collect();
    // Reports of holders may be wrong, so further ones are asked.
    for wave in 0..WAVES {
        let mut questions = Vec::new();
        for (module, holders) in holders.iter().filter(|(module, _)| !heads.contains_key(module)) {
            let ask = |peer: &PeerKey| (*peer, Request::CatchUp { module: *module, from: None });
            questions.extend(holders.iter().skip(wave * COMPARED).take(COMPARED).map(ask));
        }
        if questions.is_empty() {
            break;
        }
        let answers = client.ask_each(&questions).await?;
        for ((peer, request), answer) in questions.iter().zip(answers) {
            let Request::CatchUp { module, .. } = request else { continue };
            match attested(plan, *module, answer) {
                Ok(head) => heads.entry(*module).or_default().push((head, *peer)),
                Err(reason) => drop(reasons.insert(*module, format!("peer …{}: {reason}", peer.short()))),
            }
        }
    }
    heads.values_mut().for_each(|heads| best_first(heads));
    Ok(heads)
}

/// Puts the best head first: the one that wins where chains meet, which within one chain is the newest.
pub(in crate::peer) fn best_first<T>(candidates: &mut [(Head, T)]) {
    candidates.sort_by(|(a, _), (b, _)| b.weight.cmp(&a.weight).then_with(|| a.update.cmp(&b.update)));
}

/// The head that a response attests, if an honest peer could have given it.
fn attested(plan: &RunPlan, module: ModuleId, answer: Answer) -> Result<Head, String> {
    let Response::Snapshot(updates) = answer? else { return Err("it sent an unexpected answer".to_owned()) };
    let genesis = plan.genesis.get(&module).map(|state| Chain::genesis(*state)).ok_or("the run has no such module")?;
    if updates.len() as u64 > VERSIONS_KEPT || updates.iter().any(|signed| signed.update.module != module) {
        return Err("it answered with another module's updates, or too many".to_owned());
    }
    if updates.is_empty() {
        return Ok(genesis.head());
    }
    let chain = Chain::of(updates).ok_or("its updates do not follow each other")?;
    check_chain(plan, genesis.head(), &chain)?;
    Ok(chain.head())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OuterMode;
    use crate::grid::{Grid, Sharing};
    use crate::names::{BlobHash, BlobRef, Version};
    use crate::protocol::module::chain::made_up;

    const MODULE: ModuleId = ModuleId { level: 0, expert: 0 };

    #[test]
    fn only_an_unbroken_chain_of_the_module_attests_a_head() {
        let genesis = BlobRef { bytes: 100, ..BlobRef::of(b"genesis") };
        let plan = RunPlan {
            slots: Grid::new(vec![Sharing::Shared]).unwrap().into(),
            mode: OuterMode::Synchronous,
            phases: 3,
            inner_steps: 8,
            streaming: None,
            reshard: Vec::new(),
            weights: vec![5],
            genesis: [(MODULE, genesis)].into(),
            offer_bytes: vec![100],
            average_bytes: vec![100],
            norm_cap: 0.0,
            audit_share: 0.0,
            centred_clipping: false,
            deterministic: false,
        };
        let mut chain = Chain::genesis(genesis);
        for _ in 0..3 {
            chain.push(made_up::next(&chain, 0, 5));
        }
        let updates: Vec<_> = chain.recent().cloned().collect();
        let head = |updates: &[_]| attested(&plan, MODULE, Ok(Response::Snapshot(updates.to_vec())));
        assert_eq!(head(&updates), Ok(chain.head()));
        assert_eq!(head(&[]).map(|head| head.state), Ok(genesis));
        assert!(head(&[updates[0].clone(), updates[2].clone()]).unwrap_err().contains("do not follow"));
        let mut foreign = updates.clone();
        foreign[1].update.module = ModuleId { level: 0, expert: 1 };
        assert!(head(&foreign).unwrap_err().contains("another module"));
        let mut huge = updates.clone();
        huge[2].update.state.bytes = 1 << 60;
        assert!(head(&huge).unwrap_err().contains("cannot be"));
        chain.push(made_up::next(&chain, 0, 5));
        let beyond: Vec<_> = chain.recent().cloned().collect();
        assert!(head(&beyond).unwrap_err().contains("cannot be"), "the run has three phases");
        assert!(attested(&plan, MODULE, Ok(Response::Replay(updates))).is_err());
        assert_eq!(attested(&plan, MODULE, Err("gone".to_owned())), Err("gone".to_owned()));
    }

    #[test]
    fn the_heavier_chain_comes_first_then_the_smaller_hash() {
        let head = |version, weight, update| Head {
            version: Version(version),
            update: BlobHash([update; 32]),
            state: BlobRef::of(b""),
            weight,
        };
        let mut candidates = [(head(9, 5, 3), 'd'), (head(2, 5, 1), 'c'), (head(1, 9, 0), 'a'), (head(2, 6, 4), 'b')];
        best_first(&mut candidates);
        assert_eq!(candidates.map(|(_, name)| name), ['a', 'b', 'c', 'd']);
    }
}
