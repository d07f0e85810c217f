//! `[training.augment]`: random changes of images before each step (data augmentation).

use serde::{Deserialize, Serialize};

use super::key_error::{KeyError, require, within};

/// The changes, in the order in which they are applied. A change that is not set is not applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Augment {
    /// Pixels of black padding on each side. A crop of the original size is then taken at a random place.
    pub crop: usize,
    /// Whether images are mirrored with probability 1/2.
    pub flip: bool,
    /// Brightness, contrast and saturation are each multiplied by a random factor between 1 - this and 1 + this, in
    /// random order.
    pub jitter: f64,
    /// Probability that a rectangle of 2 to 33% of the image is blackened (random erasing, Zhong et al. 2017).
    pub erase: f64,
    /// `α` of the Beta distribution from which the weight of an image in the mix with its neighbour is drawn. The
    /// classes get the same weights (MixUp, Zhang et al. 2018). 0 turns it off.
    pub mixup: f64,
    /// The same for the area that the neighbour does not cover (CutMix, Yun et al. 2019). If both are set, each batch
    /// uses one of them.
    pub cutmix: f64,
}

impl Augment {
    pub fn check(&self, side: usize) -> Result<(), KeyError> {
        let key = |name: &str| format!("training.augment.{name}");
        require(self.crop <= side / 2, &key("crop"), self.crop, "from 0 to half of the images' side")?;
        for (name, found) in [("jitter", self.jitter), ("erase", self.erase)] {
            within(&key(name), found, 0.0..=1.0)?;
        }
        for (name, found) in [("mixup", self.mixup), ("cutmix", self.cutmix)] {
            let fits = found == 0.0 || (0.01..=100.0).contains(&found);
            require(fits, &key(name), found, "from 0.01 to 100, or 0 for never")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused_by_its_key() {
        assert_eq!(Augment { crop: 4, jitter: 1.0, mixup: 0.8, ..Augment::default() }.check(32), Ok(()));
        let key = |augment: Augment| augment.check(32).unwrap_err().key.replace("training.augment.", "");
        assert_eq!(key(Augment { crop: 17, ..Augment::default() }), "crop");
        assert_eq!(key(Augment { jitter: 1.1, ..Augment::default() }), "jitter");
        assert_eq!(key(Augment { erase: f64::NAN, ..Augment::default() }), "erase");
        assert_eq!(key(Augment { cutmix: -1.0, ..Augment::default() }), "cutmix");
    }
}
