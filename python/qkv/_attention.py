"""The operator on numpy arrays and PyTorch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from . import _core
from ._arrays import Description, describe, like
from ._checks import flag, integer, integers, number, one_or_more_integers, optional_integer, shown, wrong_type

_CAUSAL = ("none", "top_left", "bottom_right")
_SCORES = ("raw", "softcapped", "biased")


@dataclass(frozen=True)
class Capture:
    """What to keep of the attention weights while attention runs; memory is O(T * top_k), never O(T**2).

    top_k     how many keys of largest weight to keep of each row (a row is one query of one head)
    rows      indices of queries whose full rows to keep
    entropy   True: the entropy of each row, in nats
    received  True: the weight that each key received, summed over the queries
    scores    what `rows` holds: None for weights, or scores on the way to them: 'raw' (scale * q.k), 'softcapped',
              or 'biased' (after bias and masks; a blocked key has -inf)
    """

    top_k: int = 0
    rows: Sequence[int] | None = None
    entropy: bool = False
    received: bool = False
    scores: str | None = None

    def __post_init__(self) -> None:
        integer("capture.top_k", self.top_k)
        integers("capture.rows", self.rows)
        flag("capture.entropy", self.entropy)
        flag("capture.received", self.received)
        if self.scores is None:
            return
        if not isinstance(self.scores, str):
            raise wrong_type("capture.scores", f"None or one of {_SCORES}", self.scores)
        if self.scores not in _SCORES:
            raise ValueError(f"capture.scores: unknown name, expected None or one of {_SCORES}, got {self.scores!r}")
        if self.rows is None:
            raise ValueError("capture.scores: given without rows, expected the rows whose scores to keep")


@dataclass(frozen=True)
class Captured:
    """What was kept, as numpy arrays; None for what was not asked for. Of a packed batch, Tq and Tk are the longest."""

    top_keys: np.ndarray[Any, Any] | None = None  #: int32 (B, Hq, Tq, top_k), weight descending, padded with -1
    top_weights: np.ndarray[Any, Any] | None = None  #: float32 (B, Hq, Tq, top_k), padded with 0
    entropy: np.ndarray[Any, Any] | None = None  #: float32 (B, Hq, Tq)
    sink_weight: np.ndarray[Any, Any] | None = None  #: float32 (B, Hq, Tq): the sink's share, with entropy and a sink
    received: np.ndarray[Any, Any] | None = None  #: float32 (B, Hq, Tk)
    rows: np.ndarray[Any, Any] | None = None  #: float32 (B, Hq, len(rows), Tk)


class AttentionResult(NamedTuple):
    """What attention returns where more than `out` was asked for."""

    out: Any
    lse: Any = None
    capture: Captured | None = None


def _causal(causal: Any, q_lengths: list[int], kv_lengths: list[int]) -> str:
    if isinstance(causal, (bool, np.bool_)):
        if not causal:
            return "none"
        for sequence, (queries, keys) in enumerate(zip(q_lengths, kv_lengths)):
            if queries != keys:
                raise ValueError(
                    "causal: True is ambiguous where queries and keys differ in number, expected 'top_left' or "
                    f"'bottom_right', got {queries} queries and {keys} keys in sequence {sequence}"
                )
        return "bottom_right"
    if not isinstance(causal, str):
        raise wrong_type("causal", f"one of {_CAUSAL}, True or False", causal)
    if causal not in _CAUSAL:
        raise ValueError(f"causal: unknown name, expected one of {_CAUSAL}, True or False, got {causal!r}")
    return causal


def _window(window: Any) -> tuple[int | None, int | None]:
    if window is None:
        return None, None
    if not isinstance(window, (tuple, list)):
        raise wrong_type("window", "(left, right), either of them None where open", window)
    if len(window) != 2:
        raise ValueError(f"window: wrong number of sides, expected (left, right), got {shown(window)}")
    left, right = window
    return optional_integer("window.left", left), optional_integer("window.right", right)


def _differences(offsets: list[int]) -> list[int]:
    return [b - a for a, b in zip(offsets, offsets[1:])]


def options(*, causal: Any, window: Any, scale: Any, softcap: Any, mask: Any, bias: Any, alibi_slopes: Any, sink: Any,
            q_lengths: Any, kv_lengths: Any, cu_q: Any, cu_kv: Any, offset: Any, dropout_p: Any, seed: Any,
            sizes: tuple[list[int], list[int]]) -> dict[str, Any]:
    """Options as the extension takes them: those alone that were given, since a call on a few tokens takes less time
    than converting all of them. sizes: queries and keys of each sequence, where nothing shortens them."""
    given: dict[str, Any] = {}
    for name, values in (("q_lengths", q_lengths), ("kv_lengths", kv_lengths), ("cu_q", cu_q), ("cu_kv", cu_kv)):
        if values is not None:
            given[name] = integers(name, values)
    for name, array in (("mask", mask), ("bias", bias), ("alibi_slopes", alibi_slopes), ("sink", sink)):
        if array is not None:
            given[name] = describe(name, array)
    for name, value in (("scale", scale), ("softcap", softcap)):
        if value is not None:
            given[name] = number(name, value)
    dropped = number("dropout_p", dropout_p)
    if dropped != 0.0:
        given["dropout_p"] = dropped
    queries, keys = sizes
    if cu_q is not None and cu_kv is not None:
        queries, keys = _differences(given["cu_q"]), _differences(given["cu_kv"])
    if not isinstance(causal, str) or causal != "none":
        given["causal"] = _causal(causal, given.get("q_lengths", queries), given.get("kv_lengths", keys))
    if window is not None:
        given["window_left"], given["window_right"] = _window(window)
    if offset is not None:
        given["offset"] = one_or_more_integers("offset", offset)
    if seed is not None:
        given["seed"] = integer("seed", seed, 0, 2**64 - 1)
    return given


def inputs(q: Any, k: Any, v: Any, packed: bool) -> tuple[tuple[Description, Description, Description],
                                                            tuple[list[int], list[int]]]:
    """q, k and v as the extension takes them, and the sizes that `options` wants."""
    arrays = describe("q", q), describe("k", k), describe("v", v)
    for name, (_, _, shape, _) in zip("qkv", arrays):
        if len(shape) != (3 if packed else 4):
            expected = "(total, heads, D), as cu_q and cu_kv are given" if packed else "(B, H, T, D)"
            raise ValueError(f"{name}: wrong rank, expected {expected}, got shape {tuple(shape)}")
    if packed:
        return arrays, ([], [])
    q_shape, k_shape = arrays[0][2], arrays[1][2]
    return arrays, ([q_shape[2]] * q_shape[0], [k_shape[2]] * q_shape[0])


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
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
    return_lse: bool = False,
    capture: Capture | None = None,
    out: Any = None,
) -> Any:
    """softmax(scale * q k^T + bias, masked) v, exact, in O(T) memory.

    Arrays are numpy arrays (bfloat16 through ml_dtypes) or PyTorch tensors on the CPU, of any strides, and are not
    copied. q, k and v have one type, float32, bfloat16, float16 or float64 (slow, for checks), or q is float32 and
    k and v are 16 bit. Autograd sees nothing of the call: qkv.attention_backward gives its gradients.

    q             (B, Hq, Tq, D); packed: (total_q, Hq, D)
    k, v          (B, Hkv, Tk, D) and (B, Hkv, Tk, Dv), Hq a multiple of Hkv; packed: (total_k, Hkv, D or Dv)
    causal        'none', 'top_left' or 'bottom_right': query i, at position p = i + offset, sees keys j <= p;
                  True where each sequence has as many keys as queries; False is 'none'
    window        (left, right): keys p - left ... p + right are visible; None is an open side
    scale         of q.k; 1 / sqrt(D) unless given
    softcap       s = cap * tanh(s / cap), before bias and masks
    mask          bool, True = may attend; broadcasts to (B, Hq, Tq, Tk)
    bias          float32 or q's type, added to the scores; broadcasts the same
    alibi_slopes  float32 (Hq) or (B, Hq), as from qkv.alibi_slopes(Hq): adds -slope * |p - j|
    sink          float32 (Hq): a logit that joins the softmax's denominator only
    q_lengths, kv_lengths  of each sequence: rows and keys past them do not exist; out is 0 there
    cu_q, cu_kv   where each sequence of a packed batch starts, and the end of the last: B + 1 each
    offset        position of the first query, one or one per sequence; unless given, Tk - Tq of the sequence,
                  or 0 for 'top_left'
    dropout_p     share of the weights to drop, for training; needs a seed
    seed          the same seed drops the same weights
    return_lse    True: also the log-sum-exp of each row's scores, float32 (B, Hq, Tq); packed: (Hq, total_q)
    capture       a qkv.Capture: what to keep of the weights
    out           an array to write to, (B, Hq, Tq, Dv), packed (total_q, Hq, Dv), of q's type, apart from the inputs

    Returns out, or AttentionResult(out, lse, capture) where return_lse or capture is given.
    Raises ValueError, TypeError or MemoryError that names the argument, before anything is written.
    """
    packed = cu_q is not None or cu_kv is not None
    arrays, sizes = inputs(q, k, v, packed)
    q_shape, v_shape = tuple(arrays[0][2]), tuple(arrays[2][2])
    given = options(causal=causal, window=window, scale=scale, softcap=softcap, mask=mask, bias=bias,
                    alibi_slopes=alibi_slopes, sink=sink, q_lengths=q_lengths, kv_lengths=kv_lengths, cu_q=cu_q,
                    cu_kv=cu_kv, offset=offset, dropout_p=dropout_p, seed=seed, sizes=sizes)
    if capture is not None and not isinstance(capture, Capture):
        raise wrong_type("capture", "a qkv.Capture", capture)
    lse = None
    if flag("return_lse", return_lse):
        lse = like(q, (q_shape[1], q_shape[0]) if packed else q_shape[:3], "float32")
    if out is None:
        out = like(q, (*q_shape[:-1], v_shape[-1]))
    targets = describe("out", out, writable=True), None if lse is None else describe("lse", lse)
    if capture is None:
        _core.attention(*arrays, given, *targets)
        return AttentionResult(out, lse) if return_lse else out
    kept = _core.attention_with_capture(*arrays, given, integer("capture.top_k", capture.top_k),
                                        integers("capture.rows", capture.rows), bool(capture.entropy),
                                        bool(capture.received), capture.scores, *targets)
    return AttentionResult(out, lse, Captured(**kept))


def alibi_slopes(n: int) -> np.ndarray[Any, Any]:
    """ALiBi's slopes for n heads, any n (Press et al. 2022): float32 (n)."""
    return np.asarray(_core.alibi_slopes(integer("n", n)), dtype=np.float32)
