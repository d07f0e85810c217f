//! What each path reads: its share of the text, its typical words, and beginnings of documents; and sample texts.

use crate::peer::create::domains::PathDomains;
use crate::report::folder::{Kind, Run};
use crate::report::html::{clipped, folded, paragraph, remark, table, verbatim};
use crate::report::reads::{MOST_PATHS, PathReads, TypicalWord};
use crate::report::sections::summary::path_name;
use crate::report::words::whole;

/// Domains of a path that are shown.
const MOST_DOMAINS: usize = 6;

/// Characters of a domain's name.
const MOST_OF_NAME: usize = 40;

/// Characters of a sample.
const MOST_CHARACTERS: usize = 4_000;

/// What each path reads.
pub(in crate::report) fn of_run(run: &Run) -> String {
    let domains = run.domains.as_ref().map_or_else(String::new, |domains| domains_of(&domains.paths));
    let Some(reads) = &run.reads else {
        return domains
            + &remark(match run.kind {
                Kind::Simulated => {
                    "What each path reads is not known before the run has been collected: simulate does so at its end."
                }
                _ => {
                    "What each path reads is not in a peer's folder. Collect the run, and report the collected folder, too: \
                  pathswarm collect."
                }
            });
    };
    let all: u64 = reads.paths.iter().map(|path| path.sequences).sum();
    let row = |path: &PathReads| {
        let word = |word: &TypicalWord| format!("{} ({:.1}×)", word.word, word.times);
        let words: Vec<String> = path.words.iter().map(word).collect();
        vec![
            path_name(path.path),
            format!("{:.0} %", 100.0 * path.sequences as f64 / all.max(1) as f64),
            whole(path.sequences as f64),
            whole(path.documents as f64),
            words.join(", "),
        ]
    };
    let rows: Vec<Vec<String>> = reads.paths.iter().map(row).collect();
    let mut body = domains;
    if reads.has_text {
        body += &paragraph(
            "The router chooses a path for each document by its first tokens. Typical words are those that the test text of a \
             path has more often than that of all paths, and how many times as often.",
        );
    }
    let columns = ["path", "#of the text", "#training sequences", "#test documents", "typical words"];
    body += &table(if reads.has_text { &columns } else { &columns[..4] }, &cut(rows, reads.has_text));
    if reads.left_out > 0 {
        body += &remark(&format!("{} more paths are left out.", reads.left_out));
    }
    if !reads.has_text {
        return body + &remark("The test text is not in the folder, or is images: there are no words and examples.");
    }
    for path in reads.paths.iter().filter(|path| !path.examples.is_empty()) {
        let examples: String = path.examples.iter().map(|example| verbatim(example)).collect();
        body += &folded(&format!("Beginnings of documents of {}", path_name(path.path)), &examples);
    }
    if run.domains.is_none() {
        body += &remark(
            "Domains of documents are known where the run was created, if the text has a domain field or files of several \
             kinds. pathswarm evaluate shows them for other text.",
        );
    }
    body
}

/// The domains of each path's training documents, the commonest first.
fn domains_of(paths: &[PathDomains]) -> String {
    let row = |(path, read): (usize, &PathDomains)| {
        let share = |(name, count): &(String, u64)| {
            format!("{} {:.0} %", clipped(name, MOST_OF_NAME), 100.0 * *count as f64 / read.documents.max(1) as f64)
        };
        let mut shares: Vec<String> = read.domains.iter().take(MOST_DOMAINS).map(share).collect();
        shares.extend((read.domains.len() > MOST_DOMAINS).then(|| "…".to_owned()));
        vec![path_name(path as u32), whole(read.documents as f64), shares.join(", ")]
    };
    let rows: Vec<Vec<String>> = paths.iter().enumerate().take(MOST_PATHS).map(row).collect();
    let mut body =
        paragraph("Domains are what the text names so, or else the kinds of its files. The router does not know them.");
    body += &table(&["path", "#training documents", "domains"], &rows);
    if paths.len() > rows.len() {
        body += &remark(&format!("{} more paths are left out.", paths.len() - rows.len()));
    }
    body
}

/// Without words where there are none.
fn cut(mut rows: Vec<Vec<String>>, has_text: bool) -> Vec<Vec<String>> {
    if !has_text {
        rows.iter_mut().for_each(|row| row.truncate(4));
    }
    rows
}

/// A text that the run has continued.
pub(in crate::report) fn samples(run: &Run) -> String {
    let sample = run.result.as_ref().map(|result| &result["sample"]);
    let text = |key: &str| sample.and_then(|sample| sample[key].as_str());
    let (Some(prompt), Some(text)) = (text("prompt"), text("text")) else {
        return remark("There is no sample here: simulate writes one at its end, and pathswarm generate makes more.");
    };
    let path = sample.and_then(|sample| sample["path"].as_u64()).and_then(|path| u32::try_from(path).ok());
    let path = path.map_or_else(String::new, |path| format!(" by {}", path_name(path)));
    let shown = clipped(&format!("{prompt} ▸{text}"), MOST_CHARACTERS);
    paragraph(&format!("The beginning of a test document, and behind ▸ how it is continued{path}.")) + &verbatim(&shown)
}
