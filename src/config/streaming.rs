//! Levels that are synchronised one after the other during a phase (Streaming DiLoCo, Douillard et al. 2025).

use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize};

use crate::names::{Phase, Version};

/// `outer.streaming`: `true`, or a table with values that differ from the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Streaming {
    /// Weight of a path's own parameters when a level's update is mixed in, from 0 to 1 (the paper's α).
    pub mix: f32,
    /// Number of parts of a phase after which an update is due, from 1 to the number of levels less one.
    pub overlap: u64,
}

impl Default for Streaming {
    fn default() -> Self {
        Self { mix: 0.5, overlap: 1 }
    }
}

impl Streaming {
    /// Whether the values are valid for so many levels.
    pub fn fits(&self, levels: usize) -> bool {
        (0.0..1.0).contains(&self.mix) && (1..levels as u64).contains(&self.overlap)
    }
}

/// Reads the bool or table of a file.
pub fn read_streaming<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Streaming>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "true, false, or a table of mix and overlap")]
    enum Switch {
        Plain(bool),
        Told(Streaming),
    }
    Ok(match Option::deserialize(from)? {
        Some(Switch::Plain(streams)) => streams.then(Streaming::default),
        Some(Switch::Told(streaming)) => Some(streaming),
        None => None,
    })
}

/// The parts of a phase, one for each level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stagger {
    /// For each part, the number of inner steps at its end. Part i belongs to level i.
    ends: Vec<u64>,
    /// Number of parts after which an update is mixed in.
    overlap: u64,
}

impl Stagger {
    /// Parts of about equal length, one for each level.
    ///
    /// # Panics
    /// If there are fewer inner steps than levels, or no level. [`crate::config::RunConfig::check`] excludes both.
    pub fn new(levels: usize, inner_steps: u64, overlap: u64) -> Self {
        assert!(levels > 0 && inner_steps >= levels as u64, "a step for each level");
        let levels = levels as u64;
        Self { ends: (1..=levels).map(|part| (part * inner_steps).div_ceil(levels)).collect(), overlap }
    }

    /// The inner steps of a level's part.
    pub fn steps(&self, level: usize) -> Range<u64> {
        level.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[level]
    }

    /// The level whose update is mixed in before a level's part of a phase, if one has arrived in a swarm in step.
    pub fn mixed_before(&self, phase: Phase, level: usize) -> Option<usize> {
        let now = self.number(Version(phase.0), level as u16);
        let offered = now.checked_sub(1 + self.overlap)?;
        Some((offered % self.ends.len() as u64) as usize)
    }

    /// The part that ends with the outer gradient for a version of a level, counted from the beginning of the run.
    pub fn number(&self, version: Version, level: u16) -> u64 {
        version.0.saturating_mul(self.ends.len() as u64) + u64::from(level)
    }

    /// The part before which the update with this contribution is mixed in.
    pub fn mixed_at(&self, version: Version, level: u16) -> u64 {
        self.number(version, level) + 1 + self.overlap
    }

    /// The level whose part contains this inner step of a phase.
    pub fn level_at(&self, steps: u64) -> usize {
        self.ends.partition_point(|end| *end <= steps).min(self.ends.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_a_phase_whatever_its_steps() {
        for (levels, steps) in [(2, 3), (3, 100), (4, 4), (7, 50)] {
            let parts = Stagger::new(levels, steps, 1);
            let ranges: Vec<_> = (0..levels).map(|level| parts.steps(level)).collect();
            assert_eq!((ranges[0].start, ranges[levels - 1].end), (0, steps));
            assert!(ranges.windows(2).all(|two| two[0].end == two[1].start && two[0].start < two[0].end));
        }
    }

    #[test]
    fn an_update_is_mixed_in_before_its_level_is_due_again() {
        let parts = Stagger::new(3, 30, 2);
        // Two parts after part 1 of phase 4 comes part 1 of phase 5.
        assert_eq!(parts.mixed_at(Version(4), 1), parts.number(Version(5), 1));
        assert_eq!((parts.mixed_before(Phase(5), 1), parts.mixed_before(Phase(0), 2)), (Some(1), None));
        assert_eq!(parts.mixed_before(Phase(1), 0), Some(0));
        assert_eq!((parts.level_at(9), parts.level_at(10), parts.level_at(30)), (0, 1, 2));
    }
}
