//! Whether a tokenizer gives a text back: tried on samples of what texts hold.

use crate::text::tokenizer::{Tokenizer, TokenizerError};

/// Texts of several scripts and of code, with what normalizers like to change.
const SAMPLES: [&str; 9] = [
    "It's 12,345 o'clock;\n\n\tif (x != y) { return \"é漢字🦀\"; }\r\n  end. ",
    " a space before,  two  within, and one behind ",
    "UPPER Mixed lower, ÀÉÎ straße İstanbul ΑΣ",
    "e\u{301} and é, ﬁne, Ａ, ½, ①, \u{212b}, \u{1100}\u{1161}",
    "it\u{2019}s \u{201c}quoted\u{201d}\u{2026} \u{2013} \u{2014} `` '' ... --",
    "हिन्दी العربية עברית ไทย 한국어 日本語 Ελληνικά Русский",
    "👩\u{200d}👩\u{200d}👧 🏳️\u{200d}🌈 \u{feff}\u{200b}\u{ad}\u{fffd}",
    "\u{85}\u{a0}\u{2028}\u{3000}\r\t\n\n\n   \n",
    "https://example.org/?a=1&b=%20#c <b>bold</b> &amp; \\n Ġ Ċ <0x0A> [UNK] <unk>",
];

/// Added tokens that are tried in a text.
const MAX_ADDED: usize = 1024;

impl Tokenizer {
    /// Fails if a sample does not come back, with the number of samples that did.
    pub(super) fn check_round_trip(&self, added: &[String]) -> Result<(), (usize, TokenizerError)> {
        let quoted = added.iter().take(MAX_ADDED).map(|token| format!("a {token} b{token}c"));
        let samples = SAMPLES.iter().map(|sample| (*sample).to_owned()).chain([every_byte()]).chain(quoted);
        for (number, sample) in samples.enumerate() {
            let back = self.decode(&self.encode(&sample).map_err(|error| (number, error))?);
            let whole = back == sample || self.adds_space && back.strip_prefix(' ') == Some(&sample);
            if !whole {
                let from = sample.bytes().zip(back.bytes()).take_while(|(one, other)| one == other).count();
                let short = |text: &str| {
                    let from = (0..=from.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                    text[from..].chars().take(24).collect::<String>()
                };
                let (sample, back) = (short(&sample), short(&back));
                let reason = format!("it does not restore {sample:?}: it decodes as {back:?}");
                return Err((number, TokenizerError::Unsupported { reason }));
            }
        }
        Ok(())
    }
}

/// Characters that have every byte of UTF-8 that texts have. Vocabularies that were learnt from text alone lack some
/// control characters and the planes that Unicode has not assigned, as that of SmolLM2 does.
fn every_byte() -> String {
    let two = (0..0x800).chain((0x800..0xd800).step_by(0x7f)).chain((0xe000..0x4_0000).step_by(0x0f01));
    let all = two.chain((0xe_0000..0x11_0000).step_by(0x0f01));
    all.filter_map(char::from_u32).filter(|it| !it.is_ascii_control() || it.is_ascii_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_samples_have_every_byte_that_a_text_can_have() {
        let bytes: BTreeSet<u8> = every_byte().into_bytes().into_iter().collect();
        let written = |byte: &u8| !byte.is_ascii_control() || byte.is_ascii_whitespace();
        let expected: BTreeSet<u8> =
            (0..=0xf4).filter(written).filter(|byte| ![0xc0, 0xc1, 0xf1, 0xf2].contains(byte)).collect();
        assert_eq!(bytes, expected);
    }
}
