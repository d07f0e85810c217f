//! The documentation: every link leads to a file and a heading that are there, every page is in the book, and the files that
//! contributors are sent to are there.

use std::collections::BTreeSet;

use crate::tree::{files, joined, none, project};

/// Links of a Markdown text within the project, headings included, outside code, and their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Outside of `code` is every other piece.
        let prose: String = line.split('`').step_by(2).collect();
        for piece in prose.split("](").skip(1) {
            let target = piece.split([')', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((index + 1, target.to_owned()));
            }
        }
    }
    found
}

/// What links call the headings of a Markdown text, as GitHub and mdbook make it.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        in_code ^= line.starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !in_code) else { continue };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    found
}

/// Links of the pages that lead nowhere, or out of the book.
fn broken(pages: &[(String, String)], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in pages {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, link) in links(text) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { joined(folder, file) };
            let target = target.trim_matches('/');
            let page = pages.iter().find(|(path, _)| path == target);
            let has_anchor = anchor.is_empty() || page.is_some_and(|(_, text)| anchors(text).contains(anchor));
            if path.starts_with("docs/") && !target.starts_with("docs/") {
                found.push(format!("{path}:{line}: {link} leads out of the book"));
            } else if !(page.is_some() || exists(target)) || !has_anchor {
                found.push(format!("{path}:{line}: there is no {link}"));
            }
        }
    }
    found
}

/// Pages of docs/ that the book's summary does not name.
fn left_out(pages: &[(String, String)]) -> Vec<String> {
    let summary = pages.iter().filter(|(path, _)| path == "docs/SUMMARY.md");
    let named: BTreeSet<String> =
        summary.flat_map(|(_, text)| links(text)).map(|(_, link)| format!("docs/{link}")).collect();
    let inside = pages.iter().filter(|(path, _)| path.starts_with("docs/") && path != "docs/SUMMARY.md");
    inside
        .filter(|(path, _)| !named.contains(path))
        .map(|(path, _)| format!("{path}:1: not in docs/SUMMARY.md"))
        .collect()
}

/// Files of the project that a Markdown text names as `code`, and their lines.
fn named_files(text: &str) -> Vec<(usize, String)> {
    let homes = ["src/", "tests/", "scripts/", "configs/", "fuzz/", "docs/"];
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // Inside of `code` is every other piece.
        for code in line.split('`').skip(1).step_by(2) {
            let path = code.split_whitespace().next().unwrap_or_default();
            if homes.iter().any(|home| path.starts_with(home)) && !path.contains("NAME") {
                found.push((index + 1, path.to_owned()));
            }
        }
    }
    found
}

#[test]
fn contributors_are_sent_to_files_that_are_there() {
    let page = "docs/contributing.md";
    let named = named_files(&std::fs::read_to_string(project().join(page)).unwrap());
    let gone = named.into_iter().filter(|(_, file)| !project().join(file).exists());
    none(gone.map(|(line, file)| format!("{page}:{line}: there is no {file}")).collect());
}

#[test]
fn links_lead_somewhere_and_every_page_is_in_the_book() {
    let named = ["README.md", "CHANGELOG.md", "fuzz/README.md"];
    let named = named.map(|name| (name.to_owned(), std::fs::read_to_string(project().join(name)).unwrap()));
    let pages = [named.to_vec(), files("docs", "md")].concat();
    none([broken(&pages, |target| project().join(target).exists()), left_out(&pages)].concat());
}

mod made_up {
    //! Each rule finds what breaks it, and only that.

    use super::*;

    #[test]
    fn relative_links_are_found_outside_code() {
        let text =
            "[a](docs/a.md#part) [b](https://b) `[c](c.md)`\n```\n[d](d.md)\n```\n![e](e.png \"image\")\n[f](#f)";
        assert_eq!(links(text), [(1, "docs/a.md#part".to_owned()), (5, "e.png".to_owned()), (6, "#f".to_owned())]);
    }

    #[test]
    fn files_are_found_in_code_alone() {
        let text = "`src/a.rs`: see src/b.rs\n`configs/NAME.toml` `cargo test` `scripts/test --quick`";
        assert_eq!(named_files(text), [(1, "src/a.rs".to_owned()), (2, "scripts/test".to_owned())]);
    }

    #[test]
    fn a_link_that_leads_nowhere_and_a_page_outside_the_book_are_found() {
        let page = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let pages = [
            page("README.md", "[a](docs/a.md#a-b-c) [b](docs/b.md) [c](src)"),
            page("docs/SUMMARY.md", "[a](a.md)"),
            page(
                "docs/a.md",
                "# `[a]` b: c's?\n## A, b-C\n```\n# D\n```\n[a](#d) [b](c/d.md#e) [c](../src) [d](e.svg)",
            ),
            page("docs/c/d.md", "# E\n[a](../a.md#a-b-cs)"),
        ];
        assert_eq!(
            broken(&pages, |target| ["src", "docs/e.svg"].contains(&target)),
            [
                "README.md:1: there is no docs/b.md",
                "docs/a.md:6: there is no #d",
                "docs/a.md:6: ../src leads out of the book"
            ]
        );
        assert_eq!(left_out(&pages), ["docs/c/d.md:1: not in docs/SUMMARY.md"]);
    }
}
