//! Documents of a corpus: texts and images.

use std::ops::Range;

use crate::config::Reads;
use crate::text::chat::MaskedText;

/// A document before tokenisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document<'a> {
    Text(&'a str),
    /// A text of which only parts are learnt.
    Masked(&'a MaskedText),
    /// The bytes of an image's planes, followed by its class in two bytes, little endian.
    Image(&'a [u8]),
}

/// Whether tokens are an image: so many bytes, followed by a class below `classes`.
pub fn is_image(tokens: &[u32], bytes: usize, classes: usize) -> bool {
    tokens.split_last().is_some_and(|(class, pixels)| {
        let are_bytes = pixels.iter().all(|byte| *byte <= u32::from(u8::MAX));
        pixels.len() == bytes && are_bytes && (*class as usize) < classes
    })
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DocumentError {
    #[error("this run reads images, but the input is text; give a .images file, which pathswarm prepare writes")]
    NoImages,
    #[error("this run reads text, but the input is images; give text, or a run with [model.images]")]
    NoText,
    #[error("the images have {found} pixels a side, and the model reads {side}; prepare them with --side {side}")]
    Side { found: usize, side: usize },
    #[error(
        "an image has class {class} (counted from 0), but model.vocabulary = {classes}; set it to the number of classes"
    )]
    Class { class: usize, classes: usize },
}

impl<'a> Document<'a> {
    pub(super) fn suits(&self, reads: Reads) -> Result<(), DocumentError> {
        match (self, reads) {
            (Self::Text(_) | Self::Masked(_), Reads::Text) => Ok(()),
            (Self::Text(_) | Self::Masked(_), Reads::Images { .. }) => Err(DocumentError::NoImages),
            (Self::Image(_), Reads::Text) => Err(DocumentError::NoText),
            (Self::Image(_), Reads::Images { side, classes }) => {
                let (pixels, class) = self.image().unwrap_or_default();
                let class = usize::from(class);
                if pixels.len() != 3 * side * side {
                    return Err(DocumentError::Side { found: (pixels.len() / 3).isqrt(), side });
                }
                if class < classes { Ok(()) } else { Err(DocumentError::Class { class, classes }) }
            }
        }
    }

    /// The bytes that the document's hash covers.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Masked(masked) => masked.text.as_bytes(),
            Self::Image(bytes) => bytes,
        }
    }

    /// Whether there is nothing to learn from it.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.trim().is_empty(),
            Self::Masked(masked) => masked.text.trim().is_empty(),
            Self::Image(bytes) => bytes.len() < 3,
        }
    }

    /// Which parts of it are learnt; none are named where all is.
    pub(super) fn learnt(&self) -> &'a [Range<usize>] {
        match self {
            Self::Masked(masked) => &masked.learnt,
            Self::Text(_) | Self::Image(_) => &[],
        }
    }

    /// The planes of an image, and its class; `None` for text.
    pub(super) fn image(&self) -> Option<(&'a [u8], u16)> {
        let Self::Image(bytes) = self else { return None };
        let (pixels, class) = bytes.split_last_chunk()?;
        Some((pixels, u16::from_le_bytes(*class)))
    }

    /// An image's bytes as ids, followed by its class; `None` for text, which needs a tokenizer.
    pub fn image_ids(&self) -> Option<Vec<u32>> {
        let (pixels, class) = self.image()?;
        Some(pixels.iter().map(|byte| u32::from(*byte)).chain([u32::from(class)]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_images_class_stands_behind_its_bytes() {
        assert_eq!(Document::Image(&[7, 0, 255, 2, 1]).image_ids(), Some(vec![7, 0, 255, 258]));
        assert_eq!(Document::Image(&[1]).image_ids(), None);
        assert_eq!(Document::Text("abc").image_ids(), None);
        assert_eq!(Document::Text("abc").bytes(), b"abc");
    }

    #[test]
    fn a_network_is_given_only_what_it_reads() {
        let images = Reads::Images { side: 1, classes: 3 };
        assert_eq!(Document::Image(&[1, 2, 3, 2, 0]).suits(images), Ok(()));
        let error = |document: Document<'_>, reads| document.suits(reads).unwrap_err();
        assert_eq!(error(Document::Image(&[1, 2, 3, 3, 0]), images), DocumentError::Class { class: 3, classes: 3 });
        assert_eq!(error(Document::Image(&[0; 14]), images), DocumentError::Side { found: 2, side: 1 });
        assert_eq!(error(Document::Text("abc"), images), DocumentError::NoImages);
        assert_eq!(error(Document::Image(&[0; 5]), Reads::Text), DocumentError::NoText);
        assert_eq!(Document::Text("abc").suits(Reads::Text), Ok(()));
    }
}
