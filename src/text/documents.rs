//! Cutting plain text into documents of about one size, at line ends.

/// Cuts lines as they come.
///
/// A document ends at the first line end past `target` bytes, at a blank line up to a quarter before that, or where the
/// next line would exceed one and a half times `target`. A longer line is itself cut, at white space if possible. A
/// short remainder joins the document before it.
pub(super) struct Cutter {
    target: usize,
    current: String,
    documents: Vec<String>,
}

impl Cutter {
    /// `target` is in bytes, at least 4.
    pub(super) fn new(target: usize) -> Self {
        Self { target: target.max(4), current: String::new(), documents: Vec::new() }
    }

    /// Adds the next line, with its line end.
    pub(super) fn line(&mut self, line: &str) {
        let most = self.most();
        if self.current.len() + line.len() > most {
            self.flush();
        }
        let mut rest = line;
        while rest.len() > most {
            let (head, tail) = rest.split_at(break_near(rest, self.target));
            self.documents.push(head.to_owned());
            rest = tail;
        }
        self.current.push_str(rest);
        let long = self.current.len() >= self.target;
        if long || (rest.trim().is_empty() && self.current.len() >= self.target - self.target / 4) {
            self.flush();
        }
    }

    /// Documents that no further line can join. The last one is kept back.
    pub(super) fn ready(&mut self) -> Vec<String> {
        let ready = self.documents.len().saturating_sub(1);
        self.documents.drain(..ready).collect()
    }

    /// The remaining documents, including those of only white space.
    pub(super) fn finish(mut self) -> Vec<String> {
        let short = self.current.len() < self.target / 4;
        match self.documents.last_mut() {
            Some(last) if short => last.push_str(&self.current),
            _ => self.flush(),
        }
        self.documents
    }

    fn most(&self) -> usize {
        self.target + self.target / 2
    }

    fn flush(&mut self) {
        if !self.current.is_empty() {
            self.documents.push(std::mem::take(&mut self.current));
        }
    }
}

/// Cuts a whole text.
pub(super) fn cut(text: &str, target: usize) -> Vec<String> {
    let mut cutter = Cutter::new(target);
    for line in text.split_inclusive('\n') {
        cutter.line(line);
    }
    cutter.finish()
}

/// The place to cut a long line: after the last white space in the second half of its first `target` bytes, else after
/// the last whole character. Never 0.
fn break_near(text: &str, target: usize) -> usize {
    let end = (0..=target).rev().find(|end| *end > 0 && text.is_char_boundary(*end));
    let end = end.unwrap_or_else(|| text.chars().next().map_or(text.len(), char::len_utf8));
    text[..end]
        .char_indices()
        .rev()
        .take_while(|(at, _)| *at >= end / 2)
        .find(|(_, character)| character.is_whitespace())
        .map_or(end, |(at, character)| at + character.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_are_taken_as_they_come_are_the_same() {
        let text: String = (0..300).map(|i| "word ".repeat(i * 7 % 40) + "\n").collect();
        let mut cutter = Cutter::new(100);
        let mut taken = Vec::new();
        for line in text.split_inclusive('\n') {
            cutter.line(line);
            taken.extend(cutter.ready());
            assert!(cutter.documents.len() <= 1);
        }
        taken.extend(cutter.finish());
        assert_eq!(taken, cut(&text, 100));
    }

    #[test]
    fn nothing_is_lost_and_sizes_are_near_the_target() {
        let line = "a line of forty characters, more or less\n";
        let text = line.repeat(500);
        let documents = cut(&text, 1000);
        assert_eq!(documents.concat(), text);
        assert!(documents.iter().all(|document| (1000..=1500).contains(&document.len())));
        assert!(documents.iter().all(|document| document.ends_with('\n')));
    }

    #[test]
    fn a_blank_line_near_the_target_is_preferred() {
        let text = format!("{}\n\n{}\n", "x".repeat(79), "y".repeat(40));
        assert_eq!(cut(&text, 100), [format!("{}\n\n", "x".repeat(79)), format!("{}\n", "y".repeat(40))]);
    }

    #[test]
    fn an_endless_line_is_cut_at_white_space_or_between_characters() {
        let words = "word ".repeat(100);
        let documents = cut(&words, 64);
        assert_eq!(documents.concat(), words);
        assert!(documents.iter().all(|document| document.len() <= 96 && document.ends_with(' ')));
        let crabs = "🦀".repeat(100);
        let documents = cut(&crabs, 66);
        assert_eq!(documents.concat(), crabs);
        assert!(documents.iter().all(|document| document.len() <= 98));
    }

    #[test]
    fn a_short_end_joins_what_came_before() {
        let text = format!("{}\nend\n", "x".repeat(100));
        assert_eq!(cut(&text, 100), [text]);
        assert_eq!(cut("end", 100), ["end"]);
        assert!(cut("", 100).is_empty());
    }
}
