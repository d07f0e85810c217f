//! `config.json` of `transformers` for GPT-2 and GPT-NeoX.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{HuggingFaceError, Layout};
use crate::config::{Activation, Architecture, ModelConfig, Positions};

const NORM_EPSILON: f64 = 1e-5;
const ROTARY_BASE: f64 = 10_000.0;

pub fn has_counterpart(model: &ModelConfig) -> Result<(), HuggingFaceError> {
    if model.reads_images() {
        return Err(HuggingFaceError::Images);
    }
    let (head_width, width, heads) = (model.head_width(), model.width, model.heads);
    if head_width * heads != width {
        return Err(HuggingFaceError::HeadWidth { head_width, width, heads });
    }
    if model.dna.is_some() {
        return Err(HuggingFaceError::Dna);
    }
    if model.directional.is_some() {
        return Err(HuggingFaceError::Directional);
    }
    Ok(())
}

/// `config.json` of a model with this end-of-document token.
pub fn write(model: &ModelConfig, end_of_document: u32) -> Result<Vec<u8>, HuggingFaceError> {
    has_counterpart(model)?;
    let activation = match model.activation {
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_new",
    };
    let (width, hidden) = (model.width, model.feed_forward());
    let mut config = match Layout::of(model) {
        Layout::Gpt2 => json!({
            "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
            "n_layer": model.blocks, "n_embd": width, "n_head": model.heads, "n_inner": hidden,
            "n_positions": model.context, "activation_function": activation, "layer_norm_epsilon": NORM_EPSILON,
            "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        }),
        Layout::GptNeox => json!({
            "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox",
            "num_hidden_layers": model.blocks, "hidden_size": width, "num_attention_heads": model.heads,
            "intermediate_size": hidden, "max_position_embeddings": model.context, "hidden_act": activation,
            "layer_norm_eps": NORM_EPSILON, "use_parallel_residual": false, "attention_bias": true,
            "attention_dropout": 0.0, "hidden_dropout": 0.0, "rotary_pct": 1.0, "rotary_emb_base": ROTARY_BASE,
            "rope_parameters": { "rope_type": "default", "rope_theta": ROTARY_BASE, "partial_rotary_factor": 1.0 },
        }),
    };
    let shared = json!({
        "vocab_size": model.vocabulary, "tie_word_embeddings": model.tied_head, "torch_dtype": "float32",
        "bos_token_id": end_of_document, "eos_token_id": end_of_document, "use_cache": true,
        "pathswarm": { "biases": model.biases },
    });
    if let (Value::Object(config), Value::Object(shared)) = (&mut config, shared) {
        config.extend(shared);
    }
    Ok(serde_json::to_vec_pretty(&config)?)
}

#[derive(Deserialize)]
#[serde(tag = "model_type", rename_all = "snake_case")]
enum Theirs {
    Gpt2(Gpt2),
    GptNeox(GptNeox),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Gpt2 {
    vocab_size: usize,
    n_positions: usize,
    n_embd: usize,
    n_layer: usize,
    n_head: usize,
    n_inner: Option<usize>,
    #[serde(default = "gelu_new")]
    activation_function: String,
    layer_norm_epsilon: Option<f64>,
    tie_word_embeddings: Option<bool>,
    scale_attn_weights: Option<bool>,
    scale_attn_by_inverse_layer_idx: Option<bool>,
    pathswarm: Option<Ours>,
}

fn gelu_new() -> String {
    "gelu_new".to_owned()
}

#[derive(Deserialize)]
struct GptNeox {
    vocab_size: usize,
    max_position_embeddings: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    hidden_act: String,
    layer_norm_eps: Option<f64>,
    tie_word_embeddings: Option<bool>,
    use_parallel_residual: Option<bool>,
    attention_bias: Option<bool>,
    rotary_pct: Option<f64>,
    rotary_emb_base: Option<f64>,
    rope_parameters: Option<Rope>,
    pathswarm: Option<Ours>,
}

#[derive(Deserialize)]
struct Rope {
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
}

/// Additional keys of this program.
#[derive(Deserialize)]
struct Ours {
    biases: bool,
}

/// A setting for which only this value is supported.
fn must<T: PartialEq + std::fmt::Debug>(
    key: &'static str,
    found: T,
    known: T,
    says: &'static str,
) -> Result<(), HuggingFaceError> {
    if found == known {
        return Ok(());
    }
    Err(HuggingFaceError::Setting { key, found: format!("{found:?}"), known: says })
}

fn activation(key: &'static str, found: &str) -> Result<Activation, HuggingFaceError> {
    match found {
        "gelu" => Ok(Activation::Gelu),
        "gelu_new" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
        _ => {
            let known = "gelu, gelu_new and gelu_pytorch_tanh";
            Err(HuggingFaceError::Setting { key, found: found.to_owned(), known })
        }
    }
}

/// The model that a `config.json` describes.
pub fn read(json: &[u8]) -> Result<ModelConfig, HuggingFaceError> {
    let model = match serde_json::from_slice(json)? {
        Theirs::Gpt2(gpt2) => gpt2.model()?,
        Theirs::GptNeox(neox) => neox.model()?,
        Theirs::Other => {
            let found = serde_json::from_slice::<Value>(json)?["model_type"].to_string();
            return Err(HuggingFaceError::Setting { key: "model_type", found, known: "gpt2 and gpt_neox" });
        }
    };
    model.check()?;
    Ok(model)
}

/// `None` for the default of this program.
fn unless(value: usize, usual: usize) -> Option<usize> {
    (value != usual).then_some(value)
}

impl Gpt2 {
    fn model(self) -> Result<ModelConfig, HuggingFaceError> {
        must("layer_norm_epsilon", self.layer_norm_epsilon.unwrap_or(NORM_EPSILON), NORM_EPSILON, "1e-5")?;
        must("scale_attn_weights", self.scale_attn_weights.unwrap_or(true), true, "true")?;
        let by_layer = self.scale_attn_by_inverse_layer_idx.unwrap_or(false);
        must("scale_attn_by_inverse_layer_idx", by_layer, false, "false")?;
        Ok(ModelConfig {
            architecture: Architecture::Transformer,
            blocks: self.n_layer,
            width: self.n_embd,
            heads: self.n_head,
            head_width: None,
            feed_forward: self.n_inner.and_then(|inner| unless(inner, self.n_embd.saturating_mul(4))),
            vocabulary: self.vocab_size,
            context: self.n_positions,
            positions: Positions::Learned,
            tied_head: self.tie_word_embeddings.unwrap_or(true),
            biases: self.pathswarm.is_none_or(|ours| ours.biases),
            activation: activation("activation_function", &self.activation_function)?,
            initial_deviation: None,
            directional: None,
            dna: None,
            images: None,
        })
    }
}

impl GptNeox {
    fn model(self) -> Result<ModelConfig, HuggingFaceError> {
        let rope = self.rope_parameters.as_ref();
        let share = rope.and_then(|rope| rope.partial_rotary_factor).or(self.rotary_pct).unwrap_or(0.25);
        let base = rope.and_then(|rope| rope.rope_theta).or(self.rotary_emb_base).unwrap_or(ROTARY_BASE);
        let kind = rope.and_then(|rope| rope.rope_type.as_deref()).unwrap_or("default");
        must("layer_norm_eps", self.layer_norm_eps.unwrap_or(NORM_EPSILON), NORM_EPSILON, "1e-5")?;
        must("use_parallel_residual", self.use_parallel_residual.unwrap_or(true), false, "false")?;
        must("attention_bias", self.attention_bias.unwrap_or(true), true, "true")?;
        must("rotary_pct", share, 1.0, "1")?;
        must("rotary_emb_base", base, ROTARY_BASE, "10000")?;
        must("rope_type", kind, "default", "default")?;
        Ok(ModelConfig {
            architecture: Architecture::Transformer,
            blocks: self.num_hidden_layers,
            width: self.hidden_size,
            heads: self.num_attention_heads,
            head_width: None,
            feed_forward: unless(self.intermediate_size, self.hidden_size.saturating_mul(4)),
            vocabulary: self.vocab_size,
            context: self.max_position_embeddings,
            positions: Positions::Rotary,
            tied_head: self.tie_word_embeddings.unwrap_or(false),
            biases: self.pathswarm.is_none_or(|ours| ours.biases),
            activation: activation("hidden_act", &self.hidden_act)?,
            initial_deviation: None,
            directional: None,
            dna: None,
            images: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openai_s_own_config_is_read() {
        let json = br#"{ "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
            "attn_pdrop": 0.1, "bos_token_id": 50256, "eos_token_id": 50256, "layer_norm_epsilon": 1e-05,
            "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
            "vocab_size": 50257 }"#;
        let model = read(json).unwrap();
        let parameters: usize = model.parts().into_iter().map(|part| model.parameters(part)).sum();
        assert_eq!(parameters, 124_439_808, "as its authors count");
        assert!(model.biases && model.tied_head);
    }

    #[test]
    fn what_cannot_be_computed_here_is_named_with_its_key() {
        let refused = |json: &str| read(json.as_bytes()).unwrap_err().to_string();
        assert!(refused(r#"{"model_type": "llama"}"#).contains("model_type = \"llama\""));
        let pythia = r#"{"model_type": "gpt_neox", "vocab_size": 50304, "max_position_embeddings": 2048,
            "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048,
            "hidden_act": "gelu", "rotary_pct": 0.25, "use_parallel_residual": true}"#;
        assert!(refused(pythia).contains("use_parallel_residual = true"));
        assert!(refused(&pythia.replace("residual\": true", "residual\": false")).contains("rotary_pct = 0.25"));
        assert!(
            refused(&pythia.replace("\"gelu\"", "\"relu\"").replace("true", "false").replace("0.25", "1"))
                .contains("hidden_act = relu")
        );
        assert!(refused("{").contains("config.json"));
        assert!(
            refused(
                r#"{"model_type": "gpt2", "vocab_size": 9, "n_positions": 64, "n_embd": 8, "n_head": 2,
            "n_layer": 1}"#
            )
            .contains("vocabulary")
        );
        let huge = format!("{}", usize::MAX / 2);
        assert!(refused(&pythia.replace("0.25", "1").replace("true", "false").replace("512", &huge)).contains("width"));
        let model = ModelConfig { head_width: Some(16), ..crate::model::samples::small_model() };
        assert!(write(&model, 0).unwrap_err().to_string().contains("head_width = 16"));
    }
}
