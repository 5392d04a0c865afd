"""Writes the captures that the view's tests draw: NAME.json (tokens) and NAME.f32 (weights, little-endian float32,
layers x heads x queries x keys), from transformers in eager mode, float32.

usage: make_captures.py MODEL_DIRECTORY OUTPUT_DIRECTORY [NAME TEXT]
"""
import json
import pathlib
import sys

import torch
from transformers import AutoModel, AutoTokenizer

SENTENCES = {"chicken": "The chicken didn't cross the road because it was too tired"}


def capture(model, tokenizer, name, text, folder):
    encoded = tokenizer(text, return_tensors="pt", truncation=False, padding=False, return_offsets_mapping=True)
    offsets = encoded.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        weights = torch.stack(model(**encoded, output_attentions=True).attentions)[:, 0]
    ids = encoded["input_ids"][0].tolist()
    tokens = tokenizer.convert_ids_to_tokens(ids)
    described = {
        "model": "minilm",
        "text": text,
        "ids": ids,
        "tokens": tokens,
        "labels": [token.removeprefix("##") for token in tokens],
        "continues": [token.startswith("##") for token in tokens],
        "special": [identity in tokenizer.all_special_ids for identity in ids],
        "spans": [[len(text[:at].encode()) for at in span] for span in offsets],
        "layers": weights.shape[0],
        "heads": weights.shape[1],
    }
    (folder / f"{name}.json").write_text(json.dumps(described, indent=1) + "\n")
    (folder / f"{name}.f32").write_bytes(weights.numpy().astype("<f4").tobytes())


def main():
    directory, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    texts = {sys.argv[3]: sys.argv[4]} if len(sys.argv) > 4 else SENTENCES
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModel.from_pretrained(directory, attn_implementation="eager", dtype=torch.float32).eval()
    for name, text in texts.items():
        capture(model, tokenizer, name, text, folder)


if __name__ == "__main__":
    main()
