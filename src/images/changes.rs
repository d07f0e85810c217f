//! Changes of a single image: crop, mirror, jitter of colours, erase.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

/// Smallest and largest share of the area that is erased.
const HOLE_AREA: (f64, f64) = (0.02, 0.33);
/// Smallest and largest ratio of height to width of the erased rectangle.
const HOLE_ASPECT: (f64, f64) = (0.3, 3.3);

/// A crop of the original size at a random place of the image with a black border.
pub(super) fn cropped(pixels: &[u8], side: usize, border: usize, chance: &mut impl Rng) -> Vec<u8> {
    let border = border.min(side);
    let [across, down] = [(); 2].map(|()| chance.random_range(0..=2 * border as u32) as usize);
    let mut cut = vec![0; pixels.len()];
    // For a row or column at `offset` in the bordered image: its start there and here, and its length.
    let overlap = |offset: usize| {
        let (from, to) = (offset.saturating_sub(border), border.saturating_sub(offset));
        (from, to, side.saturating_sub(from + to))
    };
    let ((left, to_left, width), (top, to_top, height)) = (overlap(across), overlap(down));
    for (from, to) in pixels.chunks_exact(plane(side)).zip(cut.chunks_exact_mut(plane(side))) {
        let rows = from.chunks_exact(row(side)).skip(top).take(height);
        for (from, to) in rows.zip(to.chunks_exact_mut(row(side)).skip(to_top)) {
            to[to_left..to_left + width].copy_from_slice(&from[left..left + width]);
        }
    }
    cut
}

/// Mirrors an image, left to right.
pub(super) fn flip(pixels: &mut [u8], side: usize) {
    pixels.chunks_exact_mut(row(side)).for_each(<[u8]>::reverse);
}

#[derive(Clone, Copy)]
enum Colour {
    Brightness,
    Contrast,
    Saturation,
}

/// Multiplies brightness, contrast and saturation, in random order, each by a factor from `1 - most` to `1 + most`.
pub(super) fn jitter(pixels: &mut [u8], most: f64, chance: &mut impl Rng) {
    let mut order = [Colour::Brightness, Colour::Contrast, Colour::Saturation];
    order.shuffle(chance);
    for colour in order {
        let factor = 1.0 + most * (2.0 * chance.random::<f64>() - 1.0);
        match colour {
            Colour::Brightness => from_middle(pixels, 0.0, factor),
            Colour::Contrast => from_middle(pixels, mean_grey(pixels), factor),
            Colour::Saturation => from_grey(pixels, factor),
        }
    }
}

/// Moves all values away from or towards one value.
fn from_middle(pixels: &mut [u8], middle: f64, factor: f64) {
    let moved: [u8; 256] = std::array::from_fn(|value| moved(value as u8, middle, factor));
    pixels.iter_mut().for_each(|value| *value = moved[usize::from(*value)]);
}

/// Moves each colour away from or towards the grey of its pixel.
fn from_grey(pixels: &mut [u8], factor: f64) {
    let plane = pixels.len() / 3;
    let (reds, others) = pixels.split_at_mut(plane);
    let (greens, blues) = others.split_at_mut(plane);
    for ((red, green), blue) in reds.iter_mut().zip(greens).zip(blues) {
        let middle = grey(*red, *green, *blue).into();
        for value in [red, green, blue] {
            *value = moved(*value, middle, factor);
        }
    }
}

/// Rounded and clamped to a byte, as by a cast.
fn moved(value: u8, middle: f64, factor: f64) -> u8 {
    (middle + (f64::from(value) - middle) * factor + 0.5) as u8
}

/// Luminance of a pixel.
fn grey(red: u8, green: u8, blue: u8) -> u32 {
    (299 * u32::from(red) + 587 * u32::from(green) + 114 * u32::from(blue) + 500) / 1000
}

fn mean_grey(pixels: &[u8]) -> f64 {
    let plane = pixels.len() / 3;
    let (reds, others) = pixels.split_at(plane);
    let pixels = reds.iter().zip(others).zip(others.iter().skip(plane));
    let sum: u64 = pixels.map(|((red, green), blue)| u64::from(grey(*red, *green, *blue))).sum();
    sum as f64 / plane.max(1) as f64
}

/// Blackens a rectangle at a random place.
pub(super) fn erase(pixels: &mut [u8], side: usize, chance: &mut impl Rng) {
    let between = |(least, most): (f64, f64), share: f64| least + share * (most - least);
    let area = between(HOLE_AREA, chance.random()) * (side * side) as f64;
    // A rectangle twice as high as wide is as likely as one twice as wide as high.
    let logarithms = (libm::log(HOLE_ASPECT.0), libm::log(HOLE_ASPECT.1));
    let aspect = libm::exp(between(logarithms, chance.random()));
    let pixels_of = |length: f64| ((length + 0.5) as usize).clamp(1, side.max(1));
    let (height, width) = (pixels_of((area * aspect).sqrt()), pixels_of((area / aspect).sqrt()));
    let mut place = |length: usize| chance.random_range(0..=side.saturating_sub(length) as u32) as usize;
    let (top, left) = (place(height), place(width));
    for plane in pixels.chunks_exact_mut(plane(side)) {
        for row in plane.chunks_exact_mut(row(side)).skip(top).take(height) {
            row[left..left + width].fill(0);
        }
    }
}

/// Bytes of a row of one colour.
pub(super) fn row(side: usize) -> usize {
    side.max(1)
}

/// Bytes of one colour.
pub(super) fn plane(side: usize) -> usize {
    row(side) * row(side)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    const SIDE: usize = 16;

    fn image() -> Vec<u8> {
        (0..3 * SIDE * SIDE).map(|at| (at % 251) as u8 + 1).collect()
    }

    fn at(pixels: &[u8], colour: usize, y: usize, x: usize) -> u8 {
        pixels[(colour * SIDE + y) * SIDE + x]
    }

    #[test]
    fn a_crop_moves_the_image_and_leaves_black_behind() {
        let mut places = std::collections::BTreeSet::new();
        for seed in 0..400 {
            let cut = cropped(&image(), SIDE, 2, &mut Seed::root(seed).generator());
            assert_eq!(cut.len(), image().len());
            let moved = |down: isize, across: isize| {
                let inside = |place: usize, by: isize| place.checked_add_signed(by).filter(|place| *place < SIDE);
                (0..3 * SIDE * SIDE).all(|place| {
                    let (colour, y, x) = (place / SIDE / SIDE, place / SIDE % SIDE, place % SIDE);
                    let from = inside(y, down).zip(inside(x, across));
                    at(&cut, colour, y, x) == from.map_or(0, |(y, x)| at(&image(), colour, y, x))
                })
            };
            let all = (-2..=2).flat_map(|down| (-2..=2).map(move |across| (down, across)));
            places.insert(all.clone().find(|(down, across)| moved(*down, *across)).unwrap());
        }
        assert_eq!(places.len(), 25);
        for seed in 0..100 {
            let far = cropped(&image(), SIDE, 10 * SIDE, &mut Seed::root(seed).generator());
            assert_eq!(far.len(), image().len());
        }
    }

    #[test]
    fn a_mirrored_image_is_mirrored_back() {
        let mut pixels = image();
        flip(&mut pixels, SIDE);
        assert_eq!(at(&pixels, 1, 5, 0), at(&image(), 1, 5, SIDE - 1));
        assert_eq!(at(&pixels, 2, 7, 4), at(&image(), 2, 7, SIDE - 5));
        flip(&mut pixels, SIDE);
        assert_eq!(pixels, image());
    }

    #[test]
    fn brightness_contrast_and_saturation_do_what_they_are_called() {
        let mut pixels = [100, 200, 60, 0, 30, 90];
        from_middle(&mut pixels, 0.0, 1.5);
        assert_eq!(pixels, [150, 255, 90, 0, 45, 135]);
        let mut grey_ones = [100, 200, 100, 200, 100, 200];
        assert_eq!(mean_grey(&grey_ones), 150.0);
        from_middle(&mut grey_ones, 150.0, 0.5);
        assert_eq!(grey_ones, [125, 175, 125, 175, 125, 175]);
        let mut coloured = [200, 9, 100, 9, 50, 9];
        let middle = grey(200, 100, 50) as u8;
        from_grey(&mut coloured, 0.0);
        assert_eq!(coloured, [middle, 9, middle, 9, middle, 9]);
        assert_eq!((moved(10, 200.0, 2.0), moved(250, 100.0, 2.0), moved(101, 0.0, 0.5)), (0, 255, 51));
    }

    #[test]
    fn a_jitter_stays_within_its_bounds() {
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..100 {
            // A grey image keeps no colour, and a constant one has no contrast: only brightness has an effect.
            let mut flat = vec![100; 12];
            jitter(&mut flat, 0.3, &mut Seed::root(seed).generator());
            assert!(flat.iter().all(|value| *value == flat[0] && (70..=130).contains(value)), "{flat:?}");
            outcomes.insert(flat[0]);
        }
        assert!(outcomes.len() > 30, "{outcomes:?}");
        let mut pixels = image();
        jitter(&mut pixels, 0.0, &mut Seed::root(1).generator());
        assert_eq!(pixels, image());
    }

    #[test]
    fn a_hole_is_a_rectangle_within_its_bounds_and_the_same_in_all_colours() {
        let mut sizes = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let mut pixels = vec![0; 3 * SIDE * SIDE];
            // Noise is sometimes zero, but rarely at the same pixel of both images.
            let mut other = vec![255; 3 * SIDE * SIDE];
            erase(&mut pixels, SIDE, &mut Seed::root(seed).generator());
            erase(&mut other, SIDE, &mut Seed::root(seed).generator());
            let filled = |place: usize| pixels[place] == other[place];
            let plane = SIDE * SIDE;
            let hole: Vec<usize> = (0..plane).filter(|place| filled(*place)).collect();
            assert!(hole.iter().all(|place| filled(place + plane) && filled(place + 2 * plane)));
            assert_eq!((0..3 * plane).filter(|place| filled(*place)).count(), 3 * hole.len());
            let extent = |of: &dyn Fn(usize) -> usize| {
                let values = || hole.iter().map(|place| of(*place));
                values().max().unwrap() - values().min().unwrap() + 1
            };
            let (height, width) = (extent(&|place| place / SIDE), extent(&|place| place % SIDE));
            assert_eq!(height * width, hole.len());
            let share = hole.len() as f64 / plane as f64;
            assert!((0.01..=0.37).contains(&share), "{height} by {width}");
            sizes.insert((height, width));
        }
        assert!(sizes.len() > 60, "{sizes:?}");
    }

    #[test]
    fn an_empty_image_is_no_reason_to_stop() {
        let mut chance = Seed::root(1).generator();
        assert!(cropped(&[], 0, 2, &mut chance).is_empty());
        flip(&mut [], 0);
        jitter(&mut [], 1.0, &mut chance);
        erase(&mut [], 0, &mut chance);
    }
}
