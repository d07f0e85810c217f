//! Images are prepared by the program as its users run it: what it writes, what it says, and what it refuses.
#![cfg(all(feature = "learning", feature = "network"))]

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{mistake, pathswarm};
use image::{Rgb, RgbImage};
use pathswarm::images::PreparedReader;
use serde_json::Value;
use tempfile::TempDir;

/// The size of a record of CIFAR-10.
const RECORD_BYTES: usize = 3_073;

/// A folder for sources and for what is made of them.
struct Place {
    home: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The same, for a command line.
    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// An image in one colour; the ending says of which kind.
    fn image(&self, name: &str, colour: [u8; 3], width: u32, height: u32) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        RgbImage::from_pixel(width, height, Rgb(colour)).save(path).unwrap();
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
        self.name(name)
    }

    /// Prepares, and gives what is said to programs last.
    #[track_caller]
    fn prepared(&self, arguments: &[&str]) -> Value {
        let said = prepared(&[arguments, &["--format", "json"]].concat());
        serde_json::from_str(said.lines().last().unwrap()).unwrap()
    }

    /// Prepares what cannot be, and gives what is said; nothing is left of it.
    #[track_caller]
    fn refused(&self, sources: &[&str]) -> String {
        let out = self.name("refused/out.images");
        let said = mistake(&[&["prepare"], sources, &["--out", &out]].concat());
        let left = fs::read_dir(self.path("refused")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{sources:?} left something behind");
        said
    }
}

#[track_caller]
fn prepared(arguments: &[&str]) -> String {
    let output = pathswarm(&[&["prepare"], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The pixels and the class of every image.
fn images(path: &Path) -> Vec<(Vec<u8>, u16)> {
    let mut reader = PreparedReader::open(path).unwrap();
    let (mut found, mut record) = (Vec::new(), Vec::new());
    while reader.next(&mut record).unwrap() {
        let (pixels, class) = record.split_last_chunk().unwrap();
        found.push((pixels.to_vec(), u16::from_le_bytes(*class)));
    }
    assert_eq!(found.len() as u64, reader.images);
    found
}

#[test]
fn folders_of_classes_become_one_file() {
    let place = Place::new();
    place.image("in/dog/1.png", [10, 20, 30], 8, 8);
    place.image("in/cat/2.png", [40, 50, 60], 12, 8);
    place.image("in/cat/1.jpg", [200, 100, 50], 32, 32);
    place.image("in/dog/2.jpeg", [0, 0, 0], 4, 4);
    let out = place.name("out.images");
    let said = place.prepared(&[&place.name("in"), "--out", &out, "--side", "8"]);
    assert_eq!(said["event"], "result");
    assert_eq!((&said["images"], &said["side"]), (&4.into(), &8.into()));
    let classes = serde_json::json!([{ "name": "cat", "images": 2 }, { "name": "dog", "images": 2 }]);
    assert_eq!(said["classes"], classes);
    assert_eq!((&said["cut"], &said["enlarged"], &said["unreadable"]), (&1.into(), &1.into(), &0.into()));

    let reader = PreparedReader::open(Path::new(&out)).unwrap();
    assert_eq!((reader.side, reader.images), (8, 4));
    assert_eq!(reader.classes(), ["cat", "dog"]);
    let found = images(Path::new(&out));
    let colours = [[200, 100, 50], [40, 50, 60], [10, 20, 30], [0, 0, 0]];
    for ((pixels, class), (colour, number)) in found.iter().zip(colours.iter().zip([0, 0, 1, 1])) {
        assert_eq!((pixels.len(), *class), (3 * 64, number));
        let near = |(plane, value): (&[u8], &u8)| plane.iter().all(|it| it.abs_diff(*value) < 6);
        assert!(pixels.chunks(64).zip(colour).all(near), "{pixels:?} is not {colour:?}");
    }
    // What is there is replaced by the same, and nothing else is left.
    let before = fs::read(&out).unwrap();
    prepared(&[&place.name("in"), "--out", &out, "--side", "8"]);
    assert_eq!(fs::read(&out).unwrap(), before);
    assert_eq!(fs::read_dir(place.home.path()).unwrap().count(), 2);
}

#[test]
fn people_see_a_table_and_what_was_left_out() {
    let place = Place::new();
    place.image("in/cat/1.png", [1; 3], 32, 32);
    place.image("in/greyhound/1.png", [2; 3], 40, 32);
    place.write("in/cat/0.jpg", "this is no image");
    place.write("in/cat/notes.txt", "nor is this");
    place.image("in/cat/2.jpg", [9; 3], 64, 64);
    let half = fs::read(place.path("in/cat/2.jpg")).unwrap();
    place.write("in/cat/2.jpg", &half[..half.len() / 2]);
    let said = prepared(&[&place.name("in"), "--out", &place.name("out.images")]);
    for part in [
        "2 images of 2 classes, 32 by 32",
        "left out: 2 unreadable files",
        "cat/0.jpg (",
        "cat/2.jpg (",
        "1 were not square",
    ] {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    assert!(said.contains("  cat             1\n  greyhound       1\n"), "{said}");
    assert!(said.contains("1 other files"), "{said}");
    assert_eq!(images(&place.path("out.images")).len(), 2);
}

#[test]
fn what_is_tested_on_is_numbered_as_what_is_trained_on() {
    let place = Place::new();
    for class in ["ant", "bee", "cat"] {
        place.image(&format!("train/{class}/1.png"), [1; 3], 4, 4);
    }
    place.image("test/cat/1.png", [1; 3], 4, 4);
    place.image("other/emu/1.png", [1; 3], 4, 4);
    let (train, test) = (place.name("train.images"), place.name("test.images"));
    prepared(&[&place.name("train"), "--out", &train, "--side", "4"]);
    prepared(&[&place.name("test"), "--out", &test, "--side", "4", "--classes-of", &train]);
    let reader = PreparedReader::open(Path::new(&test)).unwrap();
    assert_eq!(reader.classes(), ["ant", "bee", "cat"]);
    assert_eq!(images(Path::new(&test))[0].1, 2);
    let said = place.refused(&[&place.name("other"), "--classes-of", &train]);
    assert!(said.contains("other/emu") && said.contains("\"emu\"") && said.contains("--classes-of"), "{said}");
    let none = place.write("none.images", "this was never prepared");
    let said = place.refused(&[&place.name("test"), "--classes-of", &none]);
    assert!(said.contains("--classes-of") && said.contains("not a prepared file"), "{said}");
}

#[test]
fn cifar_10_is_taken_as_it_is() {
    let place = Place::new();
    let record = |class: u8, value: u8| [&[class], &[value; RECORD_BYTES - 1][..]].concat();
    let ten: Vec<u8> = (0..10).flat_map(|class| record(class, class + 100)).collect();
    place.write("cifar/data_batch_1.bin", &ten);
    place.write("cifar/data_batch_2.bin", record(7, 7));
    let test = place.write("cifar/test_batch.bin", record(9, 1));
    let out = place.name("train.images");
    let said = place.prepared(&[&place.name("cifar"), "--out", &out]);
    assert_eq!((&said["images"], &said["classes"][7]["images"]), (&11.into(), &2.into()));
    assert_eq!(said["classes"][9]["name"], "truck");
    let found = images(Path::new(&out));
    assert_eq!(found[3], (vec![103; RECORD_BYTES - 1], 3));
    assert_eq!(found[10], (vec![7; RECORD_BYTES - 1], 7));
    let tested = place.name("test.images");
    prepared(&[&test, "--out", &tested, "--side", "16", "--classes-of", &out]);
    assert_eq!(images(Path::new(&tested)), [(vec![1; 3 * 256], 9)]);
}

#[test]
fn a_class_without_images_is_named() {
    let place = Place::new();
    place.image("in/cat/1.png", [1; 3], 4, 4);
    fs::create_dir_all(place.path("in/dog")).unwrap();
    let said = place.refused(&[&place.name("in")]);
    assert!(said.contains("in/dog has no .jpg, .jpeg or .png file"), "{said}");
    place.write("in/dog/1.png", "this is no image");
    let said = place.refused(&[&place.name("in")]);
    assert!(said.contains("class \"dog\" has no readable image"), "{said}");
    place.write("in/cat/1.png", "nor is this");
    let said = place.refused(&[&place.name("in")]);
    assert!(said.contains("none of 2 images can be read") && said.contains("cat/1.png"), "{said}");
}

#[test]
fn sources_that_are_none_are_named() {
    let place = Place::new();
    let missing = place.name("missing");
    let said = place.refused(&[&missing]);
    assert!(said.contains(&format!("{missing} does not exist")), "{said}");
    fs::create_dir_all(place.path("empty")).unwrap();
    let said = place.refused(&[&place.name("empty")]);
    assert!(said.contains("empty has no subfolders"), "{said}");
    let short = place.write("short.bin", vec![0; RECORD_BYTES + 1]);
    let said = place.refused(&[&short]);
    assert!(said.contains(&short) && said.contains("3074 bytes"), "{said}");
    let wrong = place.write("wrong.bin", vec![10; RECORD_BYTES]);
    let said = place.refused(&[&wrong]);
    assert!(said.contains(&wrong) && said.contains("record 0 has class 10"), "{said}");
}

#[test]
fn a_side_or_a_name_that_no_file_can_have_is_refused() {
    let place = Place::new();
    place.image("in/cat/1.png", [1; 3], 4, 4);
    let said = place.refused(&[&place.name("in"), "--side", "1025"]);
    assert!(said.contains("1025") && said.contains("from 1 to 1024"), "{said}");
    let photo = place.name("in/cat/1.png");
    let before = fs::read(&photo).unwrap();
    let said = mistake(&["prepare", &place.name("in"), "--out", &photo]);
    assert!(said.contains("does not end with .images") && said.contains("1.images"), "{said}");
    assert_eq!(fs::read(&photo).unwrap(), before);
}
