//! Interventions: replacing the outputs of routers and heads.

use std::str::FromStr;

use tch::{TchError, Tensor};

use crate::config::ModelConfig;
use crate::inspect::subject::InspectError;
use crate::model::layers::watch::Watch;

/// Where something is changed: everywhere, restricted by the given parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only in this layer.
    pub layer: Option<usize>,
    /// Only in these heads.
    pub head: Option<usize>,
    /// Only these directions.
    pub direction: Option<usize>,
}

/// The replacement.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Weights get this value.
    Weight(f64),
    /// Heads output zero.
    Silence,
}

/// Changes of a network while it reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Intervention(pub Vec<(Scope, Change)>);

const EXPECTED: &str = "write off, neutral, full, silent, or a weight from 0 to 1; before it, layer=N, head=N, \
    direction=N and a colon select a part: layer=2,head=0:off";

impl FromStr for Change {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "off" => Ok(Self::Weight(0.0)),
            "neutral" => Ok(Self::Weight(0.5)),
            "full" => Ok(Self::Weight(1.0)),
            "silent" => Ok(Self::Silence),
            _ => text.parse().ok().filter(|weight| (0.0..=1.0).contains(weight)).map(Self::Weight).ok_or(()),
        }
    }
}

impl FromStr for Intervention {
    type Err = InspectError;

    fn from_str(text: &str) -> Result<Self, InspectError> {
        let wrong = || InspectError::Syntax { found: text.to_owned(), expected: EXPECTED };
        let (places, change) = text.rsplit_once(':').unwrap_or(("", text));
        let mut scope = Scope::default();
        for place in places.split(',').filter(|place| !place.is_empty()) {
            let (key, number) = place.split_once('=').ok_or_else(wrong)?;
            let number = Some(number.parse().map_err(|_| wrong())?);
            let place = match key.trim() {
                "layer" => &mut scope.layer,
                "head" => &mut scope.head,
                "direction" => &mut scope.direction,
                _ => return Err(wrong()),
            };
            if std::mem::replace(place, number).is_some() {
                return Err(wrong());
            }
        }
        let change = change.parse().map_err(|()| wrong())?;
        // Heads can only be silenced as a whole.
        if change == Change::Silence && scope.direction.is_some() {
            return Err(wrong());
        }
        Ok(Self(vec![(scope, change)]))
    }
}

impl Intervention {
    /// One weight within a scope.
    pub fn weight(scope: Scope, weight: f64) -> Self {
        Self(vec![(scope, Change::Weight(weight))])
    }

    /// Weight 0 in a layer.
    pub fn layer_off(layer: usize) -> Self {
        Self::weight(Scope { layer: Some(layer), ..Scope::default() }, 0.0)
    }

    pub fn check(&self, model: &ModelConfig) -> Result<(), InspectError> {
        let directions = model.directional.as_ref().ok_or(InspectError::Plain)?.directions;
        for (scope, _) in &self.0 {
            let parts = [
                ("layer", scope.layer, model.blocks),
                ("head", scope.head, model.heads),
                ("direction", scope.direction, directions),
            ];
            for (what, found, count) in parts {
                if let Some(found) = found.filter(|found| *found >= count) {
                    return Err(InspectError::Unknown { what, found, count });
                }
            }
        }
        Ok(())
    }

    /// For a model with these numbers of heads and directions.
    pub fn of(&self, model: &ModelConfig) -> Intervening<'_> {
        let directions = model.directional.as_ref().map_or(0, |directional| directional.directions as i64);
        Intervening { changes: &self.0, heads: model.heads as i64, directions }
    }
}

/// An active intervention.
pub struct Intervening<'a> {
    changes: &'a [(Scope, Change)],
    heads: i64,
    directions: i64,
}

/// A copy of the values.
fn own(tensor: &Tensor) -> Result<Tensor, TchError> {
    let mut own = tensor.f_zeros_like()?;
    own.f_copy_(tensor)?;
    Ok(own)
}

/// A part of a tensor along a dimension, or all of it.
fn part(tensor: &Tensor, dimension: i64, which: Option<usize>) -> Result<Tensor, TchError> {
    match which {
        Some(which) => tensor.f_narrow(dimension, which as i64, 1),
        None => Ok(tensor.shallow_clone()),
    }
}

impl Watch for Intervening<'_> {
    fn routing(&self, block: usize, routing: Tensor) -> Result<Tensor, TchError> {
        let apart = own(&routing.f_unflatten(-1, [self.heads, self.directions])?)?;
        for (scope, change) in self.changes.iter().filter(|(scope, _)| scope.layer.is_none_or(|layer| layer == block)) {
            if let Change::Weight(weight) = change {
                let _ = part(&part(&apart, -2, scope.head)?, -1, scope.direction)?.f_fill_(*weight)?;
            }
        }
        apart.f_flatten(-2, -1)
    }

    fn heads(&self, block: usize, heads: Tensor) -> Result<Tensor, TchError> {
        let silent = self.changes.iter().filter(|(_, change)| *change == Change::Silence);
        let silent = silent.filter(|(scope, _)| scope.layer.is_none_or(|layer| layer == block));
        let mut heads = heads;
        for (scope, _) in silent {
            let width = heads.size().last().copied().unwrap_or(0) / self.heads.max(1);
            let apart = own(&heads.f_unflatten(-1, [self.heads, width])?)?;
            let _ = part(&apart, -2, scope.head)?.f_fill_(0.0)?;
            heads = apart.f_flatten(-2, -1)?;
        }
        Ok(heads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DirectionalConfig;
    use crate::model::samples::small_model;

    #[test]
    fn interventions_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<Intervention>();
        assert_eq!(read("off").unwrap(), Intervention::weight(Scope::default(), 0.0));
        let scope = Scope { layer: Some(2), head: Some(0), direction: Some(3) };
        assert_eq!(read("layer=2,head=0,direction=3:0.25").unwrap(), Intervention::weight(scope, 0.25));
        assert_eq!(read("layer=1,head=2:silent").unwrap().0[0].1, Change::Silence);
        for wrong in [
            "",
            "on",
            "1.5",
            "NaN",
            "layer:off",
            "row=3:off",
            "layer=x:off",
            "layer=1",
            "layer=0,layer=1:off",
            "direction=1:silent",
        ] {
            assert!(read(wrong).unwrap_err().to_string().contains("is not an intervention"), "{wrong}");
        }
    }

    #[test]
    fn parts_that_are_not_there_are_named() {
        let model = crate::config::ModelConfig { directional: Some(DirectionalConfig::of(3)), ..small_model() };
        let refused =
            |text: &str| text.parse::<Intervention>().unwrap().check(&model).map_err(|error| error.to_string());
        assert_eq!(refused("layer=1,head=1,direction=2:off"), Ok(()));
        assert_eq!(refused("layer=2:off"), Err("there is no layer 2; this model has 2, from 0".to_owned()));
        assert_eq!(refused("head=2:off"), Err("there is no head 2; this model has 2, from 0".to_owned()));
        assert_eq!(refused("direction=3:off"), Err("there is no direction 3; this model has 3, from 0".to_owned()));
        assert!(matches!("off".parse::<Intervention>().unwrap().check(&small_model()), Err(InspectError::Plain)));
    }

    #[test]
    fn only_what_is_named_changes() {
        let model = crate::config::ModelConfig { directional: Some(DirectionalConfig::of(3)), ..small_model() };
        let routing = Tensor::arange(12, (tch::Kind::Float, tch::Device::Cpu)).view([1, 2, 6]);
        let changed = |text: &str, block| {
            let intervention: Intervention = text.parse().unwrap();
            let found = intervention.of(&model).routing(block, routing.shallow_clone()).unwrap();
            Vec::<f32>::try_from(found.flatten(0, -1)).unwrap()
        };
        assert_eq!(changed("head=1:0.5", 0), [0.0, 1.0, 2.0, 0.5, 0.5, 0.5, 6.0, 7.0, 8.0, 0.5, 0.5, 0.5]);
        assert_eq!(
            changed("layer=0,direction=2:off", 0),
            [0.0, 1.0, 0.0, 3.0, 4.0, 0.0, 6.0, 7.0, 0.0, 9.0, 10.0, 0.0]
        );
        assert_eq!(changed("layer=1:off", 0), (0..12).map(|x| x as f32).collect::<Vec<_>>());
        let heads = Tensor::ones([1, 1, 16], (tch::Kind::Float, tch::Device::Cpu));
        let intervention: Intervention = "head=0:silent".parse().unwrap();
        let found = intervention.of(&model).heads(1, heads).unwrap();
        assert_eq!(Vec::<f32>::try_from(found.flatten(0, -1)).unwrap(), [[0.0; 8], [1.0; 8]].concat());
    }
}
