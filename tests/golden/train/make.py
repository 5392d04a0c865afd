#!/usr/bin/env python3
"""Writes what tests/train holds training against; the C++ side makes the same parameters and batches from `noise`.

losses.json: 200 steps of a 4-layer GPT-2 in transformers and PyTorch, float32, no dropout.
gpt2/: a small GPT-2 as transformers saves it, and in loss.json its loss on batch 0.

usage: make.py   (needs torch and transformers)
"""
import json
import math
import pathlib

import numpy
import torch
from transformers import GPT2Config, GPT2LMHeadModel

LAYERS, HEADS, WIDTH, CONTEXT, VOCAB = 4, 4, 32, 24, 61
BATCH, ACCUMULATE, STEPS, WARMUP = 4, 2, 200, 20
RATE, LAST_RATE, BETAS, EPSILON, DECAY, CLIP = 3e-3, 3e-4, (0.9, 0.95), 1e-8, 0.1, 1.0


def noise(seed, count, scale):
    """Uniform in [-1/2, 1/2), times scale: Noise of tests/layers/noise.h, the same bits."""
    x = numpy.arange(count, dtype=numpy.uint32) + numpy.uint32(seed * 0x9E3779B9 & 0xFFFFFFFF)
    for factor in (0x85EBCA6B, 0xC2B2AE35):
        x = (x ^ (x >> numpy.uint32(16))) * numpy.uint32(factor)
    x ^= x >> numpy.uint32(16)
    return (numpy.float32(x >> numpy.uint32(8)) / numpy.float32(2**24) - numpy.float32(0.5)) * numpy.float32(scale)


def batch(index, context=CONTEXT, vocab=VOCAB):
    """Sequences x -> 5 x + 7, with one token in eight drawn at random: something to learn, and a floor to the loss."""
    count = BATCH * (context + 1)
    random = ((noise(1000 + 2 * index, count, 1.0) + 0.5) * vocab).astype(numpy.int64)
    jump = noise(1001 + 2 * index, count, 1.0) < -0.375
    tokens = random.reshape(BATCH, context + 1)
    jump = jump.reshape(BATCH, context + 1)
    for t in range(1, context + 1):
        tokens[:, t] = numpy.where(jump[:, t], tokens[:, t], (5 * tokens[:, t - 1] + 7) % vocab)
    return torch.from_numpy(tokens[:, :-1].copy()), torch.from_numpy(tokens[:, 1:].copy())


def rate(step):
    if step < WARMUP:
        return RATE * (step + 1) / WARMUP
    done = (step - WARMUP) / (STEPS - 1 - WARMUP)
    return LAST_RATE + 0.5 * (1 + math.cos(math.pi * done)) * (RATE - LAST_RATE)


def model(layers, heads, width, context, vocab):
    config = GPT2Config(n_layer=layers, n_head=heads, n_embd=width, n_positions=context, vocab_size=vocab,
                        bos_token_id=None, eos_token_id=None, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager")
    gpt2 = GPT2LMHeadModel(config)
    with torch.no_grad():
        for number, (name, parameter) in enumerate(gpt2.transformer.named_parameters()):
            values = torch.from_numpy(noise(number + 1, parameter.numel(), 0.2)).reshape(parameter.shape)
            gain = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(values + 1 if gain else values)
    return gpt2


def loss_of(gpt2, inputs, targets):
    return torch.nn.functional.cross_entropy(gpt2(inputs).logits.flatten(0, 1), targets.flatten())


def train(folder):
    gpt2 = model(LAYERS, HEADS, WIDTH, CONTEXT, VOCAB)
    matrices = [p for p in gpt2.parameters() if p.dim() >= 2]
    others = [p for p in gpt2.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0}],
                                  betas=BETAS, eps=EPSILON)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for part in range(ACCUMULATE):
            inputs, targets = batch(step * ACCUMULATE + part)
            loss = loss_of(gpt2, inputs, targets) / ACCUMULATE
            loss.backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(gpt2.parameters(), CLIP).item())
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        losses.append(total)
    (folder / "losses.json").write_text(json.dumps({"losses": [float(f"{x:.7g}") for x in losses],
                                                    "norms": [float(f"{x:.6g}") for x in norms]}) + "\n")


def save(folder):
    gpt2 = model(2, 2, 16, 12, 37).eval()
    gpt2.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    with torch.no_grad():
        loss = loss_of(gpt2, *batch(0, 12, 37)).item()
    (folder / "loss.json").write_text(json.dumps({"loss": loss}) + "\n")


def main():
    here = pathlib.Path(__file__).parent
    save(here / "gpt2")
    train(here)


if __name__ == "__main__":
    main()
