//! Keys, and what they change.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::view::{Limits, View, ViewState, WINDOWS};
use crate::telemetry::overview::{Axis, Quantity};

/// Characters of a search.
const MOST_WANTED: usize = 64;

/// What a key asks of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Nothing,
    Leave,
    /// The whole screen is drawn anew: another program may have written on it.
    DrawAnew,
}

/// The keys of a view, shortest first where there is little room for the footer.
pub fn hints(view: &ViewState) -> Vec<(&'static str, &'static str)> {
    if view.is_typing {
        return vec![("Enter", "find"), ("Esc", "all")];
    }
    let mut hints = vec![("1-5", "view")];
    hints.extend(match view.view {
        View::Swarm => [("j/k", "scroll"), ("/", "find peer"), ("w", "waits")].as_slice(),
        View::Learning => &[("c", "chart"), ("a", "axis"), ("j/k", "curve")],
        View::BytesAndTime => &[("j/k", "scroll"), ("t", "window")],
        View::Contributions => &[("j/k", "scroll"), ("/", "find peer")],
        View::Events => &[("j/k", "scroll"), ("/", "find"), ("e", "warnings")],
    });
    hints.extend([("?", "help"), ("q", "leave")]);
    hints
}

/// All keys, for the help.
pub const ALL: [(&str, &str); 12] = [
    ("1 2 3 4 5", "a view by its number"),
    ("Tab  ← →", "the next view, the one before"),
    ("j k  ↑ ↓", "scroll by a line; in Learning: draw one curve alone"),
    ("PgUp PgDn", "scroll by a page; also b and Space"),
    ("Home End", "to the top, to the bottom; also g and G"),
    ("/", "find a peer by name or key, an event by its words; Esc: all again"),
    ("w", "Swarm: all waits, or only the first"),
    ("c", "Learning: the next chart"),
    ("a", "Learning: against steps, tokens or time"),
    ("t", "Bytes and time: how far back"),
    ("e", "Events: only warnings, or all"),
    ("q  Ctrl-C", "leave; Ctrl-L: draw the screen anew"),
];

/// Takes a key.
pub fn press(key: KeyEvent, view: &mut ViewState, limits: Limits) -> Asked {
    if key.kind == KeyEventKind::Release {
        return Asked::Nothing;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c' | 'd') => Asked::Leave,
            KeyCode::Char('l') => Asked::DrawAnew,
            _ => Asked::Nothing,
        };
    }
    if view.is_typing {
        type_into(key.code, view);
        return Asked::Nothing;
    }
    if view.shows_help {
        view.shows_help = false;
        return if key.code == KeyCode::Char('q') { Asked::Leave } else { Asked::Nothing };
    }
    match key.code {
        KeyCode::Char('q') => return Asked::Leave,
        KeyCode::Char('?') | KeyCode::F(1) => view.shows_help = true,
        KeyCode::Char(digit @ '1'..='5') => view.view = View::ALL[digit as usize - '1' as usize],
        KeyCode::Tab | KeyCode::Right => view.view = view.view.beside(true),
        KeyCode::BackTab | KeyCode::Left => view.view = view.view.beside(false),
        KeyCode::Char('/') => (view.is_typing, view.wanted, view.seeks) = (true, String::new(), true),
        KeyCode::Esc => view.wanted.clear(),
        KeyCode::Char('w') => view.shows_all_waits = !view.shows_all_waits,
        KeyCode::Char('e') => view.warnings_only = !view.warnings_only,
        KeyCode::Char('t') => view.window = (view.window + 1) % WINDOWS.len(),
        KeyCode::Char('a') => view.axis = next(&[Axis::Steps, Axis::Tokens, Axis::Time], view.axis),
        KeyCode::Char('c') => (view.quantity, view.curve) = (next(&Quantity::ALL, view.quantity), 0),
        code => scroll(code, view, limits),
    }
    Asked::Nothing
}

fn next<T: Copy + PartialEq>(all: &[T], now: T) -> T {
    let at = all.iter().position(|one| *one == now).unwrap_or(0);
    all[(at + 1) % all.len()]
}

fn scroll(code: KeyCode, view: &mut ViewState, limits: Limits) {
    let (place, farthest) = match view.view {
        View::Learning => (&mut view.curve, limits.curves),
        _ => (view.scrolled_mut(), limits.farthest),
    };
    let page = limits.page.max(1);
    let to = match code {
        KeyCode::Char('j') | KeyCode::Down => place.saturating_add(1),
        KeyCode::Char('k') | KeyCode::Up => place.saturating_sub(1),
        KeyCode::PageDown | KeyCode::Char(' ') => place.saturating_add(page),
        KeyCode::PageUp | KeyCode::Char('b') => place.saturating_sub(page),
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => farthest,
        _ => *place,
    };
    *place = to.min(farthest);
}

fn type_into(code: KeyCode, view: &mut ViewState) {
    match code {
        KeyCode::Esc => {
            view.is_typing = false;
            view.wanted.clear();
        }
        KeyCode::Enter => view.is_typing = false,
        KeyCode::Backspace => {
            view.wanted.pop();
            view.seeks = true;
        }
        KeyCode::Char(character) if view.wanted.chars().count() < MOST_WANTED => {
            view.wanted.extend(character.to_lowercase());
            view.seeks = true;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { farthest: 100, page: 18, sought: None, curves: 3 };

    fn after(codes: &[KeyCode]) -> (ViewState, Asked) {
        let mut view = ViewState::new("");
        let mut asked = Asked::Nothing;
        for code in codes {
            asked = press(KeyEvent::new(*code, KeyModifiers::NONE), &mut view, LIMITS);
        }
        (view, asked)
    }

    #[test]
    fn views_are_chosen_by_number_and_one_after_the_other() {
        assert_eq!(after(&[KeyCode::Char('3')]).0.view, View::BytesAndTime);
        assert_eq!(after(&[KeyCode::Tab]).0.view, View::Learning);
        assert_eq!(after(&[KeyCode::Left]).0.view, View::Events);
        assert_eq!(after(&[KeyCode::Tab; 5]).0.view, View::Swarm);
    }

    #[test]
    fn rows_scroll_no_farther_than_there_are() {
        assert_eq!(after(&[KeyCode::Char('j'), KeyCode::PageDown]).0.scrolled(), 19);
        assert_eq!(after(&[KeyCode::End, KeyCode::PageDown, KeyCode::Up]).0.scrolled(), 99);
        assert_eq!(after(&[KeyCode::Up]).0.scrolled(), 0);
        let (view, _) = after(&[KeyCode::Char('2'), KeyCode::End]);
        assert_eq!((view.curve, view.scrolled()), (3, 0), "in Learning a curve is chosen");
    }

    #[test]
    fn what_is_typed_is_searched_for_and_is_no_command() {
        let (view, asked) = after(&[KeyCode::Char('/'), KeyCode::Char('Q'), KeyCode::Char('q'), KeyCode::Enter]);
        assert_eq!((view.wanted.as_str(), view.is_typing, asked), ("qq", false, Asked::Nothing));
        assert!(view.finds("…00QQ00") && !view.finds("other"));
        assert!(after(&[KeyCode::Char('/'), KeyCode::Char('x'), KeyCode::Esc]).0.wanted.is_empty());
    }

    #[test]
    fn q_and_ctrl_c_leave_from_everywhere() {
        assert_eq!(after(&[KeyCode::Char('q')]).1, Asked::Leave);
        assert_eq!(after(&[KeyCode::Char('?'), KeyCode::Char('q')]).1, Asked::Leave);
        let mut view = after(&[KeyCode::Char('/')]).0;
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(press(key, &mut view, LIMITS), Asked::Leave);
    }
}
