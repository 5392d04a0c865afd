"""Writes explain.json: what transformers (eager, float32) computes on the way through MiniLM's attention.

    python make_explain.py MINILM_FOLDER        # needs torch, transformers

For two layers and each of the tensors that qkv explains at the level of all heads: a seeded pick of its elements, and
its largest magnitude.
"""
import json
import sys

import torch
import transformers

from make import CHICKEN, HERE, pick

LAYERS = (0, 5)


def tensors(model, layer, ids):
    attention = model.encoder.layer[layer].attention
    kept = {}

    def keep(name, module):
        module.register_forward_hook(lambda _, inputs, output: kept.update({name: output, name + " input": inputs[0]}))

    keep("Q", attention.self.query)
    keep("K", attention.self.key)
    keep("V", attention.self.value)
    keep("Y", attention.output.dense)
    with torch.no_grad():
        result = model(input_ids=ids, output_attentions=True)
    heads = model.config.num_attention_heads

    def split(rows):
        return rows.view(*rows.shape[:2], heads, -1).transpose(1, 2)

    q, k, v = (split(kept[name]) for name in "QKV")
    scores = q @ k.transpose(2, 3)
    return {"X": kept["Q input"], "Q": q, "K": k, "V": v, "S": scores, "S'": scores / q.shape[-1] ** 0.5,
            "A": result.attentions[layer], "Z": kept["Y input"], "Y": kept["Y"]}


def main():
    folder = sys.argv[1]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    text = CHICKEN.format("'", "tired")
    ids = torch.tensor([tokenizer(text, truncation=False)["input_ids"]])
    cases = []
    for layer in LAYERS:
        found = tensors(model, layer, ids)
        cases.append({"name": f"layer {layer}", "layer": layer, "text": text, "tensors": {
            name: {**pick(tensor.numpy(), 200, 1), "largest": float(tensor.abs().max())}
            for name, tensor in found.items()}})
    golden = {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}", "cases": cases}
    text = json.dumps(golden, separators=(",", ":")).replace('{"name"', '\n{"name"')
    (HERE / "explain.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
