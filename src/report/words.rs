//! Numbers and times as people read them.

/// With a space between thousands.
pub(super) fn whole(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push('\u{202f}');
        }
        shown.push(digit);
    }
    shown
}

/// Such as 1.84 M.
pub(super) fn short(number: f64) -> String {
    match number {
        ..1e4 => whole(number),
        ..1e6 => format!("{:.0} k", number / 1e3),
        ..1e9 => format!("{:.2} M", number / 1e6),
        _ => format!("{:.2} G", number / 1e9),
    }
}

pub(super) fn seconds(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// A key or a hash, as the program shortens it.
pub(super) fn key(key: &str) -> String {
    let characters: Vec<char> = key.chars().collect();
    match characters.len() {
        ..=12 => key.to_owned(),
        _ => format!("{}…", characters[..8].iter().collect::<String>()),
    }
}

/// Milliseconds since 1970 as a date and a time, UTC.
pub(super) fn time(ms: u64) -> String {
    let (days, second) = (ms / 86_400_000, ms / 1_000 % 86_400);
    // Eras of 400 years that begin in March (Howard Hinnant's civil_from_days).
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next;
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_people_read_them() {
        assert_eq!([whole(1_234_567.0), whole(12.4)], ["1\u{202f}234\u{202f}567", "12"]);
        assert_eq!([short(1_836_160.0), short(45_000.0), short(7.0)], ["1.84 M", "45 k", "7"]);
        assert_eq!([seconds(61.0), seconds(600.0), seconds(9_000.0)], ["61 s", "10 min", "2.5 h"]);
        assert_eq!([key("15c62c9d336ea86e20c5"), key("short")], ["15c62c9d…", "short"]);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0), "1970-01-01 00:00 UTC");
        assert_eq!(time(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(time(1_795_779_549_601), "2026-11-27 11:39 UTC");
    }
}
