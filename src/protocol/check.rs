//! Whether an update is what an honest owner could have made, as far as a member can tell without the bytes.

use super::RunPlan;
use super::limits::{MAX_CONTRIBUTIONS, VERSIONS_KEPT};
use super::message::{Head, Update};

/// The parent an update names must be `head`; then this says what else is wrong with it.
pub(super) fn check_update(plan: &RunPlan, head: Head, update: &Update) -> Result<(), String> {
    let contributions = &update.contributions;
    if contributions.is_empty() || contributions.len() > MAX_CONTRIBUTIONS {
        return Err(format!("it counts {} contributions", contributions.len()));
    }
    if !contributions.windows(2).all(|pair| (pair[0].path, pair[0].parent) < (pair[1].path, pair[1].parent)) {
        return Err("its contributions are not in order, each once".to_owned());
    }
    let level = usize::from(update.module.level);
    let mut weight = head.weight;
    for counted in contributions {
        let through = counted.path.0 < plan.grid.path_count()
            && plan.grid.modules_of(counted.path).get(level) == Some(&update.module);
        if !through {
            return Err(format!("path {} does not go through module {}", counted.path, update.module));
        }
        let staleness = update.version.0.saturating_sub(1).checked_sub(counted.parent.0);
        let Some(staleness) = staleness.filter(|staleness| *staleness < VERSIONS_KEPT) else {
            return Err(format!("it counts a contribution to version {}", counted.parent));
        };
        let expected = plan.weight(counted.path, staleness);
        if counted.weight != expected {
            return Err(format!("path {} has weight {} in it, not {expected}", counted.path, counted.weight));
        }
        weight += u64::from(counted.weight);
    }
    if update.weight != weight {
        return Err(format!("its total weight is {}, not {weight}", update.weight));
    }
    if update.state.bytes != head.state.bytes {
        return Err(format!("its state has {} bytes, not {}", update.state.bytes, head.state.bytes));
    }
    if update.average.bytes > plan.frame_bytes[level] {
        return Err(format!("its average has {} bytes", update.average.bytes));
    }
    Ok(())
}
