"""Writes what transformers (eager, float32) computes on the way through attention.

    python make_explain.py MINILM_FOLDER SMOLLM2_GGUF        # needs torch, transformers, gguf

explain.json, explain_smollm2.json: for two layers and each of the tensors that qkv explains at the level of all heads,
a seeded pick of its elements, and its largest magnitude.
"""
import json
import pathlib
import sys

import torch
import transformers
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from make import CHICKEN, HERE, pick

MINILM_LAYERS = (0, 5)
SMOLLM2_LAYERS = (0, 13)
SMOLLM2_TEXT = "The chicken didn\u2019t cross the road because it"


class Kept(dict):
    """What modules get and give in a run."""

    def keep(self, name, module):
        module.register_forward_hook(
            lambda _, inputs, output: self.update({name: output, name + " input": inputs[0] if inputs else None}))


def heads_of(rows, heads):
    return rows.view(*rows.shape[:2], heads, -1).transpose(1, 2)


def minilm_tensors(model, layer, ids):
    attention, kept = model.encoder.layer[layer].attention, Kept()
    for name, module in {"Q": attention.self.query, "K": attention.self.key, "V": attention.self.value,
                         "Y": attention.output.dense}.items():
        kept.keep(name, module)
    with torch.no_grad():
        result = model(input_ids=ids, output_attentions=True)
    q, k, v = (heads_of(kept[name], model.config.num_attention_heads) for name in "QKV")
    scores = q @ k.transpose(2, 3)
    return {"X": kept["Q input"], "Q": q, "K": k, "V": v, "S": scores, "S'": scores / q.shape[-1] ** 0.5,
            "A": result.attentions[layer], "Z": kept["Y input"], "Y": kept["Y"]}


def in_file_order(rows):
    """Pairs of channels beside each other, as GGUF files of Llama's family have them."""
    return rows.unflatten(-1, (2, rows.shape[-1] // 2)).transpose(-1, -2).flatten(-2)


def smollm2_tensors(model, layer, ids):
    block, kept = model.model.layers[layer], Kept()
    attention = block.self_attn
    for name, module in {"X": block.input_layernorm, "Q": attention.q_proj, "K": attention.k_proj,
                         "V": attention.v_proj, "Y": attention.o_proj}.items():
        kept.keep(name, module)
    attention.register_forward_pre_hook(
        lambda _, inputs, named: kept.update({"positions": named["position_embeddings"]}), with_kwargs=True)
    with torch.no_grad():
        result = model(input_ids=ids, output_attentions=True)
    heads, kv_heads = model.config.num_attention_heads, model.config.num_key_value_heads
    q, k, v = heads_of(kept["Q"], heads), heads_of(kept["K"], kv_heads), heads_of(kept["V"], kv_heads)
    turned_q, turned_k = apply_rotary_pos_emb(q, k, *kept["positions"])
    scores = turned_q @ turned_k.repeat_interleave(heads // kv_heads, 1).transpose(2, 3)
    return {"H": kept["X input"], "X": kept["X"], "Q": in_file_order(q), "K": in_file_order(k), "V": v,
            "Q'": in_file_order(turned_q), "K'": in_file_order(turned_k), "S": scores,
            "S'": scores / q.shape[-1] ** 0.5, "A": result.attentions[layer], "Z": kept["Y input"], "Y": kept["Y"]}


def write(file, text, layers, tensors_of):
    cases = [{"name": f"layer {layer}", "layer": layer, "text": text, "tensors": {
        name: {**pick(tensor.numpy(), 200, 1), "largest": float(tensor.abs().max())}
        for name, tensor in tensors_of(layer).items()}} for layer in layers]
    golden = {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}", "cases": cases}
    (HERE / file).write_text(json.dumps(golden, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")


def main():
    settings = {"attn_implementation": "eager", "dtype": torch.float32}
    tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
    model = transformers.AutoModel.from_pretrained(sys.argv[1], **settings).eval()
    text = CHICKEN.format("'", "tired")
    ids = torch.tensor([tokenizer(text, truncation=False)["input_ids"]])
    write("explain.json", text, MINILM_LAYERS, lambda layer: minilm_tensors(model, layer, ids))

    file = pathlib.Path(sys.argv[2])
    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    causal = transformers.AutoModelForCausalLM.from_pretrained(**where, **settings).eval()
    ids = torch.tensor([tokenizer(SMOLLM2_TEXT)["input_ids"]])
    write("explain_smollm2.json", SMOLLM2_TEXT, SMOLLM2_LAYERS, lambda layer: smollm2_tensors(causal, layer, ids))


if __name__ == "__main__":
    main()
