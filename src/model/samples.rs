//! Small networks for tests: a transformer, and one with a pool of modules. And a process for tests that change their own.

use tch::Device;

use crate::config::{
    Activation, Architecture, Biases, DnaConfig, LevelConfig, ModelConfig, NormKind, NormPlacement, Pool, Positions,
    Precision, QkNorm, RotaryConfig,
};
use crate::grid::Sharing;
use crate::model::PathModel;
use crate::model::initial_levels;
use crate::seed::Seed;

/// One block, then three steps through five modules of all kinds.
pub(crate) fn dna_model() -> ModelConfig {
    let modules = Pool { transformer: 2, attention: 1, mlp: 1, identity: 1 };
    ModelConfig {
        architecture: Architecture::Dna,
        blocks: 1,
        positions: Positions::Learned,
        dna: Some(DnaConfig { modules, steps: 3, top_k: 1, skips: None, bias_rate: 1e-3, fixed_routers: false }),
        ..small_model()
    }
}

/// Levels of [`dna_model`], for any number of steps.
pub(crate) fn dna_levels() -> Vec<LevelConfig> {
    let model = dna_model();
    let parts: Vec<String> = model.parts().iter().map(ToString::to_string).filter(|part| part != "balance").collect();
    let level = |parts| LevelConfig { parts, sharing: Sharing::Shared };
    vec![level(parts), level(vec!["balance".to_owned()])]
}

pub(crate) fn small_model() -> ModelConfig {
    ModelConfig::of([2, 16, 2], 300, 24)
}

/// The same with the blocks of Llama, Qwen3, Pythia and OLMo 2, each with a name.
pub(crate) fn modern_models() -> Vec<(&'static str, ModelConfig)> {
    let llama = ModelConfig {
        norm: NormKind::Rms,
        norm_epsilon: 1e-6,
        gated: true,
        activation: Activation::Silu,
        heads: 4,
        kv_heads: Some(2),
        head_width: Some(8),
        ..small_model()
    };
    let partial = Some(RotaryConfig { base: 500.0, share: 0.5, scaling: None });
    vec![
        ("llama", llama.clone()),
        ("qwen2", ModelConfig { biases: Biases::Qkv, ..llama.clone() }),
        ("qwen3", ModelConfig { qk_norm: Some(QkNorm::Head), rotary: partial.clone(), ..llama.clone() }),
        ("pythia", ModelConfig { parallel_residual: true, biases: Biases::All, rotary: partial, ..small_model() }),
        ("learned", ModelConfig { positions: Positions::Learned, qk_norm: Some(QkNorm::Head), ..llama.clone() }),
        ("olmo2", ModelConfig { qk_norm: Some(QkNorm::Whole), norm_placement: NormPlacement::After, ..llama }),
    ]
}

pub(crate) fn small_levels() -> Vec<LevelConfig> {
    let level = |parts: &[&str]| LevelConfig {
        parts: parts.iter().map(|part| (*part).to_owned()).collect(),
        sharing: Sharing::Shared,
    };
    vec![level(&["embedding", "block.0"]), level(&["block.1", "final-norm", "head"])]
}

/// Initial values of seed 1, times ten, so that tokens differ clearly.
pub(crate) fn small_path(model: &ModelConfig, levels: &[LevelConfig]) -> PathModel {
    let mut path = PathModel::new(model, levels, Device::Cpu, Precision::F32).unwrap();
    for (level, values) in initial_levels(model, levels, Seed::root(1)).iter().enumerate() {
        let wide: Vec<f32> = values.iter().map(|value| if *value == 1.0 { 1.0 } else { value * 10.0 }).collect();
        path.set_level(level, &wide).unwrap();
    }
    path
}

/// Runs the test that calls this in a process of its own. Returns whether this is that process.
pub(crate) fn is_in_a_process_of_its_own() -> bool {
    const INSIDE: &str = "PATHSWARM_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let this = std::thread::current().name().unwrap().to_owned();
    let mut inside = std::process::Command::new(std::env::current_exe().unwrap());
    let ended = inside.args([&this, "--exact", "--nocapture"]).env(INSIDE, "1").output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(String::from_utf8_lossy(&ended.stdout).contains("1 passed"), "{this} was run");
    false
}
