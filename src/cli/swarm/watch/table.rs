//! Tables as lines of text: columns are as wide as what is in them. Where there is too little room, one column shrinks,
//! and then columns go that matter least.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::document::Section;
use super::format::UNKNOWN;
use super::text::{fill, width};
use super::theme::Theme;

/// Columns between two columns of a table.
const GAP: usize = 2;

/// A text and its style.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    name: &'static str,
    is_number: bool,
    most: usize,
    /// How narrow it may become, if it shrinks.
    least: Option<usize>,
    /// Those with the greatest number go first; 0 stays.
    goes: u8,
}

impl Column {
    pub fn text(name: &'static str) -> Self {
        Self { name, is_number: false, most: 24, least: None, goes: 0 }
    }

    /// To the right.
    pub fn number(name: &'static str) -> Self {
        Self { is_number: true, ..Self::text(name) }
    }

    /// It is never wider.
    pub fn at_most(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// It takes whatever room there is, but never less.
    pub fn at_least(self, least: usize) -> Self {
        Self { most: usize::MAX, least: Some(least), ..self }
    }

    /// It goes before columns with a smaller number.
    pub fn goes(self, goes: u8) -> Self {
        Self { goes, ..self }
    }
}

/// A table.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The columns that fit, with their widths.
    fn layout(&self, room: usize) -> Vec<(usize, usize)> {
        let natural = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| width(&cell.text));
            let column = &self.columns[at];
            cells.max().unwrap_or(0).clamp(width(column.name), column.most.max(width(column.name)))
        };
        // A column that could go says nothing where nothing is known.
        let says = |at: &usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(*at));
            self.columns[*at].goes == 0 || cells.any(|cell| !cell.text.is_empty() && cell.text != UNKNOWN)
        };
        let mut shown: Vec<(usize, usize)> = (0..self.columns.len()).filter(says).map(|at| (at, natural(at))).collect();
        loop {
            let all: usize = shown.iter().map(|(_, width)| width).sum::<usize>() + GAP * shown.len().saturating_sub(1);
            let Some(over) = all.checked_sub(room).filter(|over| *over > 0) else { return shown };
            let mut shrinking = shown.iter_mut().filter_map(|(at, width)| Some((self.columns[*at].least?, width)));
            if let Some((least, width)) = shrinking.next() {
                let least = least.min(*width);
                if *width - least >= over {
                    *width -= over;
                    return shown;
                }
            }
            let goes = shown.iter().map(|(at, _)| self.columns[*at].goes).max().unwrap_or(0);
            if goes == 0 {
                // The rest is beyond the edge.
                return shown;
            }
            shown.retain(|(at, _)| self.columns[*at].goes != goes);
        }
    }

    /// The table as a section of a document that is so wide.
    pub fn section(self, title: Line<'static>, room: usize, theme: Theme) -> Section {
        let layout = self.layout(room);
        let line = |cells: &[Cell]| {
            let mut spans = Vec::with_capacity(2 * layout.len());
            for (at, width) in &layout {
                let Some(cell) = cells.get(*at) else { continue };
                if !spans.is_empty() {
                    spans.push(Span::raw(" ".repeat(GAP)));
                }
                spans.push(Span::styled(fill(&cell.text, *width, self.columns[*at].is_number), cell.style));
            }
            Line::from(spans)
        };
        let names: Vec<Cell> = self.columns.iter().map(|column| Cell::styled(column.name, theme.faint())).collect();
        Section { title, header: Some(line(&names)), rows: self.rows.iter().map(|row| line(row)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(room: usize) -> String {
        let columns = [
            Column::text("peer"),
            Column::number("phase"),
            Column::text("modules").at_least(7),
            Column::text("why").goes(1),
        ];
        let mut table = Table::new(columns);
        table.row(["…abcdef01", "3/20", "0.0@3 1.0@3 1.1@3", "slow"].map(Cell::from).to_vec());
        table.section(Line::from("t"), room, Theme::new(false)).rows[0].to_string()
    }

    #[test]
    fn a_column_that_says_nothing_goes_first() {
        let mut table = Table::new([Column::text("peer"), Column::text("why").goes(1), Column::text("needed")]);
        table.row(["home", UNKNOWN, UNKNOWN].map(Cell::from).to_vec());
        let header = table.section(Line::from("t"), 80, Theme::new(false)).header.unwrap();
        assert_eq!(header.to_string(), "peer  needed");
    }

    #[test]
    fn a_table_shrinks_and_then_leaves_out_what_matters_least() {
        assert_eq!(shown(80), "…abcdef01   3/20  0.0@3 1.0@3 1.1@3  slow");
        assert_eq!(shown(38), "…abcdef01   3/20  0.0@3 1.0@3 1…  slow");
        assert_eq!(shown(28), "…abcdef01   3/20  0.0@3 1.0…");
        assert_eq!(shown(3), "…abcdef01   3/20  0.0@3 1.0@3 1.1@3", "what is beyond the edge is cut by the screen");
    }
}
