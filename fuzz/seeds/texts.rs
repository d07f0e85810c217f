//! Text and what sends it to paths, and parameters: token files, tokenizers, routers, files of other programs.

use std::io::Write;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use pathswarm::config::{
    Activation, ModelConfig, NormKind, Positions, RotaryConfig, RotaryScaling, RunConfig, level_parameters,
};
use pathswarm::images::PreparedWriter;
use pathswarm::model::exchange;
use pathswarm::model::hugging_face::{self, settings};
use pathswarm::names::{BlobHash, PathId};
use pathswarm::routing::resharding::{Atlas, Catalogue, PathScores, Place, RouterState};
use pathswarm::routing::{Logistic, Router, ShardIndex};
use pathswarm::seed::Seed;
use pathswarm::text::{TokenSet, Tokenizer};
use pathswarm_fuzz::TINY_RUN;

use super::Seeds;

const ANCESTOR: BlobHash = BlobHash([7; 32]);
const WIDTH: usize = 4;

fn features(documents: usize) -> Vec<f32> {
    (0..documents * WIDTH).map(|at| ((at * 7919) % 101) as f32 / 101.0 - 0.5).collect()
}

fn routers(seeds: &mut Seeds) {
    let features = features(40);
    let fit = |paths, product| {
        Router::fit((&features, WIDTH), (paths, product), 8, ANCESTOR, 5, Seed::root(1)).expect("documents enough")
    };
    let labels: Vec<u32> = (0..40).map(|document| document % 3).collect();
    let logistic = Logistic::fit(&features, WIDTH, &labels, 3, 1e-3).expect("documents of each path");
    let routers = [
        Router::random(4, 8, Seed::root(1)),
        fit(3, false),
        fit(6, true),
        Router::discriminative(logistic, 8, ANCESTOR),
    ];
    for router in routers {
        let parameters = [router.paths() as u8, WIDTH as u8];
        seeds.add("router", [&router.encode()[..], &parameters].concat());
        let sizes = vec![7; router.paths() as usize];
        seeds.add("router", [&RouterState::initial(router, sizes).encode(WIDTH)[..], &parameters].concat());
    }
}

fn resharding(seeds: &mut Seeds) {
    let catalogue = |count: u32| {
        let place = |at: u32| Place { shard: PathId(at / 2), document: at % 2, sequences: 3 };
        Catalogue { places: (0..count).map(place).collect(), features: features(count as usize) }
    };
    let atlas = Atlas {
        width: WIDTH,
        ancestor: ANCESTOR,
        train: catalogue(4),
        held_out: catalogue(2),
        test: catalogue(1),
        slice: features(3),
        slice_routes: vec![PathId(0), PathId(1), PathId(1)],
    };
    seeds.add("resharding", [atlas.encode(), vec![2, 3]].concat());
    let scores =
        [(0, vec![1.5, 2.5, 0.0]), (1, Vec::new())].map(|(path, nats)| PathScores { path: PathId(path), nats });
    seeds.add("resharding", [PathScores::encode(&scores), vec![2, 3]].concat());
}

fn tokens(seeds: &mut Seeds) {
    let document = |number: u32| (0..20 + 10 * number).map(|at| (at * 31 + number) % 1_000).collect();
    let documents: Vec<Vec<u32>> = (0..12).map(document).collect();
    let set = TokenSet::cut_for_scoring(&documents, 63);
    let part: Vec<usize> = (0..set.len()).filter(|at| at % 2 == 1).collect();
    for set in [TokenSet::default(), set.subset(&part), set.subset(&[0, 1])] {
        seeds.add("token_file", set.encode());
    }
    let routes: Vec<PathId> = set.documents().zip(0..).map(|(_, number)| PathId(number % 2)).collect();
    let index = ShardIndex::build(&set, &routes, 2, 0.2).expect("documents of each path");
    seeds.add("shards", [index.encode(), vec![2, 0]].concat());
    let documents = ["The river rose, and the old bridge held again. ".repeat(9), "fn main() {}\n".repeat(9)];
    let tokenizer = Tokenizer::train(&documents, 280).expect("text enough");
    seeds.add("tokenizer", tokenizer.json());
}

fn models(seeds: &mut Seeds) {
    let run = RunConfig::from_toml(TINY_RUN).expect("a run");
    let models =
        [Positions::Learned, Positions::Rotary].map(|positions| ModelConfig { positions, ..run.model.clone() });
    for model in models {
        seeds.add("hugging_face", settings::write(&model, 0, None).expect("it has a counterpart"));
    }
    let llama = ModelConfig {
        norm: NormKind::Rms,
        gated: true,
        activation: Activation::Silu,
        rotary: Some(RotaryConfig { scaling: Some(RotaryScaling::Linear { factor: 2.0 }), ..RotaryConfig::default() }),
        ..run.model.clone()
    };
    seeds.add("hugging_face", settings::write(&llama, 0, None).expect("it has a counterpart"));
    seeds.add("hugging_face", b"{\"chat_template.jinja\": \"{{ messages }}\"}".to_vec());
    let (model, levels) = (&run.model, &run.levels);
    let values: Vec<Vec<f32>> = levels.iter().map(|level| vec![0.25; level_parameters(model, level)]).collect();
    let all: Vec<_> = levels.iter().zip(values.iter().map(Vec::as_slice)).collect();
    let notes = [("module", "0.0".to_owned()), ("run", "tiny".to_owned())];
    seeds.add("safetensors", exchange::encode(model, &all, &notes).expect("the levels' values"));
    seeds.add("safetensors", hugging_face::weights(model, levels, &values).expect("the levels' values"));
}

fn parquet() -> parquet::errors::Result<Vec<u8>> {
    let schema = Arc::new(parse_message_type("message rows { required binary text (UTF8); }")?);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default())?;
    let mut group = writer.next_row_group()?;
    if let Some(mut column) = group.next_column()? {
        column.typed::<ByteArrayType>().write_batch(
            &[ByteArray::from("a text"), ByteArray::from("another")],
            None,
            None,
        )?;
        column.close()?;
    }
    group.close()?;
    writer.into_inner()
}

/// Two images of 2 x 2 pixels.
fn images() -> std::io::Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("seed.images");
    let classes = ["cat", "dog", "owl"].map(str::to_owned);
    let mut writer = PreparedWriter::begin(&file, 2, &classes).map_err(std::io::Error::other)?;
    for class in [2, 0] {
        writer.push(&[class as u8 * 90; 12], class).map_err(std::io::Error::other)?;
    }
    writer.finish().map_err(std::io::Error::other)?;
    std::fs::read(file)
}

/// In the order in which the target counts kinds of files.
fn corpora(seeds: &mut Seeds) -> std::io::Result<()> {
    let (plain, lines) = ("A line.\n\nAnother one.\n", "{\"text\": \"a text\", \"domain\": \"news\"}\n{\"text\": 7}\n");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(plain.as_bytes())?;
    let files = [
        plain.as_bytes().to_vec(),
        lines.as_bytes().to_vec(),
        zstd::encode_all(lines.as_bytes(), 1)?,
        gz.finish()?,
        zstd::encode_all(plain.as_bytes(), 1)?,
        parquet().map_err(std::io::Error::other)?,
        images()?,
    ];
    for (mut file, kind) in files.into_iter().zip(0..) {
        file.push(kind);
        seeds.add("corpus", file);
    }
    Ok(())
}

pub fn add(seeds: &mut Seeds) -> std::io::Result<()> {
    routers(seeds);
    resharding(seeds);
    tokens(seeds);
    models(seeds);
    corpora(seeds)
}
