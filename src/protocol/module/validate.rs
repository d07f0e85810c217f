//! Checks whether an honest owner could have made an update, as far as a member can tell without the bytes.

use crate::config::OuterMode;
use crate::protocol::RunPlan;
use crate::protocol::limits::{FULL_WEIGHT, MAX_CONTRIBUTIONS, MAX_RIVALS, VERSIONS_KEPT};
use crate::protocol::module::chain::Chain;
use crate::protocol::reputation::norm_cap;
use crate::protocol::reputation::norm_cap::NO_NORM;
use crate::protocol::wire::message::{Counted, GENESIS, Head, SignedUpdate, Update};

/// The least number of updates in a chain that does not begin at genesis. Members keep twice as many, and a rollback may
/// take some.
const LEAST_KEPT: u64 = VERSIONS_KEPT / 2;

/// Checks an update that should come directly after the chain's head, and says what is wrong with it.
pub(in crate::protocol) fn check_update(plan: &RunPlan, chain: &Chain, update: &Update) -> Result<(), String> {
    let head = chain.head();
    let contributions = &update.contributions;
    if !chain.fits(update) {
        return Err("it does not follow the head".to_owned());
    }
    if chain.signer().is_some_and(|(term, _)| update.term < term) {
        return Err("its term is lower than that of its parent".to_owned());
    }
    if plan.is_done(update.module, head) {
        return Err(format!("the module is done with version {}", head.version));
    }
    check_contributions(plan, chain, update)?;
    let reference = norm_cap::reference(chain.running_norm(), contributions.iter().map(|counted| counted.norm));
    let made: Vec<_> = contributions.iter().map(|counted| (counted.path, counted.parent, counted.steps)).collect();
    let shared = plan.shared_weights(update.module, chain, &made);
    let mut weight = head.weight;
    for (counted, most) in contributions.iter().zip(shared) {
        // Where the chain here is too short, it is not known what the path's other trainers have had counted.
        let knows = chain.knows_all_since(counted.parent) || plan.mode == OuterMode::Asynchronous;
        let uncapped = if knows { most } else { counted.uncapped.clamp(1, most) };
        check_weight(plan, counted, (uncapped, reference))?;
        weight = weight.saturating_add(u64::from(counted.weight));
    }
    if update.weight != weight {
        return Err(format!("its total weight is {}, not {weight}", update.weight));
    }
    let norm = plan.running_norm(chain.running_norm(), update.module, contributions);
    if update.norm != norm {
        return Err(format!("its running norm is {:#x}, not {norm:#x}", update.norm));
    }
    if update.state.bytes != head.state.bytes {
        return Err(format!("its state has {} bytes, not {}", update.state.bytes, head.state.bytes));
    }
    if update.average.bytes > plan.average_bytes(update.module) {
        return Err(format!("its average has {} bytes", update.average.bytes));
    }
    Ok(())
}

/// Checks which contributions an update counts, given the updates before it as far as they are known.
fn check_contributions(plan: &RunPlan, chain: &Chain, update: &Update) -> Result<(), String> {
    let contributions = &update.contributions;
    if contributions.is_empty() || contributions.len() > MAX_CONTRIBUTIONS {
        return Err(format!("it counts {} contributions", contributions.len()));
    }
    if !contributions.windows(2).all(|pair| pair[0].key() < pair[1].key()) {
        return Err("its contributions are not in order, each once".to_owned());
    }
    if contributions.iter().any(|counted| counted.norm >= NO_NORM) {
        return Err("the norm of a contribution is invalid".to_owned());
    }
    contributions.iter().try_for_each(|counted| check_counted(plan, chain, update, counted))
}

fn check_counted(plan: &RunPlan, chain: &Chain, update: &Update, counted: &Counted) -> Result<(), String> {
    let Counted { path, parent, .. } = *counted;
    if !plan.contributes(path, parent, update.module) {
        return Err(format!("path {path} does not go through module {}", update.module));
    }
    let staleness = update.version.0.saturating_sub(1).checked_sub(parent.0);
    if staleness.is_none_or(|staleness| staleness >= VERSIONS_KEPT) {
        return Err(format!("it counts a contribution to version {parent}"));
    }
    if !plan.can_make(counted.steps) {
        return Err(format!("the contribution of path {path} has {} inner steps", counted.steps));
    }
    if counted.blob.bytes > plan.offer_bytes(update.module) {
        return Err(format!("the contribution of path {path} has {} bytes", counted.blob.bytes));
    }
    if chain.has_counted(counted.key()) {
        return Err(format!("it counts a contribution of path {path} to version {parent} again"));
    }
    let of_path = update.contributions.of_path(path).iter();
    let here = of_path.filter(|other| other.parent == parent).count();
    if here + chain.times_counted(path, parent) > MAX_RIVALS {
        return Err(format!("it counts more than {MAX_RIVALS} contributions of path {path} to version {parent}"));
    }
    Ok(())
}

/// Checks a contribution's weight, given what it is before its norm is looked at and the norm's reference.
fn check_weight(plan: &RunPlan, counted: &Counted, (uncapped, reference): (u32, u32)) -> Result<(), String> {
    let path = counted.path;
    let expected = norm_cap::capped_weight(uncapped, counted.norm, reference, plan.norm_cap);
    if (counted.uncapped, counted.weight) != (uncapped, expected) {
        let Counted { uncapped: said, weight, .. } = counted;
        return Err(format!("path {path} has weight {weight} of {said} in it, not {expected} of {uncapped}"));
    }
    Ok(())
}

/// Checks whether a chain from another peer can belong to this run. The bounds come first, so that no sum below
/// overflows, then each update against the one before it. The weights in the oldest update are trusted, unless it is the
/// first of the module.
///
/// # Errors
/// The reason why the chain is impossible.
pub fn check_chain(plan: &RunPlan, genesis: Head, chain: &Chain) -> Result<(), String> {
    let Some(oldest) = chain.recent().next() else { return Ok(()) };
    let most_in_update = MAX_CONTRIBUTIONS as u64 * u64::from(FULL_WEIGHT);
    for signed in chain.recent() {
        let update = &signed.update;
        let plausible = plan.is_plausible(oldest.update.module, update.version, update.weight, most_in_update)
            && update.state.bytes == genesis.state.bytes
            && update.module == oldest.update.module;
        if !plausible {
            return Err(format!("version {} of its chain cannot be", update.version));
        }
    }
    let mut seen = Chain::genesis(genesis.state);
    let mut updates = chain.recent();
    if chain.base().0 > 0 {
        let kept = chain.recent().count() as u64;
        if kept < LEAST_KEPT {
            return Err(format!("it has only {kept} of the updates before version {}", chain.head().version));
        }
        check_contributions(plan, &seen, &oldest.update)?;
        let first: Vec<SignedUpdate> = updates.next().cloned().into_iter().collect();
        seen = Chain::of(first).ok_or("its chain is inconsistent")?;
    } else if oldest.update.parent != GENESIS {
        return Err("its chain does not begin at genesis".to_owned());
    }
    for signed in updates {
        check_update(plan, &seen, &signed.update)?;
        seen.push(signed.clone());
    }
    Ok(())
}
