//! Rows of small images as one PNG.

use std::io::Cursor;

use image::{ImageFormat, Rgb, RgbImage};

/// Between two images.
const GAP: u32 = 4;
const PAPER: Rgb<u8> = Rgb([255, 255, 255]);

/// A square image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    side: usize,
    /// Row by row.
    pixels: Vec<[u8; 3]>,
}

impl Tile {
    /// From the bytes of its red, green and blue plane.
    pub fn of_planes(bytes: &[u8], side: usize) -> Self {
        let plane = side * side;
        let pixel = |at: usize| [0, 1, 2].map(|colour| bytes.get(colour * plane + at).copied().unwrap_or_default());
        Self { side, pixels: (0..plane).map(pixel).collect() }
    }

    /// One of its patches, counted row by row.
    pub fn patch(&self, patch: usize, number: usize) -> Self {
        let across = (self.side / patch).max(1);
        let (top, left) = (number / across * patch, number % across * patch);
        let pixel = |at: usize| self.pixels[(top + at / patch) * self.side + left + at % patch];
        Self { side: patch, pixels: (0..patch * patch).map(pixel).collect() }
    }

    /// In grey, each patch tinted by a value from 0, blue, to 1, red.
    pub fn tinted(&self, patch: usize, values: &[f64]) -> Self {
        let across = (self.side / patch).max(1);
        let pixel = |(at, [red, green, blue]): (usize, &[u8; 3])| {
            let grey = (f64::from(*red) + f64::from(*green) + f64::from(*blue)) / 3.0;
            let value =
                values.get(at / self.side / patch * across + at % self.side / patch).copied().unwrap_or_default();
            heat(value).map(|tint| (0.45 * grey + 0.55 * f64::from(tint)) as u8)
        };
        Self { side: self.side, pixels: self.pixels.iter().enumerate().map(pixel).collect() }
    }
}

/// From blue over white to red.
fn heat(value: f64) -> [u8; 3] {
    let value = value.clamp(0.0, 1.0);
    let fading = |share: f64| (255.0 * share) as u8;
    if value < 0.5 {
        let share = 2.0 * value;
        [fading(share), fading(share), 255]
    } else {
        let share = 2.0 - 2.0 * value;
        [255, fading(share), fading(share)]
    }
}

/// Rows of images, each so many pixels wide and high, as a PNG.
pub fn sheet(rows: &[Vec<Tile>], shown: u32) -> anyhow::Result<Vec<u8>> {
    let across = rows.iter().map(Vec::len).max().unwrap_or(0) as u32;
    anyhow::ensure!(across > 0, "there is no image to draw");
    let size = |count: u32| GAP + count * (shown + GAP);
    let mut paper = RgbImage::from_pixel(size(across), size(rows.len() as u32), PAPER);
    for (row, tiles) in rows.iter().enumerate() {
        for (column, tile) in tiles.iter().enumerate() {
            let (left, top) = (GAP + column as u32 * (shown + GAP), GAP + row as u32 * (shown + GAP));
            for down in 0..shown {
                for right in 0..shown {
                    let nearest = |at: u32| at as usize * tile.side / shown as usize;
                    let pixel = tile.pixels[nearest(down) * tile.side + nearest(right)];
                    paper.put_pixel(left + right, top + down, Rgb(pixel));
                }
            }
        }
    }
    let mut bytes = Cursor::new(Vec::new());
    paper.write_to(&mut bytes, ImageFormat::Png)?;
    Ok(bytes.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile() -> Tile {
        // Four patches of 2 x 2: black, red, green, blue.
        let lit = |colour: usize, at: usize| usize::from(at / 4 >= 2) * 2 + usize::from(at % 4 >= 2) == colour + 1;
        let bytes: Vec<u8> =
            (0..3).flat_map(|colour| (0..16).map(move |at| if lit(colour, at) { 255 } else { 0 })).collect();
        Tile::of_planes(&bytes, 4)
    }

    #[test]
    fn patches_are_cut_as_one_reads() {
        let colours = [[0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255]];
        for (number, colour) in colours.into_iter().enumerate() {
            assert_eq!(tile().patch(2, number), Tile { side: 2, pixels: vec![colour; 4] });
        }
    }

    #[test]
    fn a_sheet_shows_each_image_where_it_belongs() {
        let png = sheet(&[vec![tile()], vec![tile().patch(2, 1), tile().patch(2, 3)]], 8).unwrap();
        let read = image::load_from_memory(&png).unwrap().to_rgb8();
        assert_eq!(read.dimensions(), (28, 28));
        assert_eq!([(5, 5), (11, 5), (5, 11)].map(|(x, y)| read.get_pixel(x, y).0), [[0; 3], [255, 0, 0], [0, 255, 0]]);
        assert_eq!((read.get_pixel(17, 17).0, read.get_pixel(17, 5)), ([0, 0, 255], &PAPER));
        assert!(sheet(&[vec![]], 8).is_err());
    }

    #[test]
    fn what_is_tinted_goes_from_blue_to_red() {
        let tinted = tile().tinted(2, &[0.0, 1.0, 0.5, 2.0]);
        let [first, second] = [0, 2].map(|at| tinted.pixels[at]);
        assert!(first[2] > 100 && first[0] == 0 && second[0] > 100 && second[2] < 60, "{first:?} {second:?}");
    }
}
