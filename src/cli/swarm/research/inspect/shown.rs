//! Results as tables for people, objects for programs and plots for both.

use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;

use crate::cli::output::Output;
use crate::config::DnaConfig;
use crate::inspect::{Passages, Subject};
use crate::store::write_file;

/// Where results go.
pub(super) struct Shown {
    output: Output,
    /// The folder of plots, if any.
    folder: Option<PathBuf>,
}

impl Shown {
    /// Creates the folder, if given.
    pub fn new(output: Output, folder: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(folder) = &folder {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(Self { output, folder })
    }

    /// An object for programs.
    pub fn event(&self, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
        Ok(self.output.json(&serde_json::json!({ "event": name, "found": value }))?)
    }

    /// A table for people.
    pub fn table(&self, title: &str, columns: &[&str], rows: &[Vec<String>]) -> anyhow::Result<()> {
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
        Ok(self.output.text(line)?)
    }

    /// A plot, drawn only if a folder was given.
    pub fn image<T: AsRef<[u8]>>(&self, name: &str, draw: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        Ok(write_file(&folder.join(name), draw()?.as_ref())?)
    }
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
