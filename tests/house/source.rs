//! Rust source as text: enough of its grammar to see what a file names, declares and how long its functions are.

use std::ops::Range;

/// One file.
pub struct Source {
    /// Relative to the project, with `/`.
    pub path: String,
    /// The text with comments and the insides of literals blanked; every line keeps its number.
    pub code: String,
    /// As `code`, with what only tests see blanked too.
    pub shipped: String,
    /// Where `#[path = "…"] mod name;` says a module is, relative to the file's folder.
    placed: Vec<String>,
    /// The same, without what only tests see.
    shipped_placed: Vec<String>,
}

/// A function and how many lines it takes.
#[derive(Debug, PartialEq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let code = blank_comments_and_literals(text);
        let shipped = blank_tests(&code);
        let (placed, shipped_placed) = (placed_modules(text, &code), placed_modules(text, &shipped));
        Self { path: path.to_owned(), code, shipped, placed, shipped_placed }
    }

    pub fn line_count(&self) -> usize {
        self.code.lines().count()
    }

    /// The folders and file name below `src/`: `protocol/wire.rs` is `["protocol", "wire"]`.
    pub fn module(&self) -> Vec<&str> {
        let inside = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let stem = inside.strip_suffix(".rs").unwrap_or(inside);
        stem.strip_suffix("/mod").unwrap_or(stem).split('/').collect()
    }

    /// Each path below `crate::` (or this crate's name) that is named, at most two steps deep, and its line.
    pub fn crate_paths(&self) -> Vec<(usize, Vec<String>)> {
        let mut found = Vec::new();
        for root in ["crate::", "pathswarm::"] {
            for at in occurrences(&self.code, root) {
                let mut paths = Vec::new();
                follow(&self.code[at + root.len()..], 2, &mut Vec::new(), &mut paths);
                found.extend(paths.into_iter().map(|path| (line_of(&self.code, at), path)));
            }
        }
        found
    }

    /// The paths that shipped code names, in `use`s and elsewhere, from the crate on, and their lines.
    pub fn named_paths(&self) -> Vec<(usize, Vec<String>)> {
        let mut elsewhere = self.shipped.clone();
        let mut named = Vec::new();
        let mut add = |at: usize, text: &str| {
            let mut paths = Vec::new();
            follow(text, usize::MAX, &mut Vec::new(), &mut paths);
            named.extend(paths.into_iter().map(|path| (at, path)));
        };
        for at in occurrences(&self.shipped, "use ") {
            let end = self.shipped[at..].find(';').map_or(self.shipped.len(), |length| at + length);
            add(at, &self.shipped[at + 4..end]);
            elsewhere.replace_range(at..end, &blank(&self.shipped[at..end]));
        }
        for root in ["crate::", "pathswarm::", "self::", "super::"] {
            for at in occurrences(&elsewhere, root).filter(|at| !elsewhere[..*at].ends_with("::")) {
                add(at, &elsewhere[at..]);
            }
        }
        let from_the_crate = |(at, path): (usize, Vec<String>)| {
            Some((line_of(&self.shipped, at), absolute(&self.modules_around(at), &path)?))
        };
        named.into_iter().filter_map(from_the_crate).collect()
    }

    /// The module of the file, and those inside it that are open at a place of its shipped code.
    fn modules_around(&self, at: usize) -> Vec<String> {
        let mut modules: Vec<String> = self.module().into_iter().map(str::to_owned).collect();
        for opens in occurrences(&self.shipped[..at], "mod ") {
            let rest = &self.shipped[opens + 4..];
            let name = identifier(rest);
            let is_open = |body: Range<usize>| body.end > at;
            if rest[name.len()..].trim_start().starts_with('{')
                && block(&self.shipped, opens + 4 + rest.find('{').unwrap_or(0)).is_some_and(is_open)
            {
                modules.push(name.to_owned());
            }
        }
        modules
    }

    /// Lines on which so many `super::` follow each other that they leave the file's folder.
    pub fn escapes(&self) -> Vec<usize> {
        let depth = self.module().len();
        let leaves = |code: &str, most: usize| {
            let chain = "super::".repeat(most + 1);
            occurrences(code, &chain).map(|at| line_of(code, at)).collect::<Vec<_>>()
        };
        // A test module is one deeper; `super::` of a file two folders down stays inside.
        let mut lines = leaves(&self.shipped, depth - 1);
        lines.extend(leaves(&self.code, depth));
        lines
    }

    /// Lines of shipped code that name a foreign crate, as in `tch::Tensor` or `use tch`.
    pub fn uses_crate(&self, name: &str) -> Vec<usize> {
        let inside = occurrences(&self.shipped, name).filter(|at| {
            let before = self.shipped[..*at].trim_end();
            let after = &self.shipped[at + name.len()..];
            !before.ends_with("::")
                && (after.starts_with("::") || before.ends_with("use") && after.starts_with([' ', ';']))
        });
        inside.map(|at| line_of(&self.shipped, at)).collect()
    }

    /// The names of the files that `mod name;` declares.
    pub fn declared_modules(&self) -> Vec<String> {
        declared_modules(&self.code)
    }

    /// The same, without what only tests see.
    pub fn shipped_modules(&self) -> Vec<String> {
        declared_modules(&self.shipped)
    }

    /// The files that `#[path = "…"]` names.
    pub fn placed_modules(&self) -> &[String] {
        &self.placed
    }

    /// The same, without what only tests see.
    pub fn shipped_placed_modules(&self) -> &[String] {
        &self.shipped_placed
    }

    /// Every function with a body.
    pub fn functions(&self) -> Vec<Function> {
        let functions = occurrences(&self.code, "fn ").filter_map(|at| {
            let rest = &self.code[at + 3..];
            let name = identifier(rest.trim_start());
            let opens = rest.find(['{', ';']).filter(|_| !name.is_empty())?;
            // `[u8; 4]` in a signature is no end of it.
            let opens = if inside_brackets(&rest[..opens]) { rest.find('{')? } else { opens };
            let body = block(&self.code, at + 3 + opens)?;
            let line = line_of(&self.code, at);
            Some(Function { name: name.to_owned(), line, lines: line_of(&self.code, body.end - 1) - line + 1 })
        });
        functions.collect()
    }
}

/// Lines on which a word stands, no letter or digit around it.
pub fn lines_with(code: &str, word: &str) -> Vec<usize> {
    let ends = |at: &usize| !code[at + word.len()..].starts_with(is_in_identifier) || word.ends_with(['(', ':']);
    occurrences(code, word).filter(ends).map(|at| line_of(code, at)).collect()
}

/// Where a text stands that begins at the start of an identifier.
pub fn occurrences<'a>(code: &'a str, text: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(text).map(|(at, _)| at).filter(|at| !code[..*at].ends_with(is_in_identifier))
}

pub fn is_in_identifier(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

pub fn identifier(text: &str) -> &str {
    &text[..text.find(|c| !is_in_identifier(c)).unwrap_or(text.len())]
}

pub fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

fn inside_brackets(text: &str) -> bool {
    text.matches('[').count() > text.matches(']').count()
}

/// The names of the files that `mod name;` declares in this code.
fn declared_modules(code: &str) -> Vec<String> {
    let names = occurrences(code, "mod ").filter_map(|at| {
        let rest = code[at + 4..].trim_start();
        let name = identifier(rest);
        rest[name.len()..].trim_start().starts_with(';').then(|| name.to_owned())
    });
    names.collect()
}

/// A path that is named inside these modules, from the crate on. Nothing if it leads elsewhere.
fn absolute(modules: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut found = match path.first()?.as_str() {
        "crate" | "pathswarm" => Vec::new(),
        "self" | "super" => modules.to_vec(),
        _ => return None,
    };
    for name in path {
        match name.as_str() {
            "super" => drop(found.pop()),
            "crate" | "pathswarm" | "self" | "" => {}
            name => found.push(name.to_owned()),
        }
    }
    Some(found)
}

/// Follows a path or a group of paths, so many steps deep at the most.
fn follow(text: &str, most: usize, begun: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    let text = text.trim_start();
    if begun.len() == most {
        return paths.push(begun.clone());
    }
    if let Some(group) = text.strip_prefix('{') {
        let mut depth = 0usize;
        let mut start = 0;
        for (at, character) in group.char_indices() {
            match character {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    if !group[start..at].trim().is_empty() {
                        follow(&group[start..at], most, &mut begun.clone(), paths);
                    }
                    start = at + 1;
                    if character == '}' {
                        return;
                    }
                }
                _ => {}
            }
        }
        return;
    }
    let name = identifier(text);
    begun.push(name.to_owned());
    match text[name.len()..].trim_start().strip_prefix("::") {
        Some(rest) if !name.is_empty() => follow(rest, most, begun, paths),
        _ => paths.push(begun.clone()),
    }
}

/// From an opening brace to behind its closing one.
pub fn block(code: &str, opens: usize) -> Option<Range<usize>> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(opens) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return (byte == b'}').then_some(opens..at + 1);
        }
    }
    None
}

/// The texts of all `#[path = "…"]`: found in the code, where comments are blank, and read from the source, whose bytes
/// stand at the same places.
fn placed_modules(text: &str, code: &str) -> Vec<String> {
    let paths = code.match_indices("#[path = ").filter_map(|(at, found)| {
        let rest = text[at + found.len()..].strip_prefix('"')?;
        Some(rest[..rest.find('"')?].to_owned())
    });
    paths.collect()
}

/// Blanks every item under `#[cfg(test)]`.
fn blank_tests(code: &str) -> String {
    let mut shipped = code.to_owned();
    for (at, _) in code.match_indices("#[cfg(test)]") {
        let end = match code[at..].find(['{', ';']).map(|offset| at + offset) {
            Some(opens) if code[opens..].starts_with('{') => block(code, opens).map_or(code.len(), |block| block.end),
            Some(semicolon) => semicolon + 1,
            None => code.len(),
        };
        shipped.replace_range(at..end, &blank(&code[at..end]));
    }
    shipped
}

fn blank(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// Blanks comments and what stands between quotes, byte for byte.
fn blank_comments_and_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let starts_word = !code.ends_with(is_in_identifier);
        let length = comment(rest).or_else(|| literal(rest, starts_word));
        match length {
            Some(length) => code += &blank(&rest[..length]),
            None => code.push(first),
        }
        rest = &rest[length.unwrap_or(first.len_utf8())..];
    }
    code
}

fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with("/*") {
        return None;
    }
    let (mut depth, mut at) = (0usize, 0);
    loop {
        match rest.get(at..at + 2) {
            Some("/*") => (depth, at) = (depth + 1, at + 2),
            Some("*/") => (depth, at) = (depth - 1, at + 2),
            _ if at >= rest.len() => return Some(rest.len()),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

fn literal(rest: &str, starts_word: bool) -> Option<usize> {
    if starts_word && let Some(length) = raw_string(rest) {
        return Some(length);
    }
    match rest.as_bytes() {
        [b'"', ..] => Some(1 + quoted(&rest[1..], b'"')),
        [b'\'', b'\\', ..] => Some(1 + quoted(&rest[1..], b'\'')),
        // `'a'` is a character, `'a` a lifetime.
        [b'\'', ..] => {
            let inner = rest[1..].chars().next()?.len_utf8();
            rest[1 + inner..].starts_with('\'').then_some(inner + 2)
        }
        _ => None,
    }
}

/// The length of `r"…"`, `br#"…"#` and the like.
fn raw_string(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let hashes = inner.len() - inner.trim_start_matches('#').len();
    let start = rest.len() - inner.len() + hashes;
    rest[start..].starts_with('"').then_some(())?;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(rest[start + 1..].find(&close).map_or(rest.len(), |at| start + 1 + at + close.len()))
}

/// The length up to and with a closing quote, past what is escaped.
fn quoted(inner: &str, quote: u8) -> usize {
    let mut escaped = false;
    for (at, byte) in inner.bytes().enumerate() {
        if byte == quote && !escaped {
            return at + 1;
        }
        escaped = byte == b'\\' && !escaped;
    }
    inner.len()
}
