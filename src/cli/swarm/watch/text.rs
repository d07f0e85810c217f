//! Text in a number of columns: cut, filled up, or wrapped. A character that is drawn in two columns counts as two.

use ratatui::style::Style;
use ratatui::text::Span;

/// Columns that a text takes.
pub fn width(text: &str) -> usize {
    match text.chars().all(is_simple) {
        true => text.chars().count(),
        false => Span::raw(text).width(),
    }
}

/// Whether a character takes one column whatever is beside it. Tables of a thousand rows have hardly any others.
fn is_simple(character: char) -> bool {
    matches!(character, ' '..='~' | '…' | '–' | '·' | '█' | '▓' | '▒' | '░' | '▸' | '■')
}

/// What is drawn at once, such as a letter with its accents. What would act on the terminal instead is left out: a peer
/// may have written it.
fn graphemes(text: &str) -> Vec<String> {
    let span = Span::raw(text);
    let drawn = span.styled_graphemes(Style::new()).map(|grapheme| grapheme.symbol.to_owned());
    drawn.filter(|symbol| !symbol.chars().any(turns_text_around)).collect()
}

/// Marks for the direction of writing, which would change how the rest of the line reads.
fn turns_text_around(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text in at most so many columns. An ellipsis tells that something is missing.
pub fn cut(text: &str, columns: usize) -> String {
    if text.len() <= columns && text.chars().all(is_simple) {
        return text.to_owned();
    }
    let graphemes = graphemes(text);
    let all: usize = graphemes.iter().map(|it| width(it)).sum();
    if all <= columns {
        return graphemes.concat();
    }
    let Some(room) = columns.checked_sub(1) else { return String::new() };
    let mut taken = 0;
    let fits = graphemes.into_iter().take_while(|it| {
        taken += width(it);
        taken <= room
    });
    fits.collect::<String>() + "…"
}

/// A text in exactly so many columns.
pub fn fill(text: &str, columns: usize, to_the_right: bool) -> String {
    let text = cut(text, columns);
    let blank = " ".repeat(columns.saturating_sub(width(&text)));
    if to_the_right { blank + &text } else { text + &blank }
}

/// A text in lines of at most so many columns, divided between words where that is possible.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let mut word: Vec<String> = graphemes(word);
        let length: usize = word.iter().map(|it| width(it)).sum();
        if used > 0 && used + 1 + length > columns {
            lines.push(String::new());
            used = 0;
        }
        if used > 0 {
            word.insert(0, " ".to_owned());
        }
        for grapheme in word {
            let more = width(&grapheme);
            if used > 0 && used + more > columns {
                lines.push(String::new());
                used = 0;
            }
            used += more;
            if let Some(line) = lines.last_mut() {
                line.push_str(&grapheme);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_says_so() {
        assert_eq!(cut("modules", 7), "modules");
        assert_eq!(cut("modules", 4), "mod…");
        assert_eq!(cut("höhö", 3), "hö…");
        assert_eq!(cut("模型訓練", 5), "模型…");
        assert_eq!(cut("模型", 1), "…");
        assert_eq!(cut("e\u{301}e\u{301}e\u{301}", 2), "e\u{301}…", "an accent stays with its letter");
        assert_eq!((cut("any", 0), cut("", 0), cut("", 5)), (String::new(), String::new(), String::new()));
    }

    #[test]
    fn a_text_never_takes_more_columns_than_it_may() {
        for text in ["", "plain", "模型訓練 at 5", "🦀🦀🦀", "a\u{1b}[31mb\u{202e}c\n\td"] {
            for columns in 0..12 {
                assert!(width(&cut(text, columns)) <= columns, "{text:?} in {columns}");
                assert_eq!(width(&fill(text, columns, true)), columns, "{text:?} in {columns}");
                assert!(wrap(text, columns).iter().all(|line| width(line) <= columns.max(2)), "{text:?} in {columns}");
            }
        }
    }

    #[test]
    fn what_a_peer_has_written_does_not_act_on_the_terminal() {
        let cleaned = cut("\u{1b}]0;owned\u{7}\u{202e}fine\r\n", 40);
        assert_eq!(cleaned, "]0;ownedfine");
        assert!(wrap("\u{1b}[2Jgone", 40).concat().chars().all(|character| !character.is_control()));
    }

    #[test]
    fn a_long_line_is_wrapped_between_words_and_a_long_word_within() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrap("", 5), [""]);
    }
}
