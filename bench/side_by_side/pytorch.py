"""PyTorch's ways."""
import math

import numpy as np
import torch

from .data import token_ids, values
from .race import Contestant

NAME = "PyTorch"


def tensor(array):
    """The array's own memory."""
    if array.dtype == np.float32 or array.dtype == np.float16:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)


def contestant(way, compute, program=NAME):
    """compute() returns a tensor."""
    kept = []

    def run():
        with torch.inference_mode():
            kept[:] = [compute()]
    return Contestant(program, way, run, lambda: kept[0].float().numpy())


def turns(inputs, way, compute, program=NAME):
    """compute(q, k, v) on each copy of k and v in turn."""
    q = tensor(inputs.q)
    kv = [(tensor(k), tensor(v)) for k, v in inputs.kv]
    return contestant(way, inputs.rotate(lambda turn: compute(q, *kv[turn])), program)


def attention(case, inputs):
    sdpa = torch.nn.functional.scaled_dot_product_attention
    group = case["q_heads"] // case["kv_heads"]

    def grouped(q, k, v):
        return sdpa(q, k, v, is_causal=case["causal"], enable_gqa=True)

    def repeated(q, k, v):
        return sdpa(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=case["causal"])

    if group == 1:
        yield turns(inputs, "SDPA", lambda q, k, v: sdpa(q, k, v, is_causal=case["causal"]))
        return
    yield turns(inputs, "SDPA, grouped heads", grouped)
    yield turns(inputs, "SDPA, heads repeated in the call", repeated)


def three_steps(case, inputs):
    """Multiply, softmax, multiply, the scores written out."""
    def steps(q, k, v):
        heads = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
        scores = torch.baddbmm(empty, heads[0], heads[1].mT, beta=0, alpha=1 / math.sqrt(case["d"]))
        return torch.bmm(scores.softmax(-1), heads[2])
    empty = torch.zeros(1)
    yield turns(inputs, "bmm, softmax, bmm", steps, "PyTorch, three steps")


def capture(case, inputs):
    """The same numbers from weights that are written out."""
    k, v = inputs.kv[0]
    q, k, v = tensor(inputs.q), tensor(k), tensor(v)
    length = case["queries"]
    blocked = torch.ones(length, length, dtype=torch.bool).triu(1)

    def eager():
        scores = (q @ k.mT) * (1 / math.sqrt(case["d"]))
        weights = scores.masked_fill_(blocked, -math.inf).softmax(-1)
        parts = weights @ v, weights.topk(16).values, torch.special.entr(weights).sum(-1), weights.sum(-2)
        return torch.cat([part.flatten() for part in parts])
    yield contestant("eager", eager)


def backward(case):
    """Forward, and the gradients by q, k and v."""
    def shape(heads, rows):
        return case["batch"], case[heads], case[rows], case["d"]
    shapes = shape("q_heads", "queries"), shape("kv_heads", "keys"), shape("kv_heads", "keys")
    inputs = [tensor(values(stream, one, case["dtype"])).requires_grad_() for stream, one in enumerate(shapes)]
    dout = tensor(values(3, shapes[0], case["dtype"]))
    grouped = case["q_heads"] != case["kv_heads"]
    kept = []

    def run():
        out = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=case["causal"], enable_gqa=grouped)
        kept[:] = torch.autograd.grad(out, inputs, dout)
    yield Contestant(NAME, "SDPA and autograd", run,
                     lambda: np.concatenate([gradient.float().numpy().ravel() for gradient in kept]))


def layer(case):
    width, heads = case["q_heads"] * case["d"], case["q_heads"]
    shape = (case["batch"], case["queries"], width)
    dtype = getattr(torch, case["dtype"])
    x = tensor(values(0, shape)).to(dtype)
    scale = np.float32(1 / math.sqrt(width))
    module = torch.nn.MultiheadAttention(width, heads, bias=False, batch_first=True).eval()
    with torch.no_grad():
        for part, matrix in enumerate(module.in_proj_weight.chunk(3)):
            matrix.copy_(tensor(values(1 + part, (width, width)) * scale))
        module.out_proj.weight.copy_(tensor(values(4, (width, width)) * scale))
    module.to(dtype)
    yield contestant("nn.MultiheadAttention", lambda: module(x, x, x, need_weights=False)[0])

    def written_out():
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2)
                   for part in torch.nn.functional.linear(x, module.in_proj_weight).chunk(3, -1))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return module.out_proj(out.transpose(1, 2).flatten(2))
    yield contestant("linear and SDPA", written_out)


def load_model(folder, dtype=torch.float32):
    import transformers
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers.AutoModel.from_pretrained(folder, dtype=dtype).eval()


def model(case, folder):
    module = load_model(folder, getattr(torch, case["dtype"]))
    ids = torch.from_numpy(token_ids(case["batch"], case["queries"]))
    yield contestant("transformers with SDPA", lambda: module(ids).last_hidden_state)
