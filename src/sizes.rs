//! Sizes in words.

/// Bytes as people read them: 512 B, 1.5 kB, 29.4 MB, 1.25 GB.
pub fn in_words(bytes: u64) -> String {
    let size = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", size / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", size / 1e6),
        _ => format!("{:.2} GB", size / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_size_is_never_nothing() {
        let words = [0, 999, 1_000, 1_499, 25_679_801, 999_000_000, 1_250_000_000].map(in_words);
        assert_eq!(words, ["0 B", "999 B", "1.0 kB", "1.5 kB", "25.7 MB", "999.0 MB", "1.25 GB"]);
    }
}
