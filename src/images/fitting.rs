//! Makes one image square and small: decodes it within bounds, crops the middle square, and scales it.

use std::fs::File;
use std::io::{Cursor, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use image::imageops::{self, FilterType};
use image::{DynamicImage, ImageReader, Limits, RgbImage};

use crate::images::source::Offer;
use crate::images::source::cifar;

/// First and last bytes of a JPEG.
const JPEG_BEGINS: [u8; 2] = [0xFF, 0xD8];
const JPEG_ENDS: [u8; 2] = [0xFF, 0xD9];
/// Bytes that may follow the end.
const JPEG_TAIL_BYTES: usize = 64 << 10;

/// Limit of a file.
const MOST_FILE_BYTES: u64 = 256 << 20;
/// Limits of an image's side and of the memory for decoding.
const MOST_SIDE: u32 = 16_384;
const MOST_MEMORY: u64 = 512 << 20;

/// An image of the wanted size.
pub(super) struct Fitted {
    /// Planar.
    pub pixels: Vec<u8>,
    /// Whether it was not square and was cropped.
    pub cut: bool,
    /// Whether it was smaller.
    pub enlarged: bool,
}

impl Offer {
    /// The image in this size, or why it cannot be read.
    pub fn fitted(&self, side: usize) -> Result<Fitted, String> {
        match &self.pixels {
            Some(pixels) if side == cifar::SIDE => Ok(Fitted { pixels: pixels.clone(), cut: false, enlarged: false }),
            Some(pixels) => Ok(fit(interleaved(pixels, cifar::SIDE).into(), side)),
            None => Ok(fit(decode(&self.path)?, side)),
        }
    }
}

/// The first bytes of a file decide its format, not its name.
fn decode(path: &Path) -> Result<DynamicImage, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(MOST_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MOST_FILE_BYTES {
        return Err(format!("it is larger than {} MiB", MOST_FILE_BYTES >> 20));
    }
    if bytes.starts_with(&JPEG_BEGINS) && !ends(&bytes) {
        return Err("it is truncated".to_owned());
    }
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|error| error.to_string())?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(MOST_SIDE);
    limits.max_image_height = Some(MOST_SIDE);
    limits.max_alloc = Some(MOST_MEMORY);
    reader.limits(limits);
    // An image on which the library panics must not stop the rest.
    let decoded = catch_unwind(AssertUnwindSafe(|| reader.decode()));
    decoded.map_err(|_| "the decoder failed".to_owned())?.map_err(|error| error.to_string())
}

/// Whether a JPEG has an end marker; the library fills missing data with grey. Some cameras append data to it.
fn ends(bytes: &[u8]) -> bool {
    let tail = &bytes[bytes.len().saturating_sub(JPEG_TAIL_BYTES)..];
    tail.windows(JPEG_ENDS.len()).any(|marker| marker == JPEG_ENDS)
}

fn fit(image: DynamicImage, side: usize) -> Fitted {
    let (width, height) = (image.width(), image.height());
    let (edge, side) = (width.min(height), side as u32);
    let cut = width != height;
    let square = if cut { image.crop_imm((width - edge) / 2, (height - edge) / 2, edge, edge) } else { image };
    let mut square = over_black(square);
    if edge != side {
        square = imageops::resize(&square, side, side, FilterType::Triangle);
    }
    Fitted { pixels: planar(&square), cut, enlarged: edge < side }
}

/// Eight bits a colour, over a black background.
fn over_black(image: DynamicImage) -> RgbImage {
    if !image.color().has_alpha() {
        return image.into_rgb8();
    }
    let image = image.into_rgba8();
    let over = |value: u8, alpha: u8| ((u32::from(value) * u32::from(alpha) + 127) / 255) as u8;
    let mut opaque = RgbImage::new(image.width(), image.height());
    for (to, from) in opaque.pixels_mut().zip(image.pixels()) {
        let [red, green, blue, alpha] = from.0;
        to.0 = [red, green, blue].map(|value| over(value, alpha));
    }
    opaque
}

fn planar(image: &RgbImage) -> Vec<u8> {
    (0..3).flat_map(|colour| image.pixels().map(move |pixel| pixel.0[colour])).collect()
}

fn interleaved(pixels: &[u8], side: usize) -> RgbImage {
    let plane = side * side;
    RgbImage::from_fn(side as u32, side as u32, |x, y| {
        let at = y as usize * side + x as usize;
        image::Rgb([pixels[at], pixels[plane + at], pixels[2 * plane + at]])
    })
}

#[cfg(test)]
mod tests {
    use image::{GrayImage, ImageBuffer, ImageFormat, Luma, Rgb, Rgba, RgbaImage};

    use super::*;

    fn from_file(image: &DynamicImage, format: ImageFormat, name: &str, side: usize) -> Result<Fitted, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        image.save_with_format(&path, format).unwrap();
        Offer { path, class: 0, pixels: None }.fitted(side)
    }

    fn png(image: impl Into<DynamicImage>, side: usize) -> Fitted {
        from_file(&image.into(), ImageFormat::Png, "a.png", side).unwrap()
    }

    #[test]
    fn pixels_of_the_right_size_are_kept_as_they_are() {
        let image = RgbImage::from_fn(3, 3, |x, y| Rgb([x as u8, y as u8, (10 * y + x) as u8]));
        let fitted = png(image, 3);
        assert!(!fitted.cut && !fitted.enlarged);
        assert_eq!(fitted.pixels[..9], [0, 1, 2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(fitted.pixels[9..18], [0, 0, 0, 1, 1, 1, 2, 2, 2]);
        assert_eq!(fitted.pixels[18..], [0, 1, 2, 10, 11, 12, 20, 21, 22]);
    }

    #[test]
    fn the_middle_square_is_kept() {
        let wide = RgbImage::from_fn(6, 2, |x, _| Rgb([if (2..4).contains(&x) { 200 } else { 0 }, 0, 0]));
        let fitted = png(wide, 2);
        assert!(fitted.cut && !fitted.enlarged);
        assert_eq!(fitted.pixels, [[200; 4], [0; 4], [0; 4]].concat());
        let tall = RgbImage::from_fn(2, 6, |_, y| Rgb([0, if (2..4).contains(&y) { 100 } else { 0 }, 0]));
        let fitted = png(tall, 3);
        assert!(fitted.cut && fitted.enlarged);
        assert_eq!(fitted.pixels, [[0; 9], [100; 9], [0; 9]].concat());
    }

    #[test]
    fn grey_and_sixteen_bits_become_eight_bits_of_each_colour() {
        assert_eq!(png(GrayImage::from_pixel(2, 2, Luma([77])), 2).pixels, [77; 12]);
        let deep: ImageBuffer<Rgb<u16>, _> = ImageBuffer::from_pixel(4, 4, Rgb([65_535u16, 0, 257 * 100]));
        let fitted = png(deep, 1);
        assert_eq!((fitted.pixels, fitted.enlarged), (vec![255, 0, 100], false));
    }

    #[test]
    fn black_shines_through() {
        let image =
            RgbaImage::from_fn(2, 1, |x, _| if x == 0 { Rgba([255, 100, 9, 0]) } else { Rgba([200, 100, 0, 128]) });
        let wide = RgbaImage::from_fn(2, 2, |x, _| *image.get_pixel(x, 0));
        assert_eq!(png(wide, 2).pixels, [0, 100, 0, 100, 0, 50, 0, 50, 0, 0, 0, 0]);
    }

    #[test]
    fn a_jpeg_is_known_by_its_bytes_and_not_by_its_name() {
        let image = RgbImage::from_pixel(16, 16, Rgb([200, 100, 50])).into();
        let fitted = from_file(&image, ImageFormat::Jpeg, "a.png", 4).unwrap();
        for (plane, colour) in fitted.pixels.chunks(16).zip([200u8, 100, 50]) {
            assert!(plane.iter().all(|value| value.abs_diff(colour) < 6), "{plane:?}");
        }
    }

    #[test]
    fn an_image_that_would_fill_the_memory_is_refused() {
        // A header that claims more than the file has: 60,000 by 60,000 pixels.
        let image = GrayImage::from_pixel(1, 1, Luma([0]));
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, ImageFormat::Png).unwrap();
        let mut bytes = bytes.into_inner();
        for at in [16, 20] {
            bytes[at..at + 4].copy_from_slice(&60_000u32.to_be_bytes());
        }
        let check = crc(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&check.to_be_bytes());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let error = decode(file.path()).unwrap_err();
        assert!(error.to_lowercase().contains("limit"), "{error}");
    }

    fn crc(bytes: &[u8]) -> u32 {
        let bit = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
    }

    #[test]
    fn cifars_images_fit_other_sizes_too() {
        let pixels = [[10; 1024], [20; 1024], [30; 1024]].concat();
        let offer = Offer { path: "data_batch_1.bin".into(), class: 0, pixels: Some(pixels.clone()) };
        assert_eq!(offer.fitted(32).unwrap().pixels, pixels);
        let larger = offer.fitted(40).unwrap();
        assert!(larger.enlarged && !larger.cut);
        assert_eq!(larger.pixels, [[10; 1600], [20; 1600], [30; 1600]].concat());
        assert_eq!(offer.fitted(2).unwrap().pixels, [[10; 4], [20; 4], [30; 4]].concat());
    }
}
