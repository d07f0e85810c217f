//! Progress of creating a run.

use crate::observe::Progress;
use crate::peer::create::Stage;
use crate::sizes::in_words;

/// Shows a stage.
pub fn show(progress: &Progress, stage: Stage) {
    match stage {
        Stage::Reading(read, all) => progress.stage("reading the text", read, all),
        Stage::Tokenizing(done, all) => progress.stage("tokens", done, all),
        Stage::Corpus(corpus) => {
            let kinds: Vec<String> = corpus
                .kinds
                .iter()
                .map(|kind| format!("{} {} documents, {}", kind.name, kind.documents, in_words(kind.bytes)))
                .collect();
            progress.note(format!("corpus: {}; hash {}", kinds.join("; "), corpus.hash));
            corpus.left_out.lines().into_iter().for_each(|line| progress.note(line));
        }
        Stage::TestCorpus(corpus, trained) => {
            let (documents, bytes) = (corpus.documents, in_words(corpus.bytes));
            progress.note(format!("test corpus: {documents} documents, {bytes}; hash {}", corpus.hash));
            corpus.left_out.lines().into_iter().for_each(|line| progress.note(format!("test corpus, {line}")));
            if trained > 0 {
                progress.note(format!(
                    "test corpus: {trained} of its {documents} documents are in the training text, too; their scores \
                     tell what is remembered, not what is predicted"
                ));
            }
        }
        Stage::Learning(counted, all) => progress.stage("tokenizer", counted, all),
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
