//! Results as tables for people, objects for programs and, in a folder, plots and a page with all of them.

use std::cell::RefCell;
use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;

use crate::cli::output::Output;
use crate::config::DnaConfig;
use crate::inspect::{Passages, Subject};
use crate::report::html;
use crate::store::write_file;

/// The page in the folder.
const PAGE: &str = "inspect.html";

/// Where results go.
pub(super) struct Shown {
    output: Output,
    folder: Option<Folder>,
}

/// The folder of the plots and of their page.
struct Folder {
    path: PathBuf,
    title: String,
    /// Sections of the page, each with its name and its HTML.
    sections: RefCell<Vec<(String, String)>>,
}

impl Shown {
    /// Creates the folder, if given. `title` is what is looked at.
    pub fn new(output: Output, folder: Option<PathBuf>, title: String) -> anyhow::Result<Self> {
        if let Some(folder) = &folder {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let folder = folder.map(|path| Folder { path, title, sections: RefCell::default() });
        Ok(Self { output, folder })
    }

    /// An object for programs. What follows is about it.
    pub fn event(&self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        if let Some(folder) = &self.folder {
            folder.sections.borrow_mut().push((name.to_owned(), String::new()));
        }
        Ok(self.output.json(&serde_json::json!({ "event": name, "found": value }))?)
    }

    /// A table for people.
    pub fn table(&self, title: &str, columns: &[&str], rows: &[Vec<String>]) -> anyhow::Result<()> {
        self.put(|| html::heading(title) + &table(columns, rows));
        self.output.text("")?;
        self.output.text(title)?;
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([columns[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let shown = cells.zip(&widths).enumerate().map(|(column, (cell, width))| match column {
                0 => format!("  {cell:width$}"),
                _ => format!("  {cell:>width$}"),
            });
            shown.collect::<String>().trim_end().to_owned()
        };
        self.output.text(&line(&mut columns.iter().copied()))?;
        for row in rows {
            self.output.text(&line(&mut row.iter().map(String::as_str)))?;
        }
        Ok(())
    }

    /// A line for people.
    pub fn line(&self, line: &str) -> anyhow::Result<()> {
        self.put(|| html::paragraph(line.trim()));
        Ok(self.output.text(line)?)
    }

    /// A plot as SVG or PNG, drawn only if a folder was given.
    pub fn image<T: AsRef<[u8]>>(
        &self,
        name: &str,
        caption: &str,
        draw: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let drawn = draw()?;
        self.put(|| match name.strip_suffix(".svg") {
            Some(id) => html::figure(id, &String::from_utf8_lossy(drawn.as_ref()), caption, ""),
            None => html::raster(drawn.as_ref(), caption),
        });
        Ok(write_file(&folder.path.join(name), drawn.as_ref())?)
    }

    /// Writes the page, if a folder was given.
    pub fn finish(&self) -> anyhow::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let sections = folder.sections.borrow();
        let body: String = sections.iter().map(|(name, body)| html::section(name, &capitalized(name), body)).collect();
        let under =
            html::remark("Programs get all numbers with --format json. The plots are files of this folder, too.");
        let (path, page) = (folder.path.join(PAGE), html::page(&folder.title, &under, &body));
        write_file(&path, page.as_bytes())?;
        Ok(self.output.text(&format!("\n{} shows all of this in a browser", path.display()))?)
    }

    /// Puts HTML into the newest section of the page.
    fn put(&self, part: impl FnOnce() -> String) {
        let Some(folder) = &self.folder else { return };
        if let Some((_, body)) = folder.sections.borrow_mut().last_mut() {
            *body += &part();
        }
    }
}

/// A table in which columns of numbers are set to the right.
fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let is_number = |cell: &String| cell.trim_end_matches('%').parse::<f64>().is_ok();
    let marked = |(at, name): (usize, &&str)| {
        let all = rows.iter().filter_map(|row| row.get(at)).all(is_number);
        if at > 0 && all { format!("#{name}") } else { (*name).to_owned() }
    };
    let names: Vec<String> = columns.iter().enumerate().map(marked).collect();
    html::table(&names.iter().map(String::as_str).collect::<Vec<_>>(), rows)
}

/// `sureness` as `Sureness`.
fn capitalized(name: &str) -> String {
    let mut characters = name.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// With four decimals.
pub(super) fn number(value: f64) -> String {
    format!("{value:.4}")
}

/// A path, the passages that it reads, and the destination of results.
pub(super) struct DnaView<'a> {
    pub subject: &'a Subject,
    pub passages: &'a Passages,
    pub dna: &'a DnaConfig,
    pub shown: Shown,
}
