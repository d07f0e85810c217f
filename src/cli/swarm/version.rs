//! `pathswarm version`: what tells whether two programs can train in one run, and read each other's files.

use clap::Args;
use serde_json::json;

use crate::cli::swarm::Globals;
use crate::config::admission::program_version;
use crate::peer::manifest::FORMAT_VERSION;
use crate::protocol::wire::encoding::WIRE_VERSION;
use crate::store::JOURNAL_VERSION;

/// Print the versions of this program, of its messages and of its files.
#[derive(Args)]
pub struct Version {}

impl Version {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let (program, output) = (program_version().to_string(), globals.output());
        output.text(&format!(
            "pathswarm {program}\nmessages: version {WIRE_VERSION}\nmanifest and outer arithmetic: version \
             {FORMAT_VERSION}\njournal: version {JOURNAL_VERSION}"
        ))?;
        Ok(output.json(&json!({
            "event": "result", "program": program, "wire_version": WIRE_VERSION, "format_version": FORMAT_VERSION,
            "journal_version": JOURNAL_VERSION,
        }))?)
    }
}
