//! Faults, and what became of them.

use crate::report::faults::Fault;
use crate::report::folder::Run;
use crate::report::html::{paragraph, remark, table};
use crate::report::words::whole;

/// The faults of one run.
pub(in crate::report) fn of_run(run: &Run) -> String {
    let faults = &run.faults;
    if !faults.has_log {
        return remark("There is no pathswarm.log here, so faults are not known.");
    }
    let dropped: f64 = run.recorded.peers.values().map(|peer| peer.messages_dropped.total).sum();
    let dropped = if dropped > 0.0 {
        remark(&format!("{} gossip messages were dropped because a peer was slow; they are repeated.", whole(dropped)))
    } else {
        String::new()
    };
    if faults.kinds.is_empty() {
        return paragraph("The log has no warning and no error.") + &dropped;
    }
    let row = |fault: &Fault| {
        vec![
            if fault.is_error { "error" } else { "warning" }.to_owned(),
            fault.said.clone(),
            whole(fault.count as f64),
            minute(&fault.first),
            minute(&fault.last),
            fault.became().unwrap_or("the log does not say").to_owned(),
            fault.names.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = faults.kinds.iter().map(row).collect();
    let columns = ["kind", "what the log says", "#times", "first", "last", "what became of it", "the first names"];
    let mut body = table(&columns, &rows) + &dropped;
    if faults.unlisted > 0 {
        body += &remark(&format!("{} more messages of other kinds are left out.", whole(faults.unlisted as f64)));
    }
    body
}

/// A log's time to the second.
fn minute(time: &str) -> String {
    let clock = time.split_once('T').map_or(time, |(_, clock)| clock);
    clock.chars().take(8).collect()
}
