//! Tokens become text: whole characters, and nothing of a string that ends it.

use std::mem::take;

use crate::serve::engine::job::AnsweredToken;

/// A text that is being assembled.
#[derive(Debug, Default)]
pub struct Assembler {
    stops: Vec<String>,
    /// Bytes of a character that is not complete.
    bytes: Vec<u8>,
    /// Text that may be the beginning of a stop string.
    held: String,
    /// Tokens whose text is held, each with the place in `held` at which it begins.
    tokens: Vec<(usize, AnsweredToken)>,
    stopped: bool,
}

impl Assembler {
    /// For a text that these strings end; they are not empty.
    pub fn new(stops: Vec<String>) -> Self {
        Self { stops, ..Self::default() }
    }

    /// Whether a stop string came.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Adds a token, which stands for these bytes. Returns what may be shown.
    pub fn push(&mut self, token: AnsweredToken, bytes: &[u8]) -> (String, Vec<AnsweredToken>) {
        self.tokens.push((self.held.len(), token));
        self.bytes.extend_from_slice(bytes);
        let complete = complete(&self.bytes);
        self.held.push_str(&String::from_utf8_lossy(&self.bytes[..complete]));
        self.bytes.drain(..complete);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            (self.stopped, self.bytes) = (true, Vec::new());
            self.held.truncate(at);
            self.tokens.retain(|(begin, _)| *begin < at);
            return self.rest();
        }
        let certain = self.held.len() - self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        self.show(certain)
    }

    /// The rest, when no more tokens come.
    pub fn rest(&mut self) -> (String, Vec<AnsweredToken>) {
        let bytes = take(&mut self.bytes);
        self.held.push_str(&String::from_utf8_lossy(&bytes));
        let tokens = take(&mut self.tokens).into_iter().map(|(_, token)| token).collect();
        (take(&mut self.held), tokens)
    }

    /// The first bytes of what is held, and all tokens that begin there; none while there is no text, so that no piece
    /// is empty.
    fn show(&mut self, count: usize) -> (String, Vec<AnsweredToken>) {
        if count == 0 {
            return (String::new(), Vec::new());
        }
        let held = self.held.split_off(count);
        let shown = std::mem::replace(&mut self.held, held);
        let tokens = take(&mut self.tokens);
        let (now, later): (Vec<_>, Vec<_>) = tokens.into_iter().partition(|(begin, _)| *begin < count);
        self.tokens = later.into_iter().map(|(begin, token)| (begin - count, token)).collect();
        (shown, now.into_iter().map(|(_, token)| token).collect())
    }
}

/// Bytes up to a character at the end of which some are missing.
fn complete(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match std::str::from_utf8(&bytes[at..]) {
            Ok(_) => return bytes.len(),
            Err(error) => match error.error_len() {
                Some(wrong) => at += error.valid_up_to() + wrong,
                None => return at + error.valid_up_to(),
            },
        }
    }
}

/// The length of the longest end of a text that a stop string begins with.
fn overlap(text: &str, stop: &str) -> usize {
    let lengths = stop.char_indices().map(|(at, _)| at).filter(|at| *at > 0 && *at <= text.len());
    lengths.filter(|at| text.ends_with(&stop[..*at])).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a text whose tokens have these bytes, the numbers of their tokens, and whether it was stopped.
    fn assembled(stops: &[&str], tokens: &[&[u8]]) -> (Vec<String>, Vec<Vec<u32>>, bool) {
        let mut assembler = Assembler::new(stops.iter().map(|stop| (*stop).to_owned()).collect());
        let (mut pieces, mut numbers) = (Vec::new(), Vec::new());
        let mut add = |(text, tokens): (String, Vec<AnsweredToken>)| {
            pieces.push(text);
            numbers.push(tokens.iter().map(|token| token.token).collect());
        };
        for (number, bytes) in tokens.iter().enumerate() {
            add(assembler.push(AnsweredToken { token: number as u32, score: None }, bytes));
            if assembler.stopped() {
                return (pieces, numbers, true);
            }
        }
        add(assembler.rest());
        (pieces, numbers, assembler.stopped())
    }

    #[test]
    fn characters_come_whole() {
        let crab = "🦀".as_bytes();
        let (pieces, tokens, _) = assembled(&[], &[b"a", &crab[..1], &crab[1..3], &crab[3..], b"b"]);
        assert_eq!(pieces, ["a", "", "", "🦀", "b", ""]);
        assert_eq!(tokens, [vec![0], vec![], vec![], vec![1, 2, 3], vec![4], vec![]]);
        // As decoding all bytes at once would do it.
        for bytes in [&[0xf0u8, 0x9f, b'a', 0xff, 0xe2, 0x82][..], &[0xc3, 0xa9, 0x80, 0xf4], &[0xff, 0xfe, 0xc3]] {
            let each: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(assembled(&[], &each).0.concat(), String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn what_may_begin_a_stop_string_is_held_back() {
        let (pieces, tokens, stopped) = assembled(&["\nUser:"], &[b"yes", b"\n", b"Us", b"ual", b"\nUse", b"r: no"]);
        assert_eq!((pieces.concat().as_str(), stopped), ("yes\nUsual", true));
        assert_eq!(pieces, ["yes", "", "", "\nUsual", "", ""]);
        assert_eq!(tokens.concat(), [0, 1, 2, 3]);
        let (pieces, tokens, stopped) = assembled(&["ab", "b"], &[b"xa", b"b"]);
        assert_eq!((pieces.concat().as_str(), tokens.concat(), stopped), ("x", vec![0], true));
        let (pieces, _, stopped) = assembled(&["abc"], &[b"a", b"b"]);
        assert_eq!((pieces.concat().as_str(), stopped), ("ab", false));
    }
}
