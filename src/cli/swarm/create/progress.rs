//! Progress of creating a run.

use crate::observe::Progress;
use crate::peer::create::Stage;

/// Shows a stage.
pub fn show(progress: &Progress, stage: Stage) {
    match stage {
        Stage::Reading(read, all) => progress.stage("reading the text", read, all),
        Stage::Tokenizing(done, all) => progress.stage("tokens", done, all),
        Stage::Corpus(corpus) => {
            let kinds: Vec<String> = corpus
                .kinds
                .iter()
                .map(|kind| format!("{} {} documents, {:.1} MB", kind.name, kind.documents, kind.bytes as f64 / 1e6))
                .collect();
            let skipped = corpus.skipped;
            progress.note(format!("corpus: {}; hash {}", kinds.join("; "), corpus.hash));
            let left_out = skipped.invalid_utf8 + skipped.empty + skipped.duplicate + skipped.unparsable;
            if left_out > 0 {
                progress.note(format!(
                    "left out: {} not UTF-8, {} empty or too short, {} duplicates, {} lines that are not JSON with a \
                     text",
                    skipped.invalid_utf8, skipped.empty, skipped.duplicate, skipped.unparsable
                ));
            }
        }
        Stage::Tokens { vocabulary, tokens, sequences } => {
            progress.note(format!("tokenizer: {vocabulary} entries; {tokens} tokens in {sequences} sequences"));
        }
        Stage::Ancestor(step, steps, loss) => {
            progress.stage("ancestor", step, steps);
            if step == steps {
                progress.note(format!("ancestor: {steps} steps, loss {loss:.3}"));
            }
        }
        Stage::Shards(sizes) => progress.note(format!("shards: {sizes:?} training sequences")),
    }
}
