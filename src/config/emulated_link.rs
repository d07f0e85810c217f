//! The emulated link of a peer of `pathswarm simulate`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Bandwidth, latency and loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Upload.
    pub up_bytes_per_s: u64,
    /// Download.
    pub down_bytes_per_s: u64,
    /// To a peer with the same link. Each side delays what it sends by half of it.
    pub round_trip: Duration,
    /// Share of lost packets, 0 to 1.
    pub loss: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a link")]
pub struct LinkError(String);

/// 8 kbit/s.
const LEAST_BYTES_PER_S: u64 = 1_000;

const MOST_MS: u64 = 5_000;

impl FromStr for Link {
    type Err = LinkError;

    /// `20mbit/100ms`, `20mbit/100ms/1%`, or `5mbit:20mbit/100ms` where up and down differ.
    fn from_str(text: &str) -> Result<Self, LinkError> {
        parse(text).ok_or_else(|| LinkError(text.chars().take(80).collect()))
    }
}

fn parse(text: &str) -> Option<Link> {
    let mut parts = text.split('/');
    let rates = parts.next()?;
    let (up, down) = rates.split_once(':').unwrap_or((rates, rates));
    let round_trip_ms: u64 = parts.next()?.strip_suffix("ms")?.parse().ok()?;
    let loss: f64 = parts.next().map_or(Some(0.0), |loss| loss.strip_suffix('%')?.parse().ok())? / 100.0;
    let fits = round_trip_ms <= MOST_MS && (0.0..=0.5).contains(&loss) && parts.next().is_none();
    fits.then_some(Link {
        up_bytes_per_s: rate(up)?,
        down_bytes_per_s: rate(down)?,
        round_trip: Duration::from_millis(round_trip_ms),
        loss,
    })
}

fn rate(text: &str) -> Option<u64> {
    let units = [("kbit", 1_000.0), ("mbit", 1_000_000.0), ("gbit", 1_000_000_000.0)];
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let bytes_per_s = number.parse::<f64>().ok().filter(|number| number.is_finite())? * unit / 8.0;
    let bytes_per_s = bytes_per_s as u64;
    (LEAST_BYTES_PER_S..=12_500_000_000).contains(&bytes_per_s).then_some(bytes_per_s)
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = |bytes_per_s: u64| bytes_per_s as f64 * 8.0 / 1e6;
        write!(f, "{}mbit", mbit(self.up_bytes_per_s))?;
        if self.up_bytes_per_s != self.down_bytes_per_s {
            write!(f, ":{}mbit", mbit(self.down_bytes_per_s))?;
        }
        write!(f, "/{}ms", self.round_trip.as_millis())?;
        if self.loss > 0.0 {
            write!(f, "/{}%", self.loss * 100.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_and_written() {
        for text in ["20mbit/100ms", "20mbit/100ms/1%", "5mbit:20mbit/0ms", "1000mbit/200ms", "0.064mbit/50ms"] {
            assert_eq!(text.parse::<Link>().unwrap().to_string(), text);
        }
        let link: Link = "5mbit:1gbit/30ms/0.5%".parse().unwrap();
        assert_eq!((link.up_bytes_per_s, link.down_bytes_per_s), (625_000, 125_000_000));
        assert_eq!((link.round_trip, link.loss), (Duration::from_millis(30), 0.005));
    }

    #[test]
    fn what_is_no_link_is_refused() {
        for text in
            ["", "20mbit", "20/100ms", "20mbit/100", "20mbit/100ms/1", "20mbit/100ms/1%/x", "0mbit/1ms", "-1mbit/1ms"]
        {
            assert!(text.parse::<Link>().is_err(), "{text}");
        }
        for text in ["infmbit/1ms", "nanmbit/1ms", "1mbit/5001ms", "1mbit/1ms/60%", "1mbit/1ms/nan%"] {
            assert!(text.parse::<Link>().is_err(), "{text}");
        }
    }
}
