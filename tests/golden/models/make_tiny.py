#!/usr/bin/env python3
"""Writes tiny_logits.safetensors: what transformers computes with the model that ships, models/tiny, in float32.

ids (T): a verse from the part of the text that the model never learned from, as the tokenizers library cuts it.
logits (T, V): all of them, of GPT2LMHeadModel as it loads the folder.

usage: make_tiny.py   (needs torch, transformers, tokenizers, safetensors)
"""
import pathlib

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

FOLDER = pathlib.Path(__file__).resolve().parent
MODEL = FOLDER.parents[2] / "models/tiny"
TEXT = "And I saw a new heaven and a new earth: for the first heaven and the first earth were passed away"


def main():
    ids = Tokenizer.from_file(str(MODEL / "tokenizer.json")).encode(TEXT).ids
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    save_file({"ids": torch.tensor(ids), "logits": logits.contiguous()}, FOLDER / "tiny_logits.safetensors",
              metadata={"text": TEXT})


if __name__ == "__main__":
    main()
