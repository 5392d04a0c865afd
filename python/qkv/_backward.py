"""The operator's gradients on numpy arrays and PyTorch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from . import _core
from ._arrays import like
from ._attention import inputs
from ._core import describe
from ._options import Options, checked, takes

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AttentionGradients(NamedTuple):
    """Each of the shape and type of what it is the gradient by; None for a bias or sink that was not given."""

    dq: Any
    dk: Any
    dv: Any
    dbias: Any = None
    dsink: Any = None


@takes(Options)
def attention_backward(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *, dlse: Any = None,
                       **options: Unpack[Options]) -> AttentionGradients:
    """Gradients of qkv.attention, in O(T) memory: weights are recomputed from lse.

    dout  the gradient by out: out's shape and type
    out, lse  what qkv.attention(q, k, v, return_lse=True, ...) gave with the same options
    dlse  the gradient by lse, float32, where lse is used too

    The options are those of qkv.attention. Returns AttentionGradients(dq, dk, dv, dbias, dsink); dbias is summed over
    the axes that the bias was broadcast along. What a row does not see gets zeros from it.
    Raises ValueError, TypeError or MemoryError that names the argument.
    """
    given = checked("attention_backward", Options, options)
    arrays = inputs(q, k, v, given)
    bias, sink = options.get("bias"), options.get("sink")
    results = describe("dout", dout), describe("out", out), describe("lse", lse)
    by_lse = None if dlse is None else describe("dlse", dlse)
    dq, dk, dv = (like(x, tuple(x.shape)) for x in (q, k, v))
    dbias, dsink = (None if x is None else like(x, tuple(x.shape)) for x in (bias, sink))
    targets = describe("dq", dq), describe("dk", dk), describe("dv", dv)
    optional = (None if x is None else describe(name, x) for name, x in (("dbias", dbias), ("dsink", dsink)))
    _core.attention_backward(*arrays, given, *results, by_lse, *targets, *optional)
    return AttentionGradients(dq, dk, dv, dbias, dsink)
