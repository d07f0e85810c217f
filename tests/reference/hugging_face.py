"""What `transformers` makes of the same models, and of ours.

    python tests/reference/hugging_face.py [NAME ...]
        makes the folders of hugging_face/: models as save_pretrained writes them, one for each architecture and option,
        and their logits.
    python tests/reference/hugging_face.py --check FOLDER ...
        loads folders that `pathswarm export` or tests/agreement/hugging_face.rs has written, and compares logits with the
        folder's logits.json where there is one.

Made with torch 2.11.0 and transformers 5.23.0.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).parent / "hugging_face"
TOKENS = [[1, 5, 77, 200, 3, 9, 150, 257], [0, 0, 31, 32, 33, 256, 2, 1]]
GPT2 = dict(vocab_size=258, n_positions=16, n_embd=8, n_layer=2, n_head=2, n_inner=20,
            activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
NEOX = dict(vocab_size=258, max_position_embeddings=16, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=20, hidden_act="gelu", use_parallel_residual=False,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0))
LLAMA = dict(vocab_size=258, max_position_embeddings=16, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, intermediate_size=20, hidden_act="silu", rms_norm_eps=1e-5,
             rope_parameters=dict(rope_type="default", rope_theta=10000.0), tie_word_embeddings=False)


def rope(**parameters):
    return dict(rope_parameters=dict(rope_theta=10000.0, **parameters))


# Each folder: the model's type, its sizes, and the type of its stored weights.
MODELS = {
    "gpt2": ("gpt2", GPT2, torch.float32),
    "gpt_neox": ("gpt_neox", NEOX, torch.float32),
    # As Pythia: parallel residuals, and a quarter of each head rotated.
    "pythia": ("gpt_neox", NEOX | dict(hidden_size=16, use_parallel_residual=True, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25)), torch.float16),
    "llama": ("llama", LLAMA, torch.float32),
    # As SmolLM2 and Llama 3.2: tied, with another θ.
    "llama-tied": ("llama", LLAMA | dict(tie_word_embeddings=True, rope_parameters=dict(
        rope_type="default", rope_theta=100000.0)), torch.bfloat16),
    "llama-biases": ("llama", LLAMA | dict(attention_bias=True, mlp_bias=True, hidden_act="gelu"), torch.float32),
    "llama-head": ("llama", LLAMA | dict(head_dim=6, attention_bias=True, num_key_value_heads=1), torch.float32),
    "llama-linear": ("llama", LLAMA | rope(rope_type="linear", factor=4.0), torch.float32),
    "llama-dynamic": ("llama", LLAMA | rope(rope_type="dynamic", factor=4.0), torch.float32),
    "llama-llama3": ("llama", LLAMA | dict(head_dim=16) | rope(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64), torch.float32),
    "llama-yarn": ("llama", LLAMA | dict(head_dim=16) | rope(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=64), torch.float32),
    "llama-yarn-scales": ("llama", LLAMA | dict(head_dim=16) | rope(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=16.0, beta_slow=2.0, mscale=0.7,
        mscale_all_dim=0.4, truncate=False), torch.float32),
    "mistral": ("mistral", LLAMA | dict(hidden_size=18, head_dim=4, sliding_window=None), torch.float32),
    "qwen2": ("qwen2", LLAMA, torch.float32),
    "qwen3": ("qwen3", LLAMA | dict(head_dim=6, tie_word_embeddings=True), torch.float32),
    "olmo2": ("olmo2", LLAMA | dict(rms_norm_eps=1e-6), torch.float32),
}


def logits(model):
    with torch.no_grad():
        return model.eval().float()(torch.tensor(TOKENS)).logits


def make(only):
    for name, (kind, sizes, dtype) in MODELS.items():
        if only and name not in only:
            continue
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes))
        with torch.no_grad():
            # Initial values alone would hide a bias that is left out, or heads in another order.
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.4)
        folder = HERE / name
        model.to(dtype).save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        values = dict(tokens=TOKENS, logits=logits(model).tolist())
        (folder / "logits.json").write_text(json.dumps(values))


def check(folder):
    model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    wrong = {key: value for key, value in loading.items() if value}
    assert not wrong, f"{folder}: {wrong}"
    expected = Path(folder) / "logits.json"
    if expected.exists():
        expected = torch.tensor(json.loads(expected.read_text())["logits"])
        difference = (logits(model) - expected).abs().max().item()
        assert difference < 1e-4, f"{folder}: logits differ by {difference}"
        print(f"{folder}: {type(model).__name__}, logits differ by at most {difference:.1e}")
    if (Path(folder) / "tokenizer.json").exists():
        tokenizer = AutoTokenizer.from_pretrained(folder)
        prompt = tokenizer("Once upon a time", return_tensors="pt")
        made = model.generate(**prompt, max_new_tokens=20, do_sample=False)
        print(f"{folder}: {type(tokenizer).__name__}: {tokenizer.decode(made[0])!r}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        for folder in sys.argv[2:]:
            check(folder)
    else:
        make(sys.argv[1:])
