//! Settings, hashes, and how others join or use the run.

use crate::report::folder::{Kind, ModuleVersion, Run};
use crate::report::html::{folded, paragraph, remark, table, verbatim};

/// Modules that are listed.
const MOST_MODULES: usize = 512;

/// All settings, as a configuration has them.
pub(in crate::report) fn settings(run: &Run) -> String {
    match toml::to_string(&run.manifest.config) {
        Ok(settings) => folded("All settings, as a configuration file", &verbatim(&settings)),
        Err(error) => remark(&format!("The settings cannot be written: {error}.")),
    }
}

/// What the run and its parts are, whoever has them.
pub(in crate::report) fn hashes(run: &Run) -> String {
    let manifest = &run.manifest;
    let parts = [
        ("run", run.id.to_string()),
        ("text", manifest.corpus.to_string()),
        ("test text", manifest.test_corpus.to_string()),
        ("tokenizer", manifest.tokenizer.hash.to_string()),
        ("router", manifest.router.hash.to_string()),
        ("ancestor", manifest.ancestor.hash.to_string()),
    ];
    let rows: Vec<Vec<String>> = parts.into_iter().map(|(name, hash)| vec![name.to_owned(), hash]).collect();
    let mut body = paragraph("BLAKE3. Whoever has the same hash has the same bytes.") + &table(&["of", "hash"], &rows);
    if run.modules.is_empty() {
        return body + &remark("Versions of modules were not recorded here.");
    }
    let row = |module: &ModuleVersion| {
        vec![
            module.name.clone(),
            module.version.map_or_else(|| "–".to_owned(), |version| version.to_string()),
            module.parameters.clone().unwrap_or_else(|| "not known here".to_owned()),
        ]
    };
    let rows: Vec<Vec<String>> = run.modules.iter().take(MOST_MODULES).map(row).collect();
    body += &table(&["module", "#version", "hash of its parameters"], &rows);
    if run.modules.len() > MOST_MODULES {
        body += &remark(&format!("{} more modules are left out.", run.modules.len() - MOST_MODULES));
    }
    body
}

/// How to take part, and how to use what was trained.
pub(in crate::report) fn join(run: &Run) -> String {
    let mut body = String::new();
    match (run.kind, run.manifest.config.admission.is_open()) {
        (Kind::Simulated, _) => {
            body += &paragraph("All peers ran on one machine: there is nothing to join. To train it again:")
        }
        (_, true) => {
            body += &paragraph("To take part, ask a peer for its address, which pathswarm status shows, and:");
            body += &verbatim("pathswarm join ADDRESS");
        }
        (_, false) => {
            body +=
                &paragraph("The run is by invitation. Ask whoever created it for an invitation and an address, and:");
            body += &verbatim("pathswarm join ADDRESS --invitation TEXT");
        }
    }
    if run.kind == Kind::Simulated {
        body += &verbatim("pathswarm simulate FILE --corpus PATH");
    }
    body +=
        &paragraph("To use it, collect all modules into a folder, from any running peer or from peers' folders, and:");
    body += &verbatim(
        "pathswarm collect DIR --from ADDRESS\npathswarm generate --local DIR --prompt TEXT\npathswarm serve DIR",
    );
    body
}
