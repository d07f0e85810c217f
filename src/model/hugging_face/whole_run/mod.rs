//! A whole run as one folder that `transformers` loads with code of its own: every module once, the ancestor, and the
//! router.
//!
//! ```text
//! config.json                    the network, the grid, and the shape of every tensor
//! configuration_pathswarm.py     read by `transformers` with `trust_remote_code=True`
//! modeling_pathswarm.py
//! model.safetensors.index.json   which file has which tensor
//! module-0.1.safetensors         parameters of module (0, 1): `levels.0.1.` and the name of the tensor
//! path-3.safetensors             own parameters of path 3: `own.3.0.` and the name of a tensor of level 0
//! ancestor.safetensors           `ancestor.` and the name of the tensor
//! router.safetensors             `router`: the bytes of the router
//! README.md                      a model card
//! ```

use std::collections::{BTreeMap, HashMap};

use safetensors::tensor::{Dtype, SafeTensorError, TensorView, serialize};
use serde_json::{Map, Value, json};

use super::HuggingFaceError;
use super::files::INDEX;
use super::settings::TOKENS;
use crate::config::{LevelConfig, ModelConfig, Positions, TensorSpec, level_tensors};
use crate::grid::Grid;
use crate::names::{ModuleId, PathId};

/// The code that computes the network, by name of its file.
pub const CODE: [(&str, &str); 2] = [
    ("configuration_pathswarm.py", include_str!("configuration_pathswarm.py")),
    ("modeling_pathswarm.py", include_str!("modeling_pathswarm.py")),
];

/// What is written of a run.
pub struct WholeRun<'a> {
    pub model: &'a ModelConfig,
    pub levels: &'a [LevelConfig],
    pub grid: &'a Grid,
    /// Tokens by which a text is routed.
    pub prefix_tokens: usize,
    /// The encoded router.
    pub router: &'a [u8],
    /// Levels in which a path has parameters of its own instead of its module's.
    pub own_levels: &'a BTreeMap<PathId, Vec<usize>>,
    /// The token that ends a document.
    pub end_of_document: u32,
}

impl WholeRun<'_> {
    /// Whether the code computes such a network, whose router needs features of texts or not.
    ///
    /// # Errors
    /// For images, for routed modules, and for a router without features, which is random.
    pub fn check(model: &ModelConfig, needs_features: bool) -> Result<(), HuggingFaceError> {
        match model.dna {
            _ if model.reads_images() => Err(HuggingFaceError::Images),
            Some(_) => Err(HuggingFaceError::WholeDna),
            None if model.adapter.is_some() => Err(HuggingFaceError::WholeAdapter),
            None if !needs_features => Err(HuggingFaceError::WholeRandom),
            None => Ok(()),
        }
    }

    /// `config.json`. `origin` is that of the model from which the run came.
    pub fn config(&self, origin: Option<&Map<String, Value>>) -> Result<Vec<u8>, HuggingFaceError> {
        let model = self.model;
        let rotary = (model.positions == Positions::Rotary).then(|| {
            let (frequencies, factor) = model.rotary().frequencies(model.head_width());
            json!({ "frequencies": frequencies, "factor": factor })
        });
        let directional = model.directional.as_ref().map(|directional| {
            json!({ "pooling": directional.pooling, "reads": directional.reads,
                "router_layers": directional.router_layers, "temperature": directional.temperature })
        });
        let experts = |path: PathId| self.grid.modules_of(path).iter().map(|module| module.expert).collect::<Vec<_>>();
        let own: BTreeMap<String, _> =
            self.own_levels.iter().map(|(path, levels)| (path.to_string(), levels)).collect();
        let end = self.end_of_document;
        let mut config = json!({
            "architectures": ["PathswarmForCausalLM"], "model_type": "pathswarm",
            "auto_map": {
                "AutoConfig": "configuration_pathswarm.PathswarmConfig",
                "AutoModelForCausalLM": "modeling_pathswarm.PathswarmForCausalLM",
            },
            "dtype": "float32", "torch_dtype": "float32",
            "bos_token_id": end, "eos_token_id": end, "use_cache": directional.is_none(),
            "vocab_size": model.vocabulary, "hidden_size": model.width, "num_hidden_layers": model.blocks,
            "num_attention_heads": model.heads, "num_key_value_heads": model.kv_heads(),
            "head_dim": model.head_width(), "max_position_embeddings": model.context,
            "tie_word_embeddings": false, "tied_head": model.tied_head, "norm": model.norm,
            "norm_epsilon": model.norm_epsilon, "norm_placement": model.norm_placement, "qk_norm": model.qk_norm,
            "activation": model.activation, "gated": model.gated, "parallel_residual": model.parallel_residual,
            "rotary": rotary, "directional": directional,
            "levels": (0..self.levels.len()).map(|level| self.level(level)).collect::<Vec<_>>(),
            "paths": self.grid.paths().map(experts).collect::<Vec<_>>(), "own_levels": own,
            "prefix_tokens": self.prefix_tokens, "router_bytes": self.router.len(),
        });
        for (key, value) in origin.into_iter().flatten().filter(|(key, _)| TOKENS.contains(&key.as_str())) {
            config[key] = value.clone();
        }
        Ok(serde_json::to_vec_pretty(&config)?)
    }

    /// A level's parts, number of modules, and the shapes of their tensors.
    fn level(&self, level: usize) -> Value {
        let tensors = level_tensors(self.model, &self.levels[level]);
        let shapes: Map<String, Value> = tensors.into_iter().map(|tensor| (tensor.name, json!(tensor.shape))).collect();
        let first = |part| self.model.tensors(part).into_iter().next();
        let is_here = |part| first(part).is_some_and(|tensor| shapes.contains_key(&tensor.name));
        let parts: Vec<String> =
            self.model.parts().into_iter().filter(|part| is_here(*part)).map(|part| part.to_string()).collect();
        json!({ "parts": parts, "experts": self.grid.experts(level), "tensors": shapes })
    }
}

/// The files with tensors, one by one, and which tensor is in which.
#[derive(Default)]
pub struct Weights {
    files: BTreeMap<String, String>,
    bytes: usize,
}

impl Weights {
    /// The file of a module: its name and contents. `values` is its flat buffer.
    pub fn module(
        &mut self,
        run: &WholeRun<'_>,
        module: ModuleId,
        values: &[f32],
    ) -> Result<(String, Vec<u8>), HuggingFaceError> {
        let level = usize::from(module.level);
        let prefix = format!("levels.{level}.{}", module.expert);
        self.file(run, format!("module-{module}.safetensors"), &[(level, prefix, values)])
    }

    /// The file of a path's own parameters: the flat buffers of some levels.
    pub fn own(
        &mut self,
        run: &WholeRun<'_>,
        path: PathId,
        levels: &[(usize, &[f32])],
    ) -> Result<(String, Vec<u8>), HuggingFaceError> {
        let named: Vec<_> =
            levels.iter().map(|(level, values)| (*level, format!("own.{path}.{level}"), *values)).collect();
        self.file(run, format!("path-{path}.safetensors"), &named)
    }

    /// The file of the ancestor: the flat buffers of all levels.
    pub fn ancestor(&mut self, run: &WholeRun<'_>, levels: &[Vec<f32>]) -> Result<(String, Vec<u8>), HuggingFaceError> {
        let named = |(level, values): (usize, &Vec<f32>)| (level, "ancestor".to_owned(), values.clone());
        let named: Vec<_> = levels.iter().enumerate().map(named).collect();
        let named: Vec<_> = named.iter().map(|(level, prefix, values)| (*level, prefix.clone(), &values[..])).collect();
        self.file(run, "ancestor.safetensors".to_owned(), &named)
    }

    /// The file of the router.
    pub fn router(&mut self, run: &WholeRun<'_>) -> Result<(String, Vec<u8>), HuggingFaceError> {
        let view = TensorView::new(Dtype::U8, vec![run.router.len()], run.router)?;
        self.write("router.safetensors".to_owned(), vec![("router".to_owned(), view)])
    }

    /// `model.safetensors.index.json` of all files so far.
    pub fn index(&self) -> Result<(String, Vec<u8>), HuggingFaceError> {
        let index = json!({ "metadata": { "total_size": self.bytes }, "weight_map": self.files });
        Ok((INDEX.to_owned(), serde_json::to_vec_pretty(&index)?))
    }

    /// A file of levels, each with the prefix of its tensors' names and its flat buffer.
    fn file(
        &mut self,
        run: &WholeRun<'_>,
        name: String,
        levels: &[(usize, String, &[f32])],
    ) -> Result<(String, Vec<u8>), HuggingFaceError> {
        let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
        for (level, prefix, values) in levels {
            let specs = level_tensors(run.model, &run.levels[*level]);
            let expected = specs.iter().map(TensorSpec::count).sum();
            if values.len() != expected {
                return Err(HuggingFaceError::Level { level: *level, found: values.len(), expected });
            }
            let mut rest = *values;
            for tensor in specs {
                let (own, after) = rest.split_at(tensor.count());
                rest = after;
                let bytes = own.iter().flat_map(|value| value.to_le_bytes()).collect();
                tensors.push((format!("{prefix}.{}", tensor.name), tensor.shape, bytes));
            }
        }
        let views = tensors
            .iter()
            .map(|(name, shape, bytes)| Ok((name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes)?)))
            .collect::<Result<Vec<_>, SafeTensorError>>()?;
        self.write(name, views)
    }

    fn write(
        &mut self,
        name: String,
        views: Vec<(String, TensorView<'_>)>,
    ) -> Result<(String, Vec<u8>), HuggingFaceError> {
        for (tensor, view) in &views {
            self.files.insert(tensor.clone(), name.clone());
            self.bytes += view.data().len();
        }
        // `transformers` does not load a file without this metadata.
        let notes = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        Ok((name, serialize(views, Some(notes))?))
    }
}

/// `README.md` of the folder. `modules` are the versions of the modules, by their names.
pub fn card(run: &WholeRun<'_>, name: &str, id: &str, modules: &BTreeMap<String, u64>) -> String {
    let (paths, prefix, context) = (run.grid.path_count(), run.prefix_tokens, run.model.context);
    let rows: String = modules.iter().map(|(module, version)| format!("| {module} | {version} |\n")).collect();
    format!(
        "---
library_name: transformers
pipeline_tag: text-generation
tags:
- pathswarm
- custom_code
---

# {name}

A run of pathswarm: {paths} paths through {count} modules, of which each path takes one in every level. The router
chooses the path of a text by its first {prefix} tokens. A text has at most {context} tokens.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(FOLDER, trust_remote_code=True)
model = AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True)
inputs = tokenizer(\"Once upon a time\", return_tensors=\"pt\")
print(model.route(inputs.input_ids))  # the path of each text
output = model.generate(**inputs, max_new_tokens=50, do_sample=False)
print(tokenizer.decode(output[0]))
```

`path=0` in a call of `model` or of `generate` chooses the path instead. `trust_remote_code` runs
`configuration_pathswarm.py` and `modeling_pathswarm.py` of this folder, which are under MIT or Apache-2.0, at your
option. They need PyTorch and transformers.

Run `{id}`. How often each module was updated:

| module | version |
|---|---|
{rows}",
        count = run.grid.module_count(),
    )
}

#[cfg(test)]
mod tests;
