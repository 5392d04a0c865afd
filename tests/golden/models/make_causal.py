"""Writes the tiny causal models causal/*/ and what transformers makes of them and of SmolLM2 (eager, float32).

    python make_causal.py SMOLLM2_GGUF        # needs torch, transformers, safetensors, gguf

causal.json: for each tiny model the ids of one text; from a seeded pick of elements the logits (token, vocabulary)
and the attention weights (layer, head, query, key); the greedy continuation.
smollm2.json: the same of a few texts with the model of the GGUF file, dequantised to float32 by transformers.
"""
import json
import pathlib
import shutil
import sys

import gguf
import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

from make import VOCABULARY, pick

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "causal"
TEXT_TOKENS = 40
SIZES = dict(vocab_size=len(VOCABULARY), hidden_size=24, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.4)


def rope(kind, **settings):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 100.0, **settings}}


# Every model has something that the others lack. "old" writes the position settings as configs before
# transformers 5 have them.
TINY = {
    "llama": (transformers.LlamaConfig, dict(tie_word_embeddings=False)),
    "llama3-tied": (transformers.LlamaConfig, dict(tie_word_embeddings=True, **rope(
        "llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16))),
    "linear-biased": (transformers.LlamaConfig, dict(attention_bias=True, mlp_bias=True, old=True, **rope(
        "linear", factor=2.5))),
    "dynamic": (transformers.LlamaConfig, dict(max_position_embeddings=16, num_key_value_heads=1, **rope(
        "dynamic", factor=3.0))),
    "yarn": (transformers.LlamaConfig, dict(num_key_value_heads=4, half=True, old=True, **rope(
        "yarn", factor=4.0, original_max_position_embeddings=16))),
    "mistral": (transformers.MistralConfig, dict(head_dim=8, sliding_window=8)),
    "qwen2": (transformers.Qwen2Config, dict(use_sliding_window=True, max_window_layers=1, sliding_window=5)),
    "qwen3": (transformers.Qwen3Config, dict(head_dim=10, tie_word_embeddings=True, half=True)),
    "gpt2": (transformers.GPT2Config, dict(n_inner=56)),
    "gpt2-scaled": (transformers.GPT2Config, dict(scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False,
                                                  activation_function="relu", tie_word_embeddings=False)),
}


def with_old_names(folder):
    """Position settings as configs had them before transformers 5."""
    config = json.loads((folder / "config.json").read_text())
    parameters = config.pop("rope_parameters")
    config["rope_theta"] = parameters.pop("rope_theta")
    parameters["type"] = parameters.pop("rope_type")
    config["rope_scaling"] = parameters
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def make_model(name, kind, settings):
    settings = dict(settings)
    old, half = settings.pop("old", False), settings.pop("half", False)
    config = kind(**{**SIZES, **settings})
    torch.manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms start as zeros and ones, which would hide mistakes
            parameter.add_(torch.randn_like(parameter) * 0.1)
            if half:
                parameter.copy_(parameter.half())
    folder = FOLDER / name
    model.save_pretrained(folder)
    if half:
        tensors = {key: tensor.half() for key, tensor in load_file(folder / "model.safetensors").items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if old:
        with_old_names(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}) + "\n")
    return model


# GGUF files of Llama and its kin: names, and how the rows of W_Q and W_K are turned for adjacent pairing.
GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm",
    "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}


def gguf_name(name):
    for prefix in ("model.layers.", "transformer.h."):
        if name.startswith(prefix):
            index, module = name[len(prefix):].split(".", 1)
            base, kind = module.rsplit(".", 1)
            return f"blk.{index}.{GGUF_NAMES[base]}.{kind}"
    base, kind = name.rsplit(".", 1)
    return f"{GGUF_NAMES[base]}.{kind}"


def turned(rows, heads):
    """Rows of each head: first half and second half, interleaved."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


Q = gguf.GGMLQuantizationType
GGUF_MODELS = {
    "gguf-llama": (transformers.LlamaConfig, Q.Q8_0, dict(**rope("default"))),
    "gguf-llama3": (transformers.LlamaConfig, Q.F16, dict(tie_word_embeddings=True, **rope(
        "llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16))),
    "gguf-qwen2": (transformers.Qwen2Config, Q.Q4_0, dict(**rope("yarn", factor=4.0,
                                                                 original_max_position_embeddings=16))),
    "gguf-qwen3": (transformers.Qwen3Config, Q.BF16, dict(head_dim=10, **rope("linear", factor=2.0))),
    "gguf-gpt2": (transformers.GPT2Config, Q.Q5_1, {}),
}


def gguf_tokens():
    """One piece a byte, as byte-level BPE writes them, and two merges."""
    shown = {b: chr(b) for b in [*range(33, 127), *range(161, 173), *range(174, 256)]}
    pieces = [shown.get(b) or chr(256 + sum(c not in shown for c in range(b))) for b in range(256)]
    return [*pieces, "th", "the", "<|endoftext|>"], ["t h", "th e"]


def write_metadata(writer, config, architecture):
    parameters = getattr(config, "rope_parameters", None)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    if architecture == "gpt2":
        writer.add_feed_forward_length(4 * config.hidden_size)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(parameters["rope_theta"])
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if parameters["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(parameters["rope_type"]))
        writer.add_rope_scaling_factor(parameters["factor"])
    if parameters["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(parameters["original_max_position_embeddings"])


def llama3_factors(model):
    """How much slower each pair turns than without scaling: files of Llama 3.1 keep them as a tensor."""
    rotary = model.model.rotary_emb
    base, size = model.config.rope_parameters["rope_theta"], 2 * rotary.inv_freq.shape[0]
    plain = 1.0 / base ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
    return (plain / rotary.inv_freq).numpy()


def make_gguf(name, kind, quantisation, settings):
    tokens, merges = gguf_tokens()
    config = kind(**{**SIZES, "hidden_size": 32, "intermediate_size": 64, "vocab_size": len(tokens), **settings})
    torch.manual_seed(len(name))
    model = transformers.AutoModelForCausalLM.from_config(config)
    architecture = config.model_type
    writer = gguf.GGUFWriter(FOLDER / f"{name}.gguf", architecture)
    write_metadata(writer, config, architecture)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(len(tokens) - 1)
    if settings.get("rope_parameters", {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(model))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
            rows = parameter.numpy().astype(numpy.float32)
            transposed = ".c_" in key and rows.ndim == 2
            rows = rows.T if transposed else rows
            heads = {"q_proj": config.num_attention_heads,
                     "k_proj": getattr(config, "num_key_value_heads", 0)}.get(key.split(".")[-2], 0)
            adjacent = architecture == "llama" and heads > 0
            rows = numpy.ascontiguousarray(turned(rows, heads) if adjacent else rows)
            kind_of = quantisation if rows.ndim == 2 else Q.F32
            data = gguf.quants.quantize(rows, kind_of)
            writer.add_tensor(gguf_name(key), data, raw_dtype=kind_of)
            rows = gguf.quants.dequantize(data, kind_of).reshape(rows.shape)
            if adjacent:
                size = rows.shape[0] // heads // 2
                rows = rows.reshape(heads, size, 2, -1).swapaxes(1, 2).reshape(rows.shape)
            parameter.copy_(torch.from_numpy(numpy.ascontiguousarray(rows.T if transposed else rows)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def run(model, ids):
    with torch.no_grad():
        result = model(input_ids=torch.tensor([ids]), output_attentions=True)
    return result.logits[0].numpy(), torch.stack(result.attentions, 1)[0].numpy()  # (T, V), (L, H, T, T)


def greedy(model, ids, count):
    """Never stops at the end token."""
    model.generation_config = transformers.GenerationConfig(max_new_tokens=count, do_sample=False, pad_token_id=0)
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))
    return out[0, len(ids):].tolist()


def tiny(name, model):
    model.eval().set_attn_implementation("eager")
    vocabulary = model.config.vocab_size
    ids = numpy.random.RandomState(len(name)).randint(5, vocabulary - 1, TEXT_TOKENS).tolist()
    logits, weights = run(model, ids)
    return {"name": name, "ids": ids, "logits": pick(logits, 200, 1), "weights": pick(weights, 300, 2),
            "greedy": greedy(model, ids[:12], 12)}


SMOLLM2_TEXTS = [
    ("chicken", "The chicken didn\u2019t cross the road because it"),
    ("keys", "The keys to the cabinet are"),
    ("code", "def area(r):\n    return 3.14159 * r ** 2\n\nprint(area(12))\t# \u4f60\u597d \U0001f414"),
    ("long", "Attention lets every word of a sentence look at the words before it. " * 18),
]


def smollm2(file):
    path = pathlib.Path(file)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32,
                                                              attn_implementation="eager").eval()
    for name, text in SMOLLM2_TEXTS:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        logits, weights = run(model, ids)
        yield {"name": name, "text": text, "ids": ids, "logits": pick(logits, 300, 1),
               "weights": pick(weights, 400, 2), "first_choices": logits.argmax(-1).tolist(),
               "squares": [[round(float(s), 5) for s in layer] for layer in (weights.astype(float)**2).sum((2, 3))],
               "greedy": greedy(model, ids, 64)}


def write(name, cases):
    golden = {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}", "cases": cases}
    text = json.dumps(golden, ensure_ascii=True, separators=(",", ":")).replace('{"name"', '\n{"name"')
    (HERE / name).write_text(text + "\n")


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    cases = [tiny(name, make_model(name, *spec)) for name, spec in TINY.items()]
    cases += [tiny(f"{name}.gguf", make_gguf(name, *spec)) for name, spec in GGUF_MODELS.items()]
    write("causal.json", cases)
    if len(sys.argv) > 1:
        write("smollm2.json", list(smollm2(sys.argv[1])))


if __name__ == "__main__":
    main()
