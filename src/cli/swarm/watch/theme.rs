//! Styles that can be read on dark and on light terminals: the terminal's own colours, and of the 16 only those that
//! stand out from both. Nothing is told by a colour alone.

use ratatui::style::{Color, Modifier, Style};

/// Colours of curves. Neighbours differ most.
const CURVES: [Color; 6] = [Color::Cyan, Color::Magenta, Color::Green, Color::Red, Color::LightBlue, Color::Reset];

/// The styles.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    has_colours: bool,
}

impl Theme {
    pub fn new(has_colours: bool) -> Self {
        Self { has_colours }
    }

    /// As the user's environment wants it (<https://no-color.org>).
    pub fn of_environment() -> Self {
        Self::new(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
    }

    fn coloured(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    pub fn plain(self) -> Style {
        Style::new()
    }

    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub fn title(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// What is chosen.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED)
    }

    pub fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    /// Yellow cannot be read on white.
    pub fn warning(self) -> Style {
        self.coloured(Color::Magenta)
    }

    pub fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub fn curve(self, number: usize) -> Style {
        self.coloured(CURVES[number % CURVES.len()])
    }
}
