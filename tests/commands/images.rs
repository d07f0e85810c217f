//! Images as data: prepared, shared out by what they show, learnt by a swarm of peers, and looked into.
#![cfg(all(feature = "learning", feature = "network"))]

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::run::{self, Peer, World, mistake, pathswarm};
use image::{Rgb, RgbImage};
use serde_json::Value;

/// Patches of 4 x 4 pixels of images of 16 x 16.
const RUN: &str = r#"
name = "images"
[text]
test_share = 0.2
[model]
architecture = "dna"
blocks = 1
width = 32
heads = 2
vocabulary = 3
context = 768
positions = "learned"
images = { patch = 4 }
[model.dna]
modules = { transformer = 3, identity = 1 }
steps = 2
top_k = 1
[[levels]]
parts = ["embedding", "block.0", "router.0", "module.0"]
sharing = { experts = 2 }
[[levels]]
parts = ["router.1", "modules.1-2", "final-norm", "head"]
sharing = "shared"
[[levels]]
parts = ["balance"]
sharing = "shared"
[routing]
method = "kmeans"
prefix_tokens = 768
[training]
batch_sequences = 16
inner_steps = 20
phases = 3
ancestor_steps = 20
learning_rate = 3e-3
augment = { crop = 1, flip = true, mixup = 0.2 }
"#;

/// Images of three kinds: red above, green on the left, blue in the middle; in each a noise of its own.
fn draw(folder: &Path, each: u32) {
    for (number, class) in ["blue", "green", "red"].iter().enumerate() {
        fs::create_dir_all(folder.join(class)).unwrap();
        for image in 0..each {
            let pixel = |x: u32, y: u32| {
                let noise = ((x * 37 + y * 101 + image * 7919 + x * y * image) % 90) as u8;
                let lit = [(5..11).contains(&x) && (5..11).contains(&y), x < 6, y < 6][number];
                let mut pixel = [noise; 3];
                pixel[2 - number] = if lit { 250 } else { noise };
                Rgb(pixel)
            };
            let drawn = RgbImage::from_fn(16, 16, pixel);
            drawn.save(folder.join(class).join(format!("{image:03}.png"))).unwrap();
        }
    }
}

fn events(arguments: &[&str]) -> Vec<Value> {
    let output = pathswarm(&[arguments, &["--format", "json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn peers_learn_to_tell_images_apart_and_others_look_into_it() {
    let world = World::of(RUN, 1);
    let (folder, prepared) = (world.path("drawn"), world.name("drawn.images"));
    draw(&folder, 90);
    let said = events(&["prepare", folder.to_str().unwrap(), "--side", "16", "--out", &prepared]);
    assert_eq!(said.last().unwrap()["images"], 270);

    let found = ["found", &world.config, "--share-text", "--corpus", &prepared];
    let mut creator = Peer::start(&world.path("creator"), &found);
    let address = creator.wait_for("join")["address"].as_str().unwrap().to_owned();
    let mut other = Peer::start(&world.path("other"), &["join", &address]);
    let results = [creator.wait_for("result"), other.wait_for("result")];
    assert_eq!(results[0]["run"], results[1]["run"]);

    let model = world.name("model");
    events(&["collect", &model, "--from", &address]);
    let scores = events(&["evaluate", "--local", &model]);
    let result = scores.last().unwrap();
    // Three kinds: who knows nothing has 3.
    assert!(result["dipaco"]["perplexity"].as_f64() < Some(1.7), "{result}");
    assert!(result["dipaco"]["perplexity"].as_f64() < result["ancestor"]["perplexity"].as_f64(), "{result}");
    assert!(result["dipaco"]["bits_per_byte"].is_null(), "a class stands for no bytes: {result}");
    let by_class = events(&["evaluate", "--local", &model, "--text", &prepared]);
    let classes: Vec<&Value> = by_class.iter().filter(|event| event["event"] == "domain").collect();
    assert_eq!(
        classes.iter().map(|class| class["domain"].as_str().unwrap()).collect::<Vec<_>>(),
        ["blue", "green", "red"]
    );
    let all = by_class.last().unwrap();
    assert_eq!(all["tokens"], 270);
    // Three kinds: by chance 90 are right.
    let right = |event: &Value| event["right"].as_u64().unwrap();
    assert!((200..=270).contains(&right(all)), "{all}");
    assert_eq!(classes.iter().map(|class| right(class)).sum::<u64>(), right(all));

    let out = world.name("seen");
    let inspect = ["inspect", "dna", &model, "--text", &prepared, "--sequences", "10", "--out", &out];
    let seen = events(&[&inspect[..], &["--dream", "3", "--dream-rounds", "30"]].concat());
    let found = |name: &str| &seen.iter().find(|event| event["event"] == name).expect(name)["found"];
    assert_eq!(found("routes")["trained"]["tokens"], 30 * 16);
    let losses = found("dream")["losses"].as_array().unwrap();
    assert!(losses[1].as_f64() < losses[0].as_f64(), "{losses:?}");
    for name in ["ranks", "compute", "routes", "dreams"] {
        let read = image::open(format!("{out}/{name}.png")).unwrap();
        assert!(read.width() > 100 && read.height() > 40, "{name}");
    }

    assert!(mistake(&["generate", "--local", &model, "--prompt", "a"]).contains("generates no text"));
    assert!(mistake(&["evaluate", "--local", &model, "--route-every", "4"]).contains("does not apply to images"));
    for what in [&["--path", "0"][..], &["--whole"]] {
        let refused = mistake(&[&["export", &model, &world.name("hf")], what].concat());
        assert!(refused.contains("[model.images]") && !world.path("hf").exists(), "{refused}");
    }
    let text = format!("{}/0.jsonl", world.corpus);
    assert!(mistake(&["evaluate", "--local", &model, "--text", &text]).contains("this run reads images"));
    assert!(mistake(&[&inspect[..], &["--dream", "99"]].concat()).contains("there is no image 99"));
}

#[test]
fn a_run_and_a_corpus_that_do_not_fit_are_refused_before_anything_is_begun() {
    let world = World::of(RUN, 1);
    let (folder, prepared) = (world.path("drawn"), world.name("drawn.images"));
    draw(&folder, 12);
    events(&["prepare", folder.to_str().unwrap(), "--side", "8", "--out", &prepared]);
    let found =
        |config: &str, corpus: &str| mistake(&["found", config, "--corpus", corpus, "--dir", &world.name("peer")]);
    assert!(found(&world.config, &world.corpus).contains("this run reads images, but the input is text"));
    assert!(found(&world.config, &prepared).contains("prepare them with --side 16"));
    let more = ["found", &world.config, "--dir", &world.name("peer"), "--corpus"];
    let given = world.write("tokenizer.json", "{}");
    let whole = world.name("whole.images");
    events(&["prepare", folder.to_str().unwrap(), "--side", "16", "--out", &whole]);
    assert!(mistake(&[&more[..], &[&whole, "--tokenizer", &given]].concat()).contains("leave --tokenizer out"));
    fs::remove_dir_all(folder.join("green")).unwrap();
    let fewer = world.name("fewer.images");
    events(&["prepare", folder.to_str().unwrap(), "--side", "16", "--out", &fewer]);
    let tested = mistake(&[&more[..], &[&whole, "--test-corpus", &fewer]].concat());
    assert!(tested.contains("--classes-of the corpus' file"), "{tested}");
    assert!(mistake(&[&more[..], &[&whole, &fewer]].concat()).contains("differ from those of the files before it"));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&fs::read(&whole).unwrap()).unwrap();
    let packed = world.write("a.images.gz", packed.finish().unwrap());
    assert!(found(&world.config, &packed).contains("unpack it first"));
    let of_text = world.write("text.toml", run::RUN);
    assert!(found(&of_text, &prepared).contains("this run reads text, but the input is images"));
    let two = world.write("two.toml", RUN.replace("vocabulary = 3", "vocabulary = 2").replace("768", "192"));
    assert!(found(&two, &prepared).contains("model.vocabulary = 2"));
    let wrong = |from: &str, to: &str| mistake(&["config", "show", &world.write("wrong.toml", RUN.replace(from, to))]);
    assert!(wrong("context = 768", "context = 700").contains("3 * side * side"));
    assert!(wrong("patch = 4", "patch = 5").contains("must divide the side of 16"));
    assert!(wrong("prefix_tokens = 768", "prefix_tokens = 32").contains("the whole image"));
    assert!(wrong("crop = 1", "crop = 16").contains("training.augment.crop = 16"));
    assert!(wrong("images = { patch = 4 }\n", "").contains("vocabulary"));
}
