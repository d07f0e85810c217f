//! The terminal on which progress is drawn: it may be gone, and it may say that it has no columns.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use console::Term;
use indicatif::TermLike;

/// The size of a terminal that does not know its own, as many pseudo-terminals of containers.
const ROWS: u16 = 24;
const COLUMNS: u16 = 80;

/// Standard error as a terminal. The first failed write ends it: the drawing library panics on errors.
#[derive(Debug)]
pub(super) struct PatientTerminal {
    term: Term,
    gone: AtomicBool,
}

impl PatientTerminal {
    pub(super) fn new() -> Self {
        Self { term: Term::buffered_stderr(), gone: AtomicBool::new(false) }
    }

    fn unless_gone(&self, write: impl FnOnce(&Term) -> io::Result<()>) -> io::Result<()> {
        if !self.gone.load(Ordering::Relaxed) && write(&self.term).is_err() {
            self.gone.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Rows and columns, of which a terminal has at least one.
fn size(known: Option<(u16, u16)>) -> (u16, u16) {
    let (rows, columns) = known.unwrap_or_default();
    (if rows == 0 { ROWS } else { rows }, if columns == 0 { COLUMNS } else { columns })
}

impl TermLike for PatientTerminal {
    fn width(&self) -> u16 {
        size(self.term.size_checked()).1
    }

    fn height(&self) -> u16 {
        size(self.term.size_checked()).0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.unless_gone(|term| term.move_cursor_up(n))
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.unless_gone(|term| term.move_cursor_down(n))
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.unless_gone(|term| term.move_cursor_right(n))
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.unless_gone(|term| term.move_cursor_left(n))
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.unless_gone(|term| term.write_line(text))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.unless_gone(|term| term.write_str(text))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.unless_gone(Term::clear_line)
    }

    fn flush(&self) -> io::Result<()> {
        self.unless_gone(Term::flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_of_no_columns_is_drawn_on_as_one_of_eighty() {
        assert_eq!(size(Some((0, 0))), (ROWS, COLUMNS));
        assert_eq!(size(Some((50, 132))), (50, 132));
        assert_eq!(size(None), (ROWS, COLUMNS));
    }

    #[test]
    fn a_terminal_that_is_gone_is_no_error() {
        let terminal = PatientTerminal::new();
        let broken = |_: &Term| Err(io::Error::from_raw_os_error(5));
        assert!(terminal.unless_gone(broken).is_ok());
        let mut written = false;
        assert!(
            terminal
                .unless_gone(|_| {
                    written = true;
                    Ok(())
                })
                .is_ok()
        );
        assert!(!written, "nothing more is written");
    }
}
