"""Writes layers.json: outputs of PyTorch's nn.MultiheadAttention and of plain PyTorch arithmetic, float32.

Parameters and inputs are not stored: they come from `noise`, integer arithmetic that the C++ tests repeat
exactly. Of each result a seeded pick of elements is stored, and the sum of all.

    python make.py        # needs torch
"""
import json
import pathlib

import numpy
import torch

PICKS = 48


def noise(seed, *shape):
    """Uniform in [-1/2, 1/2): Knuth's multiplicative hash of the index, mixed, its top 24 bits."""
    with numpy.errstate(over="ignore"):
        x = numpy.arange(int(numpy.prod(shape)), dtype=numpy.uint32) + numpy.uint32(seed * 0x9E3779B9 & 0xFFFFFFFF)
        for factor in (0x85EBCA6B, 0xC2B2AE35):
            x = (x ^ (x >> numpy.uint32(16))) * numpy.uint32(factor)
        x ^= x >> numpy.uint32(16)
    return torch.from_numpy(((x >> numpy.uint32(8)).astype(numpy.float32) / 2**24 - 0.5).reshape(shape))


def sample(tensor, seed):
    flat = tensor.detach().reshape(-1).double()
    picks = numpy.random.RandomState(seed).randint(0, len(flat), PICKS)
    return {"size": len(flat), "sum": float(flat.sum()),
            "picks": [int(i) for i in picks], "values": [round(float(flat[i]), 8) for i in picks]}


def multi_head(name, *, batch, q_length, kv_length=None, width, heads, context=None, causal=False):
    """nn.MultiheadAttention; seeds 1..8 are w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o, 9 and 10 x and the context."""
    kv_width = context or width
    layer = torch.nn.MultiheadAttention(width, heads, batch_first=True, kdim=kv_width, vdim=kv_width)
    weights = [noise(1, width, width), noise(2, width, kv_width), noise(3, width, kv_width)]
    with torch.no_grad():
        if layer.in_proj_weight is not None:
            layer.in_proj_weight.copy_(torch.cat(weights) / 4)
        else:
            for to, weight in zip((layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight), weights):
                to.copy_(weight / 4)
        layer.out_proj.weight.copy_(noise(4, width, width) / 4)
        layer.in_proj_bias.copy_(torch.cat([noise(seed, width) for seed in (5, 6, 7)]))
        layer.out_proj.bias.copy_(noise(8, width))
        x = noise(9, batch, q_length, width) * 4
        other = x if kv_length is None else noise(10, batch, kv_length, kv_width) * 4
        mask = torch.ones(q_length, q_length, dtype=torch.bool).triu(1) if causal else None
        out, attention = layer(x, other, other, need_weights=True, average_attn_weights=False, attn_mask=mask)
    return {"name": name, "batch": batch, "q_length": q_length, "kv_length": kv_length or q_length,
            "width": width, "heads": heads, "context": context or 0, "causal": causal,
            "out": sample(out, 1), "weights": sample(attention, 2)}


def one_head(d_in, d_k, d_v, d_out, length):
    """softmax(Q K^T / sqrt(d_k)) V W_O, d_k and d_v apart."""
    x = noise(9, 1, length, d_in) * 4
    q, k, v = (x @ noise(seed, rows, d_in).T for seed, rows in ((1, d_k), (2, d_k), (3, d_v)))
    weights = torch.softmax(q @ k.transpose(1, 2) / d_k**0.5, dim=-1)
    out = weights @ v @ noise(4, d_out, d_v).T
    return {"d_in": d_in, "d_k": d_k, "d_v": d_v, "d_out": d_out, "length": length,
            "out": sample(out, 3), "weights": sample(weights, 4)}


def simplified(batch, length, width, causal):
    x = noise(9, batch, length, width) * 2
    scores = x @ x.transpose(1, 2)
    if causal:
        scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -torch.inf)
    weights = torch.softmax(scores, dim=-1)
    return {"batch": batch, "length": length, "width": width, "causal": causal,
            "out": sample(weights @ x, 5), "weights": sample(weights, 6)}


def main():
    golden = {
        "made_with": f"torch {torch.__version__}",
        "multi_head": [
            multi_head("original sizes", batch=2, q_length=33, width=512, heads=8),
            multi_head("original sizes, causal", batch=1, q_length=40, width=512, heads=8, causal=True),
            multi_head("cross", batch=2, q_length=7, kv_length=21, width=96, heads=4, context=64),
        ],
        "one_head": [one_head(48, 16, 24, 40, 19)],
        "simplified": [simplified(2, 17, 24, causal) for causal in (False, True)],
    }
    path = pathlib.Path(__file__).with_name("layers.json")
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
