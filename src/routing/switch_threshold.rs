//! How firmly a text keeps to its own path where a transducer says that another would read on better.
//!
//! What a transducer says of some dozens of tokens is right only a little more often than not, and of two paths that are
//! nearly equal it names the wrong one half of the time. The path that a text's first tokens chose has been trained on
//! text of this kind. So another path reads on only if it is likelier by more than some nats, and how many is what would
//! have served best on documents that the transducer has not learnt from.
//!
//! Where routes are good, hardly any of those documents gains by leaving its path, and it is the rare text whose beginning
//! misled the router that costs most. So of thresholds that serve equally well the least is taken: what is said with more
//! certainty than was ever seen to be wrong is believed.

/// At fewer places than this it means little that no other path was ever said to be likelier.
const FEW: usize = 30;

/// Nats by which a path must be likelier than a text's own to read on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwitchThreshold(f64);

/// A place where a path is chosen, and all that is known of it.
pub struct Place<'a> {
    /// What each path is held to be worth, in nats.
    pub preferences: &'a [f32],
    /// The text's own path.
    pub home: u32,
    /// What each path needs for what follows.
    pub costs: &'a [f64],
}

impl SwitchThreshold {
    /// None: the likeliest reads on.
    pub const NONE: Self = Self(0.0);

    /// What has cost least at these places; of equals the least firm. Where nothing is known nobody else reads on.
    pub fn fit(places: &[Place<'_>]) -> Self {
        let mut switches: Vec<(f64, f64)> = places.iter().filter_map(switch).filter(|(lead, _)| *lead > 0.0).collect();
        if switches.is_empty() && places.len() < FEW {
            return Self(f64::INFINITY);
        }
        switches.sort_by(|a, b| b.0.total_cmp(&a.0));
        // A rival whose lead is a switch threshold does not read on any more.
        let mut best = (0.0, switches.first().map_or(Self::NONE.0, |(lead, _)| *lead));
        let mut saved = 0.0;
        for (number, (lead, saves)) in switches.iter().enumerate() {
            saved += saves;
            let next = switches.get(number + 1).map_or(Self::NONE.0, |(lead, _)| *lead);
            // Equal leads cannot be told apart.
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

    /// Infinite if no other path ever reads on.
    pub fn nats(self) -> f64 {
        self.0
    }

    /// Of so many nats; nothing if that is not a number of at least 0.
    pub fn of(nats: f64) -> Option<Self> {
        (nats >= 0.0).then_some(Self(nats))
    }
}

/// The likeliest path but a text's own, the first of equals, and by how much it is likelier.
fn rival(preferences: &[f32], home: u32) -> Option<(u32, f64)> {
    let others = (0u32..).zip(preferences.iter().copied()).filter(|(path, _)| *path != home);
    let (path, value) = others.reduce(|best, next| if next.1 > best.1 { next } else { best })?;
    Some((path, f64::from(value) - f64::from(*preferences.get(home as usize)?)))
}

/// By how much the likeliest other path is likelier, and the nats that it saves.
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
        // The rival of home 0 leads by 3, 2, 1 and 0.5, and saves 5 and 4, costs 6, saves 1.
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
