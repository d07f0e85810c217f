//! What a view shows, as sections of lines that scroll together. The title and the header of the section at the top stay
//! in sight.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::text::{cut, wrap};
use super::theme::Theme;

/// A section.
#[derive(Clone, Debug)]
pub struct Section {
    pub title: Line<'static>,
    pub header: Option<Line<'static>>,
    pub rows: Vec<Line<'static>>,
}

impl Section {
    /// A section without a table.
    pub fn of(title: Line<'static>, rows: Vec<Line<'static>>) -> Self {
        Self { title, header: None, rows }
    }

    /// A title with a remark.
    pub fn title(title: &str, remark: &str, theme: Theme) -> Line<'static> {
        let remark = if remark.is_empty() { String::new() } else { format!("  {remark}") };
        Line::from(vec![Span::styled(title.to_owned(), theme.title()), Span::styled(remark, theme.faint())])
    }

    /// Adds a remark below the rows, in as many lines as it needs.
    pub fn remark(mut self, text: &str, room: usize, theme: Theme) -> Self {
        let lines = wrap(text, room).into_iter().map(|line| Line::styled(line, theme.faint()));
        self.rows.extend(lines);
        self
    }

    /// Title, header, rows, and a blank line.
    fn height(&self) -> usize {
        2 + usize::from(self.header.is_some()) + self.rows.len()
    }

    fn line(&self, at: usize) -> Option<&Line<'static>> {
        let header = usize::from(self.header.is_some());
        match at {
            0 => Some(&self.title),
            1 if header == 1 => self.header.as_ref(),
            at => self.rows.get(at - 1 - header),
        }
    }
}

/// Sections below each other.
#[derive(Clone, Debug, Default)]
pub struct Document {
    pub sections: Vec<Section>,
}

impl Document {
    /// How far it can be scrolled in so many rows.
    pub fn farthest(&self, rows: usize) -> usize {
        // No blank line at the end.
        let all: usize = self.sections.iter().map(Section::height).sum();
        all.saturating_sub(1).saturating_sub(rows)
    }

    /// The section and the line within it at the top, when it is scrolled so far.
    fn place(&self, scrolled: usize) -> Option<(usize, usize)> {
        let mut left = scrolled;
        for (at, section) in self.sections.iter().enumerate() {
            if left < section.height() {
                return Some((at, left));
            }
            left -= section.height();
        }
        None
    }

    /// How far it must be scrolled to have a section at the top.
    pub fn start_of(&self, section: usize) -> usize {
        self.sections.iter().take(section).map(Section::height).sum()
    }

    /// The lines in sight.
    fn in_sight(&self, scrolled: usize, rows: usize) -> Vec<Line<'static>> {
        let Some((first, within)) = self.place(scrolled) else { return Vec::new() };
        let mut lines = Vec::with_capacity(rows);
        let mut skipped = within;
        // The section's head stays, in the place of the first rows, until the next section pushes it away.
        let section = &self.sections[first];
        let head = 1 + usize::from(section.header.is_some());
        if within > 0 && rows > head {
            let pushed = (within + head + 1).saturating_sub(section.height());
            lines.extend((pushed..head).filter_map(|at| section.line(at).cloned()));
            skipped = (within + head).min(section.height() - 1);
        }
        for section in &self.sections[first..] {
            for at in skipped..section.height() {
                if lines.len() == rows {
                    return lines;
                }
                lines.push(section.line(at).cloned().unwrap_or_default());
            }
            skipped = 0;
        }
        lines
    }

    /// Draws what is in sight, scrolled no farther than it can be.
    pub fn draw(&self, frame: &mut Frame<'_>, area: Rect, scrolled: usize) {
        let rows = usize::from(area.height);
        let scrolled = scrolled.min(self.farthest(rows));
        for (row, line) in area.rows().zip(self.in_sight(scrolled, rows)) {
            draw_line(frame, row, line);
        }
    }
}

/// Draws a line. If it is too long, an ellipsis says so.
pub fn draw_line(frame: &mut Frame<'_>, area: Rect, line: Line<'static>) {
    let room = usize::from(area.width);
    if line.width() <= room {
        frame.render_widget(line, area);
        return;
    }
    let mut spans = Vec::with_capacity(line.spans.len());
    let mut left = room;
    for span in line.spans {
        let width = span.width();
        if width < left || (width == left && spans.is_empty()) {
            left -= width;
            spans.push(span);
        } else {
            // The next column is there, if need be for the ellipsis alone.
            spans.push(Span::styled(cut(&(span.content.into_owned() + "  "), left), span.style));
            break;
        }
    }
    frame.render_widget(Line::from(spans), area);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        let section = |name: &str, rows: usize| Section {
            title: Line::from(name.to_owned()),
            header: Some(Line::from("head")),
            rows: (0..rows).map(|row| Line::from(format!("{name}{row}"))).collect(),
        };
        Document { sections: vec![section("a", 3), section("b", 4)] }
    }

    fn seen(scrolled: usize, rows: usize) -> Vec<String> {
        document().in_sight(scrolled, rows).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_head_of_a_section_stays_in_sight_while_its_rows_scroll() {
        assert_eq!(seen(0, 6), ["a", "head", "a0", "a1", "a2", ""]);
        assert_eq!(seen(1, 5), ["a", "head", "a1", "a2", ""]);
        assert_eq!(seen(3, 5), ["a", "head", "", "b", "head"]);
        assert_eq!(seen(4, 4), ["head", "", "b", "head"]);
        assert_eq!(seen(5, 4), ["", "b", "head", "b0"]);
        assert_eq!(seen(6, 4), ["b", "head", "b0", "b1"]);
        assert_eq!(seen(8, 4), ["b", "head", "b2", "b3"]);
        assert_eq!(document().start_of(1), 6);
    }

    #[test]
    fn the_last_line_can_be_reached_and_nothing_is_beyond_it() {
        let document = document();
        for rows in 0..20 {
            let lines = document.in_sight(document.farthest(rows), rows);
            assert!(lines.len() <= rows);
            assert!(rows < 3 || lines.iter().any(|line| line.to_string() == "b3"), "{rows} rows");
        }
        assert_eq!((document.farthest(12), document.farthest(11)), (0, 1));
        assert!(document.in_sight(1_000, 5).is_empty());
        assert!(Document::default().in_sight(0, 5).is_empty());
    }
}
