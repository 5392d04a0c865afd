"""The operator's gradients on numpy arrays and PyTorch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _core
from ._arrays import describe, like
from ._attention import inputs, options


class AttentionGradients(NamedTuple):
    """Each of the shape and type of what it is the gradient by; None for a bias or sink that was not given."""

    dq: Any
    dk: Any
    dv: Any
    dbias: Any = None
    dsink: Any = None


def attention_backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    *,
    dlse: Any = None,
    causal: str | bool = "none",
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    mask: Any = None,
    bias: Any = None,
    alibi_slopes: Any = None,
    sink: Any = None,
    q_lengths: Sequence[int] | None = None,
    kv_lengths: Sequence[int] | None = None,
    cu_q: Sequence[int] | None = None,
    cu_kv: Sequence[int] | None = None,
    offset: int | Sequence[int] | None = None,
    dropout_p: float = 0.0,
    seed: int | None = None,
) -> AttentionGradients:
    """Gradients of qkv.attention, in O(T) memory: weights are recomputed from lse.

    dout  the gradient by out: out's shape and type
    out, lse  what qkv.attention(q, k, v, return_lse=True, ...) gave with the same options
    dlse  the gradient by lse, float32, where lse is used too

    The options are those of qkv.attention. Returns AttentionGradients(dq, dk, dv, dbias, dsink); dbias is summed over
    the axes that the bias was broadcast along. What a row does not see gets zeros from it.
    Raises ValueError, TypeError or MemoryError that names the argument.
    """
    packed = cu_q is not None or cu_kv is not None
    arrays, sizes = inputs(q, k, v, packed)
    given = options(causal=causal, window=window, scale=scale, softcap=softcap, mask=mask, bias=bias,
                    alibi_slopes=alibi_slopes, sink=sink, q_lengths=q_lengths, kv_lengths=kv_lengths, cu_q=cu_q,
                    cu_kv=cu_kv, offset=offset, dropout_p=dropout_p, seed=seed, sizes=sizes)
    results = describe("dout", dout), describe("out", out), describe("lse", lse)
    by_lse = None if dlse is None else describe("dlse", dlse)
    dq, dk, dv = (like(x, tuple(x.shape)) for x in (q, k, v))
    dbias, dsink = (None if x is None else like(x, tuple(x.shape)) for x in (bias, sink))
    targets = describe("dq", dq), describe("dk", dk), describe("dv", dv)
    optional = (None if x is None else describe(name, x) for name, x in (("dbias", dbias), ("dsink", dsink)))
    _core.attention_backward(*arrays, given, *results, by_lse, *targets, *optional)
    return AttentionGradients(dq, dk, dv, dbias, dsink)
