//! The switch threshold: how much likelier another path must be before a text leaves its own path.
//!
//! A transducer's choice from a few dozen tokens is right only a little more often than not. The path that the text's
//! first tokens chose has been trained on similar text. So the text switches only if another path is likelier by more
//! than a threshold, fitted on documents that the transducer has not seen.
//!
//! With good routes, few of those documents gain by switching; the costliest error is a rare text with a misleading
//! beginning. So of equally good thresholds the lowest is taken, which still trusts choices with more certainty than
//! any observed error.

/// With fewer places than this, it means little that no other path was likelier.
const FEW: usize = 30;

/// The lead in nats over a text's own path that another path needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwitchThreshold(f64);

/// A place where a path is chosen, with its costs.
pub struct Place<'a> {
    /// The transducer's log-probability of each path, in nats.
    pub preferences: &'a [f32],
    /// The text's own path.
    pub home: u32,
    /// The loss of each path on the following text.
    pub costs: &'a [f64],
}

impl SwitchThreshold {
    /// No threshold: the likeliest path reads on.
    pub const NONE: Self = Self(0.0);

    /// The threshold with the least cost at these places, the lowest of equals. Without evidence, no text switches.
    pub fn fit(places: &[Place<'_>]) -> Self {
        let mut switches: Vec<(f64, f64)> = places.iter().filter_map(switch).filter(|(lead, _)| *lead > 0.0).collect();
        if switches.is_empty() && places.len() < FEW {
            return Self(f64::INFINITY);
        }
        switches.sort_by(|a, b| b.0.total_cmp(&a.0));
        // A rival whose lead equals the threshold does not read on.
        let mut best = (0.0, switches.first().map_or(Self::NONE.0, |(lead, _)| *lead));
        let mut saved = 0.0;
        for (number, (lead, saves)) in switches.iter().enumerate() {
            saved += saves;
            let next = switches.get(number + 1).map_or(Self::NONE.0, |(lead, _)| *lead);
            // Equal leads cannot be separated by a threshold.
            if next < *lead && saved >= best.0 {
                best = (saved, next);
            }
        }
        Self(best.1)
    }

    /// The path that reads on.
    pub fn choose(self, preferences: &[f32], home: u32) -> u32 {
        match rival(preferences, home) {
            Some((path, lead)) if lead > self.0 => path,
            _ => home,
        }
    }

    /// Infinite if no text ever switches.
    pub fn nats(self) -> f64 {
        self.0
    }

    /// From nats; `None` if negative or NaN.
    pub fn of(nats: f64) -> Option<Self> {
        (nats >= 0.0).then_some(Self(nats))
    }
}

/// The likeliest path other than the text's own, the first of equals, and its lead.
fn rival(preferences: &[f32], home: u32) -> Option<(u32, f64)> {
    let others = (0u32..).zip(preferences.iter().copied()).filter(|(path, _)| *path != home);
    let (path, value) = others.reduce(|best, next| if next.1 > best.1 { next } else { best })?;
    Some((path, f64::from(value) - f64::from(*preferences.get(home as usize)?)))
}

/// The lead of the likeliest other path, and the nats that switching to it saves.
fn switch(place: &Place<'_>) -> Option<(f64, f64)> {
    let (path, lead) = rival(place.preferences, place.home)?;
    Some((lead, place.costs.get(place.home as usize)? - place.costs.get(path as usize)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_reads_on_only_if_it_leads_by_more() {
        let preferences = [-1.0, -0.5, -3.0];
        assert_eq!(SwitchThreshold::of(0.4).unwrap().choose(&preferences, 0), 1);
        assert_eq!(SwitchThreshold::of(0.6).unwrap().choose(&preferences, 0), 0);
        assert_eq!(SwitchThreshold::of(f64::INFINITY).unwrap().choose(&preferences, 2), 2);
        assert_eq!(
            [0, 1, 2].map(|home| SwitchThreshold::NONE.choose(&preferences, home)),
            [1; 3],
            "without any, the likeliest"
        );
        assert_eq!(
            (SwitchThreshold::of(f64::NAN), SwitchThreshold::of(-1.0), SwitchThreshold::NONE.choose(&[0.0], 0)),
            (None, None, 0)
        );
    }

    #[test]
    fn as_firm_as_would_have_served_best() {
        // The rival of home 0 leads by 3, 2, 1 and 0.5; switching saves 5 and 4, costs 6, and saves 1.
        let known =
            [([0.0, 3.0], [9.0, 4.0]), ([0.0, 2.0], [9.0, 5.0]), ([0.0, 1.0], [9.0, 15.0]), ([0.0, 0.5], [9.0, 8.0])];
        let places: Vec<Place<'_>> =
            known.iter().map(|(preferences, costs)| Place { preferences, home: 0, costs }).collect();
        assert_eq!(SwitchThreshold::fit(&places).nats(), 1.0);
        assert_eq!(
            SwitchThreshold::fit(&places[2..3]).nats(),
            1.0,
            "only a rival that leads by more than one that costs reads on"
        );
        assert_eq!(SwitchThreshold::fit(&places[3..]), SwitchThreshold::NONE, "one that only saves always does");
        assert_eq!(SwitchThreshold::fit(&[]).nats(), f64::INFINITY);
    }

    #[test]
    fn that_no_rival_ever_led_says_something_only_of_many_places() {
        let place = || Place { preferences: &[1.0, 0.0], home: 0, costs: &[1.0, 2.0] };
        let of = |count| SwitchThreshold::fit(&(0..count).map(|_| place()).collect::<Vec<_>>()).nats();
        assert_eq!((of(FEW - 1), of(FEW)), (f64::INFINITY, 0.0));
    }

    #[test]
    fn equal_leads_cannot_be_told_apart() {
        let known = [([0.0, 1.0], [9.0, 1.0]), ([0.0, 1.0], [1.0, 19.0])];
        let places: Vec<Place<'_>> =
            known.iter().map(|(preferences, costs)| Place { preferences, home: 0, costs }).collect();
        assert_eq!(SwitchThreshold::fit(&places).nats(), 1.0, "together they cost");
    }
}
