//! The scores on the test text, and a dense network trained for as long, where there is one.

use serde_json::Value;

use crate::inspect::plots::{Labels, few_bars};
use crate::report::folder::{Kind, Run};
use crate::report::html::{figure, heading, remark, table};
use crate::report::sections::summary::path_name;

/// What is scored, and its name for people.
const ROWS: [(&str, &str); 4] =
    [("ancestor", "ancestor"), ("dense", "dense control"), ("random", "DiPaCo, random shards"), ("dipaco", "DiPaCo")];

/// Paths whose scores are listed.
const MOST_PATHS: usize = 256;

/// The comparison of all runs.
pub(in crate::report) fn all(runs: &[Run], names: &[String]) -> anyhow::Result<String> {
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for (run, name) in runs.iter().zip(names) {
        let Some(result) = &run.result else { continue };
        for (key, title) in ROWS {
            let Some(bits) = result[key]["bits_per_byte"].as_f64().or(result[key]["perplexity"].as_f64()) else {
                continue;
            };
            let title = if runs.len() == 1 { title.to_owned() } else { format!("{name}: {title}") };
            let mut row = vec![title.clone()];
            row.extend(numbers(&result[key]));
            rows.push(row);
            bars.push((title, bits));
        }
    }
    let mut body = String::new();
    if !rows.is_empty() {
        body += &table(&["on the test text", "#perplexity", "#bits a byte"], &rows);
        let has_bits =
            runs.iter().flat_map(|run| &run.result).any(|result| result["dipaco"]["bits_per_byte"].is_number());
        let y = if has_bits { "bits a byte" } else { "perplexity" };
        let svg = few_bars(&Labels { title: "Test text", x: y, y: "" }, &bars)?;
        let described = "The dense control is one path trained for as many inner steps as each path. Lower is better.";
        body += &figure("test", &svg, "Test text", described);
    }
    for (run, name) in runs.iter().zip(names) {
        if runs.len() > 1 {
            body += &heading(name);
        }
        body += &of_run(run);
    }
    Ok(body)
}

/// Perplexity and bits a byte.
fn numbers(score: &Value) -> [String; 2] {
    let number = |key: &str, decimals: usize| {
        score[key].as_f64().map_or_else(|| "–".to_owned(), |number| format!("{number:.decimals$}"))
    };
    [number("perplexity", 2), number("bits_per_byte", 4)]
}

fn of_run(run: &Run) -> String {
    let Some(result) = &run.result else {
        return remark(match run.kind {
            Kind::Collected => "A collected run has no scores; pathswarm evaluate makes them.",
            _ => "There are no scores yet: they come when all phases are done.",
        });
    };
    let mut body = String::new();
    if run.kind != Kind::Simulated {
        body += &remark("There is no dense control: only simulate trains one.");
    }
    let row = |path: &Value| {
        let [perplexity, bits] = numbers(&path["test"]);
        let number = path["path"].as_u64().and_then(|path| u32::try_from(path).ok());
        let name = number.map_or_else(|| "?".to_owned(), path_name);
        vec![name, numbers(&path["held_out"])[1].clone(), bits, perplexity]
    };
    let paths: Vec<&Value> = result["paths"].as_array().into_iter().flatten().collect();
    let rows: Vec<Vec<String>> = paths.iter().take(MOST_PATHS).map(|path| row(path)).collect();
    if rows.is_empty() {
        return body + &remark("No path has been scored.");
    }
    body += &table(&["path", "#held out, bits a byte", "#test, bits a byte", "#test, perplexity"], &rows);
    if paths.len() > MOST_PATHS {
        body += &remark(&format!("{} more paths are left out.", paths.len() - MOST_PATHS));
    }
    match result["module_hashes_agree"].as_bool() {
        Some(true) => body += &remark("At the end all members of each module had the same parameters, bit for bit."),
        Some(false) => body += &remark("At the end members of a module did NOT have the same parameters."),
        None => {}
    }
    body
}
