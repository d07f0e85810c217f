//! `config.json` of `transformers`.
//!
//! [`read`] refuses what cannot be computed here, by its key; [`write`] is its inverse.

mod fields;
mod gpt;
mod llama;
mod rope;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::fields::Fields;
use super::{HuggingFaceError, Layout};
use crate::config::{Activation, Biases, ModelConfig, RotaryScaling};

/// The models that can be read.
const KNOWN: &str = "gpt2, gpt_neox, llama, mistral, qwen2, qwen3 and olmo2";

/// Keys that name special tokens, which are taken over from the model that a run came from.
pub(super) const TOKENS: [&str; 3] = ["bos_token_id", "eos_token_id", "pad_token_id"];

/// `config.json` of a model with this end-of-document token. `origin` is that of the model from which the run came.
pub fn write(
    model: &ModelConfig,
    end_of_document: u32,
    origin: Option<&Map<String, Value>>,
) -> Result<Vec<u8>, HuggingFaceError> {
    let layout = layout_like(model, origin)?;
    let mut config = Map::new();
    let mut add = |more: Value| config.extend(more.as_object().cloned().unwrap_or_default());
    add(json!({
        "architectures": [layout.class()], "model_type": layout.model_type(),
        "vocab_size": model.vocabulary, "tie_word_embeddings": model.tied_head, "torch_dtype": "float32",
        "bos_token_id": end_of_document, "eos_token_id": end_of_document, "use_cache": true,
        "pathswarm": { "biases": model.biases },
    }));
    add(sizes(model, layout, origin));
    let of_output = layout.biases(model).of_output();
    add(match layout {
        Layout::Gpt2 => json!({ "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0 }),
        Layout::GptNeox => json!({
            "use_parallel_residual": model.parallel_residual, "attention_bias": true, "hidden_dropout": 0.0,
            "rotary_pct": model.rotary().share, "rotary_emb_base": model.rotary().base,
        }),
        Layout::Llama => json!({ "attention_bias": of_output, "mlp_bias": model.biases.elsewhere() }),
        Layout::Mistral => json!({ "sliding_window": null }),
        Layout::Qwen2 => json!({ "use_sliding_window": false }),
        Layout::Qwen3 => json!({ "use_sliding_window": false, "attention_bias": of_output }),
        Layout::Olmo2 => json!({ "attention_bias": of_output }),
    });
    if layout != Layout::Gpt2 {
        rope::write(model, &mut config);
    }
    for (key, value) in origin.into_iter().flatten().filter(|(key, _)| TOKENS.contains(&key.as_str())) {
        config.insert(key.clone(), value.clone());
    }
    Ok(serde_json::to_vec_pretty(&config)?)
}

/// The sizes, by the names of the layout.
fn sizes(model: &ModelConfig, layout: Layout, origin: Option<&Map<String, Value>>) -> Value {
    let (width, hidden, epsilon) = (model.width, model.feed_forward(), model.norm_epsilon);
    let activation = match (model.activation, layout.is_llama()) {
        (Activation::Gelu, _) => "gelu",
        (Activation::GeluTanh, false) => "gelu_new",
        (Activation::GeluTanh, true) => "gelu_pytorch_tanh",
        (Activation::Silu, _) => "silu",
    };
    if layout == Layout::Gpt2 {
        return json!({
            "n_layer": model.blocks, "n_embd": width, "n_head": model.heads, "n_inner": hidden,
            "n_positions": model.context, "activation_function": activation, "layer_norm_epsilon": epsilon,
        });
    }
    // A run on short sequences does not make its model shorter.
    let own = origin.and_then(|origin| origin.get("max_position_embeddings")?.as_u64()).unwrap_or(0);
    let dynamic = match model.rotary().scaling {
        Some(RotaryScaling::Dynamic { original_context, .. }) => original_context,
        _ => 0,
    };
    let mut sizes = json!({
        "num_hidden_layers": model.blocks, "hidden_size": width, "num_attention_heads": model.heads,
        "intermediate_size": hidden, "max_position_embeddings": (model.context.max(dynamic) as u64).max(own),
        "hidden_act": activation, "attention_dropout": 0.0,
    });
    if layout == Layout::GptNeox {
        sizes["layer_norm_eps"] = epsilon.into();
    } else {
        sizes["num_key_value_heads"] = model.kv_heads().into();
        sizes["head_dim"] = model.head_width().into();
        sizes["rms_norm_eps"] = epsilon.into();
    }
    sizes
}

/// The layout of a model, as Mistral if it came from one and still computes as one.
pub fn layout_like(model: &ModelConfig, origin: Option<&Map<String, Value>>) -> Result<Layout, HuggingFaceError> {
    let layout = Layout::of(model)?;
    let from_mistral = origin.is_some_and(|origin| origin.get("model_type").is_some_and(|kind| kind == "mistral"));
    let is_mistral = layout == Layout::Llama && model.biases == Biases::None && from_mistral;
    Ok(if is_mistral { Layout::Mistral } else { layout })
}

/// The model that a `config.json` describes, and its layout. `longest` is the longest sequence that will be read, if it
/// is not the model's own: a window in which attention slides may be as long.
pub fn read(json: &[u8], longest: Option<usize>) -> Result<(ModelConfig, Layout), HuggingFaceError> {
    let table: Map<String, Value> = serde_json::from_slice(json)?;
    let config = Fields::of(&table);
    let kind = table.get("model_type").unwrap_or(&Value::Null);
    let layout = Layout::ALL.into_iter().find(|layout| kind == layout.model_type());
    let layout = layout.ok_or_else(|| config.refuse("model_type", kind, KNOWN))?;
    if let Some(quantized) = table.get("quantization_config").filter(|value| !value.is_null()) {
        let known = "weights of f32, f16 or bf16";
        return Err(config.refuse("quantization_config", quantized, known));
    }
    let model = match layout {
        Layout::Gpt2 => gpt::gpt2(&config)?,
        Layout::GptNeox => gpt::gpt_neox(&config)?,
        _ => llama::read(layout, &config, longest)?,
    };
    model.check()?;
    // What a run is trained from can be exported again.
    Layout::of(&model)?;
    Ok((model, layout))
}

/// The biases of the run from which this program wrote the file.
fn ours(config: &Fields<'_>) -> Result<Option<Biases>, HuggingFaceError> {
    #[derive(Deserialize)]
    struct Ours {
        biases: Biases,
    }
    let Some(table) = config.table("pathswarm")? else { return Ok(None) };
    Ok(Some(serde_json::from_value::<Ours>(Value::Object(table.clone()))?.biases))
}

/// `None` for the default of this program.
fn unless(value: usize, usual: usize) -> Option<usize> {
    (value != usual).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NormKind, NormPlacement, QkNorm, RotaryConfig};

    const LLAMA: &str = r#"{"model_type": "llama", "vocab_size": 49152, "max_position_embeddings": 8192,
        "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 1536, "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 100000,
        "rope_scaling": null, "attention_bias": false, "tie_word_embeddings": true}"#;
    const PYTHIA: &str = r#"{"model_type": "gpt_neox", "vocab_size": 50304, "max_position_embeddings": 2048,
        "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048,
        "hidden_act": "gelu", "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": true,
        "layer_norm_eps": 1e-05, "tie_word_embeddings": false}"#;

    fn model(json: &str) -> ModelConfig {
        read(json.as_bytes(), None).unwrap().0
    }

    fn refused(json: &str) -> String {
        read(json.as_bytes(), None).unwrap_err().to_string()
    }

    fn parameters(model: &ModelConfig) -> usize {
        model.parts().into_iter().map(|part| model.parameters(part)).sum()
    }

    /// A configuration with other values of some keys.
    fn with(json: &str, changes: Value) -> String {
        let mut table: Map<String, Value> = serde_json::from_str(json).unwrap();
        table.extend(changes.as_object().unwrap().clone());
        serde_json::to_string(&table).unwrap()
    }

    #[test]
    fn configurations_of_others_have_as_many_parameters_as_their_authors_count() {
        let gpt2 = r#"{ "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
            "attn_pdrop": 0.1, "bos_token_id": 50256, "eos_token_id": 50256, "layer_norm_epsilon": 1e-05,
            "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
            "vocab_size": 50257 }"#;
        assert_eq!(parameters(&model(gpt2)), 124_439_808);
        assert!(model(gpt2).biases == Biases::All && model(gpt2).tied_head);
        let smollm2 = model(LLAMA);
        assert_eq!(parameters(&smollm2), 134_515_008);
        assert_eq!((smollm2.kv_heads(), smollm2.head_width(), smollm2.rotary().base), (3, 64, 100_000.0));
        assert_eq!(parameters(&model(PYTHIA)), 70_426_624);
        assert!(model(PYTHIA).parallel_residual && model(PYTHIA).rotary().share == 0.25);
        let qwen3 = with(
            LLAMA,
            json!({ "model_type": "qwen3", "vocab_size": 151_936, "hidden_size": 1024, "num_hidden_layers": 28,
                "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072 }),
        );
        assert_eq!(parameters(&model(&qwen3)), 596_049_920);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let llama = model(LLAMA);
        let olmo2 = ModelConfig { norm_placement: NormPlacement::After, qk_norm: Some(QkNorm::Whole), ..llama.clone() };
        let narrow = ModelConfig { head_width: Some(32), ..llama.clone() };
        let qwen3 = ModelConfig { qk_norm: Some(QkNorm::Head), biases: Biases::Qkv, ..narrow.clone() };
        let all = [
            (llama.clone(), "llama"),
            (ModelConfig { biases: Biases::All, ..llama.clone() }, "llama"),
            (ModelConfig { biases: Biases::Attention, ..llama.clone() }, "llama"),
            (ModelConfig { biases: Biases::Qkv, ..llama.clone() }, "qwen2"),
            (ModelConfig { heads: 5, kv_heads: None, ..narrow }, "mistral"),
            (qwen3, "qwen3"),
            (olmo2, "olmo2"),
            (model(PYTHIA), "gpt_neox"),
            (ModelConfig { biases: Biases::None, activation: Activation::Silu, ..model(PYTHIA) }, "gpt_neox"),
        ];
        for (model, kind) in all {
            let (again, layout) = read(&write(&model, 0, None).unwrap(), None).unwrap();
            assert_eq!((again, layout.model_type()), (model, kind));
        }
        let mistral = with(LLAMA, json!({ "model_type": "mistral", "sliding_window": null, "eos_token_id": [1, 7] }));
        let origin: Map<String, Value> = serde_json::from_str(&mistral).unwrap();
        let short = ModelConfig { context: 64, ..model(&mistral) };
        let written: Value = serde_json::from_slice(&write(&short, 0, Some(&origin)).unwrap()).unwrap();
        assert_eq!((&written["model_type"], &written["eos_token_id"]), (&json!("mistral"), &json!([1, 7])));
        assert_eq!(written["max_position_embeddings"], 8192, "short sequences make no model shorter");
    }

    #[test]
    fn what_has_no_counterpart_is_named_with_its_key() {
        let refused = |model: ModelConfig| write(&model, 0, None).unwrap_err().to_string();
        let (llama, neox) = (model(LLAMA), model(PYTHIA));
        assert!(refused(ModelConfig { head_width: Some(16), ..neox.clone() }).contains("head_width = 16"));
        assert!(refused(ModelConfig { kv_heads: Some(4), ..neox.clone() }).contains("kv_heads = 4"));
        assert!(refused(ModelConfig { gated: true, ..neox.clone() }).contains("gated = true"));
        assert!(refused(ModelConfig { gated: false, ..llama.clone() }).contains("gated = false"));
        assert!(refused(ModelConfig { parallel_residual: true, ..llama.clone() }).contains("parallel_residual"));
        assert!(refused(ModelConfig { qk_norm: Some(QkNorm::Whole), ..llama.clone() }).contains("qk_norm"));
        let after = ModelConfig { norm_placement: NormPlacement::After, ..llama.clone() };
        assert!(refused(after).contains("qk_norm = none"));
        let partial = Some(RotaryConfig { share: 0.5, ..RotaryConfig::default() });
        assert!(refused(ModelConfig { rotary: partial, ..llama.clone() }).contains("rotary.share = 0.5"));
        let layer = ModelConfig { norm: NormKind::Layer, ..llama };
        assert!(refused(layer).contains("kv_heads = 3"));
    }

    #[test]
    fn what_cannot_be_computed_here_is_named_with_its_key() {
        assert!(refused(r#"{"model_type": "mamba"}"#).contains("model_type = \"mamba\""));
        assert!(refused("{}").contains("model_type = missing"));
        assert!(refused("{").contains("config.json") && refused("[]").contains("config.json"));
        let neox = |changes| refused(&with(PYTHIA, changes));
        assert!(neox(json!({ "attention_bias": false })).contains("attention_bias = false"));
        assert!(neox(json!({ "hidden_act": "relu" })).contains("hidden_act = \"relu\""));
        assert!(neox(json!({ "hidden_size": usize::MAX / 2 })).contains("width"));
        assert!(neox(json!({ "hidden_size": "512" })).contains("hidden_size = \"512\""));
        let gpt2 =
            r#"{"model_type": "gpt2", "vocab_size": 9, "n_positions": 64, "n_embd": 8, "n_head": 2, "n_layer": 1}"#;
        assert!(refused(gpt2).contains("vocabulary"));
        let llama = |changes| refused(&with(LLAMA, changes));
        assert!(llama(json!({ "hidden_size": null })).contains("hidden_size = missing"));
        assert!(llama(json!({ "num_key_value_heads": 4 })).contains("kv_heads = 4"));
        assert!(llama(json!({ "mlp_bias": true })).contains("mlp_bias = true"));
        assert!(llama(json!({ "quantization_config": { "bits": 4 } })).contains("quantization_config"));
        let longrope = llama(json!({ "rope_scaling": { "type": "longrope", "factor": 4.0 } }));
        assert!(longrope.contains("rope_scaling.rope_type = \"longrope\""), "{longrope}");
        let nested = json!({ "rope_parameters": { "full_attention": { "rope_type": "default" } } });
        assert!(llama(nested).contains("rope_parameters.full_attention"));
        let no_factor = json!({ "rope_scaling": { "type": "linear" } });
        assert!(llama(no_factor).contains("rope_scaling.factor = missing"));
    }

    #[test]
    fn a_sliding_window_is_refused_where_it_is_in_force() {
        let mistral = |changes: Value| with(&with(LLAMA, json!({ "model_type": "mistral" })), changes);
        let silent = refused(&mistral(json!({})));
        assert!(silent.contains("sliding_window = 4096") && silent.contains("--context"), "{silent}");
        assert!(read(mistral(json!({})).as_bytes(), Some(4096)).is_ok());
        assert!(read(mistral(json!({ "sliding_window": null })).as_bytes(), None).is_ok());
        let qwen = |changes: Value| with(&with(LLAMA, json!({ "model_type": "qwen2" })), changes);
        assert!(read(qwen(json!({ "sliding_window": 64 })).as_bytes(), None).is_ok(), "it is not used");
        let used = qwen(json!({ "sliding_window": 64, "use_sliding_window": true }));
        assert!(refused(&used).contains("sliding_window = 64"));
        let layers = qwen(json!({ "layer_types": ["full_attention", "sliding_attention"], "sliding_window": 64 }));
        assert!(refused(&layers).contains("layer_types = \"sliding_attention\""));
    }
}
