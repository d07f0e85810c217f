//! What is drawn over time, each of bounded length: `series` is the curve, of a trainer's reports; `outer_steps` are those
//! of a module; `losses` the means for `metrics.jsonl`.

pub(super) mod losses;
pub(super) mod outer_steps;
pub(super) mod series;
