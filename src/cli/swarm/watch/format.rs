//! Numbers, sizes and times for people, as the page writes them (`console/page/format.js`).

/// What is not known.
pub const UNKNOWN: &str = "–";

/// A whole number in groups of three digits.
pub fn whole(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// So many digits after the point.
pub fn fixed(value: Option<f64>, digits: usize) -> String {
    match value.filter(|value| value.is_finite()) {
        Some(value) => format!("{value:.digits$}"),
        None => UNKNOWN.to_owned(),
    }
}

/// A number of things, short.
pub fn count(value: f64) -> String {
    match value {
        value if !value.is_finite() || value < 0.0 => UNKNOWN.to_owned(),
        ..10_000.0 => whole(value.round() as u64),
        value => scaled(value, &[" k", " M", " G", " T"]),
    }
}

/// A number of bytes, short.
pub fn bytes(value: u64) -> String {
    match value {
        ..1_000 => format!("{value} B"),
        value => scaled(value as f64, &[" kB", " MB", " GB", " TB"]),
    }
}

fn scaled(value: f64, units: &[&str]) -> String {
    let (mut value, mut unit) = (value / 1e3, 0);
    while value >= 1e3 && unit + 1 < units.len() {
        (value, unit) = (value / 1e3, unit + 1);
    }
    format!("{value:.*}{}", usize::from(value < 100.0), units[unit])
}

/// A length of time in seconds.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return UNKNOWN.to_owned();
    }
    match seconds.max(0.0).round() as u64 {
        s @ ..60 => format!("{s} s"),
        s @ ..3_600 => format!("{} min {} s", s / 60, s % 60),
        s @ ..86_400 => format!("{} h {} min", s / 3_600, s / 60 % 60),
        s => format!("{} d {} h", s / 86_400, s / 3_600 % 24),
    }
}

pub fn percent(share: f64) -> String {
    match 100.0 * share {
        value if !value.is_finite() => UNKNOWN.to_owned(),
        value if value < 10.0 => format!("{value:.1} %"),
        value => format!("{value:.0} %"),
    }
}

/// A noun with its number.
pub fn plural(number: usize, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", whole(number as u64))
}

/// A bar of so many characters for a share.
pub fn bar(share: f64, characters: usize) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let full = (share * characters as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(characters - full))
}

/// The time of day where this machine stands.
pub fn clock(at_ms: u64) -> String {
    let seconds = libc::time_t::try_from(at_ms / 1_000).unwrap_or(0);
    // SAFETY: a zeroed `tm` is valid to be written to, and both pointers are those of locals.
    let local = unsafe {
        let mut local: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const seconds, &raw mut local);
        local
    };
    format!("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_say_their_unit() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(whole), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([9_999.0, 12_345.0, 123_456.0, 5e9].map(count), ["9,999", "12.3 k", "123 k", "5.0 G"]);
        assert_eq!([0, 999, 1_500, 123_000_000].map(bytes), ["0 B", "999 B", "1.5 kB", "123 MB"]);
        assert_eq!([59.4, 61.0, 3_700.0, 200_000.0].map(duration), ["59 s", "1 min 1 s", "1 h 1 min", "2 d 7 h"]);
        assert_eq!([0.051, 0.42, 1.0].map(percent), ["5.1 %", "42 %", "100 %"]);
        assert_eq!((fixed(Some(2.34567), 3), fixed(None, 3)), ("2.346".to_owned(), "–".to_owned()));
        assert_eq!([f64::NAN, f64::INFINITY, -1.0].map(count), ["–"; 3]);
        assert_eq!((duration(f64::NAN), percent(f64::NAN)), ("–".to_owned(), "–".to_owned()));
    }

    #[test]
    fn a_bar_has_its_length_whatever_the_share() {
        assert_eq!(bar(0.5, 4), "██░░");
        for share in [f64::NAN, -1.0, 0.0, 0.3, 1.0, 7.0] {
            assert_eq!(bar(share, 10).chars().count(), 10);
        }
    }

    #[test]
    fn a_time_of_day_has_two_digits_each() {
        let time = clock(1_700_000_000_000);
        assert!(
            time.len() == 8 && time.split(':').all(|part| part.parse::<u32>().is_ok_and(|part| part < 61)),
            "{time}"
        );
    }
}
