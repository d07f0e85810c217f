//! A path of the Llama kind as a GGUF file, as scripts/gguf writes it, computes what the exported folder computes, and has its
//! tokens. What reads both is tests/agreement/gguf_file.py, which lets `transformers` read the file.
#![cfg(all(feature = "learning", feature = "network"))]

use crate::reference::transformers;
use crate::run::{RUN, World, pathswarm};

#[test]
fn a_gguf_file_computes_what_its_folder_computes() {
    let llama = "norm = \"rms\"\nactivation = \"silu\"\ngated = true\nheads = 4\nkv_heads = 2\n";
    let world = World::of(&RUN.replace("heads = 2\n", llama), 4);
    let (run, folder, other) = (world.name("run"), world.name("path"), world.name("other"));
    let short =
        ["phases=1", "inner_steps=20", "ancestor_steps=20", "warmup_steps=1"].map(|set| format!("training.{set}"));
    let mut simulate = vec!["simulate", &world.config, "--corpus", &world.corpus, "--dir", &run, "--peers", "1"];
    short.iter().for_each(|set| simulate.extend(["--set", set]));
    let model = format!("{run}/model");
    let export = ["export", &model, &folder, "--path", "2"];
    for arguments in [&simulate[..], &export] {
        let output = pathswarm(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // Beside it, a network that GGUF knows under another name.
    std::fs::create_dir_all(&other).unwrap();
    std::fs::write(format!("{other}/config.json"), r#"{"architectures": ["GPTNeoXForCausalLM"]}"#).unwrap();
    let script = format!("{}/scripts/gguf", env!("CARGO_MANIFEST_DIR"));
    transformers("tests/agreement/gguf_file.py", Some("gguf"), &[script, folder, other, world.name("file.gguf")]);
}
