//! Made-up text of several domains that differ in their words, so that a router can tell them apart.

use std::path::Path;

const SYLLABLES: [&str; 16] =
    ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu", "pla", "gre", "sti", "kno", "dru", "sha"];

/// A number that looks random and is the same everywhere.
fn mixed(seed: u64) -> u64 {
    let mixed = (seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 20
}

fn word(domain: u64, number: u64) -> String {
    let of = |part: u64| SYLLABLES[(mixed(domain * 1_000_003 + number * 31 + part) % 16) as usize];
    format!("{}{}{}", of(0), of(1), of(2))
}

fn document(domain: u64, number: u64) -> String {
    let mut text = String::new();
    for position in 0..160 {
        // Few words each, and each often after the same one: there is something to learn.
        let draw = mixed(domain * 77 + number * 4_099 + position) % 40;
        text += &word(domain, draw);
        text += if position % 12 == 11 { ".\n" } else { " " };
    }
    text
}

/// Writes a folder with a JSON Lines file for each domain.
pub fn write_domains(folder: &Path, domains: u64, documents: u64) {
    std::fs::create_dir_all(folder).unwrap();
    for domain in 0..domains {
        let lines: Vec<String> =
            (0..documents).map(|number| serde_json::json!({ "text": document(domain, number) }).to_string()).collect();
        std::fs::write(folder.join(format!("{domain}.jsonl")), lines.join("\n")).unwrap();
    }
}
