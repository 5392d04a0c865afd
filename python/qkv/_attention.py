"""The operator on numpy arrays and PyTorch tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Sequence

import numpy as np

from . import _core
from ._arrays import describe, integers, like

_CAUSAL = ("none", "top_left", "bottom_right")


@dataclass(frozen=True)
class Capture:
    """What to keep of the attention weights while attention runs; memory is O(T * top_k), never O(T**2).

    top_k: keys of largest weight of each row. rows: query indices whose full rows to keep. entropy: of each row, in
    nats. received: the weight that each key received, summed over queries. scores: what `rows` holds: None for
    weights, or the scores 'raw' (scale * q.k), 'softcapped' or 'biased' (after masks: -inf is blocked).
    """

    top_k: int = 0
    rows: Sequence[int] | None = None
    entropy: bool = False
    received: bool = False
    scores: str | None = None


@dataclass(frozen=True)
class Captured:
    """What was kept, as numpy arrays; None for what was not asked for."""

    top_keys: np.ndarray | None = None  #: int32 (B, Hq, Tq, top_k), weight descending, padded with -1
    top_weights: np.ndarray | None = None  #: float32 (B, Hq, Tq, top_k), padded with 0
    entropy: np.ndarray | None = None  #: float32 (B, Hq, Tq)
    sink_weight: np.ndarray | None = None  #: float32 (B, Hq, Tq): the sink's share, with `entropy` and a sink
    received: np.ndarray | None = None  #: float32 (B, Hq, Tk)
    rows: np.ndarray | None = None  #: float32 (B, Hq, len(rows), Tk)


class AttentionResult(NamedTuple):
    """What attention returns where more than `out` was asked for."""

    out: Any
    lse: Any = None
    capture: Captured | None = None


def _causal(causal: str | bool, q_lengths: list[int], kv_lengths: list[int]) -> str:
    if causal is False:
        return "none"
    if causal is True:
        if q_lengths != kv_lengths:
            raise ValueError(
                "causal: True is ambiguous where queries and keys differ in number, expected 'top_left' or "
                f"'bottom_right', got q lengths {q_lengths} and kv lengths {kv_lengths}"
            )
        return "bottom_right"
    if causal not in _CAUSAL:
        raise ValueError(f"causal: unknown name, expected one of {_CAUSAL}, True or False, got {causal!r}")
    return causal


def _window(window: Any) -> tuple[int | None, int | None]:
    if window is None:
        return None, None
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise ValueError(f"window: expected (left, right), either of them None where open, got {window!r}")
    for side in window:
        if side is not None and (not isinstance(side, (int, np.integer)) or isinstance(side, bool)):
            raise TypeError(f"window: expected integers or None, got {window!r}")
    return tuple(None if side is None else int(side) for side in window)


def _differences(offsets: list[int]) -> list[int]:
    return [b - a for a, b in zip(offsets, offsets[1:])]


def options(*, causal, window, scale, softcap, mask, bias, alibi_slopes, sink, q_lengths, kv_lengths, cu_q, cu_kv,
            offset, dropout_p, seed, sizes) -> dict[str, Any]:
    """Options as the extension takes them. sizes: (batch, Tq, kv lengths) where nothing is packed."""
    lengths = {
        "q_lengths": integers("q_lengths", q_lengths),
        "kv_lengths": integers("kv_lengths", kv_lengths),
        "cu_q": integers("cu_q", cu_q),
        "cu_kv": integers("cu_kv", cu_kv),
        "offset": integers("offset", offset),
    }
    batch, queries, keys = sizes
    if lengths["cu_q"] is not None and lengths["cu_kv"] is not None:
        q_seen, kv_seen = _differences(lengths["cu_q"]), _differences(lengths["cu_kv"])
    else:
        q_seen, kv_seen = [queries] * batch, keys
    left, right = _window(window)
    if seed is not None and not 0 <= int(seed) < 2**64:
        raise ValueError(f"seed: out of range, expected 0 to 2**64 - 1, got {seed}")
    tensors = {"mask": mask, "bias": bias, "alibi_slopes": alibi_slopes, "sink": sink}
    return {
        "causal": _causal(causal, lengths["q_lengths"] or q_seen, lengths["kv_lengths"] or kv_seen),
        "window_left": left,
        "window_right": right,
        "scale": None if scale is None else float(scale),
        "softcap": None if softcap is None else float(softcap),
        "dropout_p": float(dropout_p),
        "seed": None if seed is None else int(seed),
        **lengths,
        **{name: None if array is None else describe(name, array) for name, array in tensors.items()},
    }


def _shape(name: str, array: Any, ranks: tuple[int, ...]) -> tuple[int, ...]:
    shape = tuple(describe(name, array)[2])
    if len(shape) not in ranks:
        raise ValueError(f"{name}: wrong rank, expected {' or '.join(map(str, ranks))} axes, got {shape}")
    return shape


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
    """softmax(scale * q k^T + bias, masked) v, exact, in O(T) memory (docs/semantics.md has every rule).

    q (B, Hq, Tq, D), k (B, Hkv, Tk, D), v (B, Hkv, Tk, Dv); or packed, with cu_q and cu_kv: q (total_q, Hq, D),
    k (total_k, Hkv, D), v (total_k, Hkv, Dv). numpy arrays (bfloat16 through ml_dtypes) or PyTorch tensors on the
    CPU, any strides, no copies; float32, bfloat16, float16, float64, or float32 q with 16-bit k and v.

    causal: 'none', 'top_left', 'bottom_right'; True only where each sequence has as many queries as keys.
    window: (left, right) keys besides the query's own position; None is open. mask: bool, True = may attend, and
    bias: added to scores; both broadcast to (B, Hq, Tq, Tk). alibi_slopes: float32 (Hq) or (B, Hq). sink: float32
    (Hq). Dropout needs a seed.

    Returns out, or AttentionResult(out, lse, capture) where return_lse or capture is given. lse is float32
    (B, Hq, Tq), or (Hq, total_q) when packed. Errors: ValueError, TypeError or MemoryError naming the argument.
    """
    packed = cu_q is not None or cu_kv is not None
    rank = 3 if packed else 4
    q_shape, k_shape, v_shape = (_shape(name, array, (rank,)) for name, array in (("q", q), ("k", k), ("v", v)))
    sizes = (0, 0, []) if packed else (q_shape[0], q_shape[2], [k_shape[2]] * q_shape[0])
    given = options(causal=causal, window=window, scale=scale, softcap=softcap, mask=mask, bias=bias,
                    alibi_slopes=alibi_slopes, sink=sink, q_lengths=q_lengths, kv_lengths=kv_lengths, cu_q=cu_q,
                    cu_kv=cu_kv, offset=offset, dropout_p=dropout_p, seed=seed, sizes=sizes)
    if out is None:
        out = like(q, (*q_shape[:-1], v_shape[-1]))
    lse = None
    if return_lse:
        lse = like(q, (q_shape[1], q_shape[0]) if packed else q_shape[:3], "float32")
    arrays = describe("q", q), describe("k", k), describe("v", v)
    targets = describe("out", out, writable=True), None if lse is None else describe("lse", lse, writable=True)
    if capture is None:
        _core.attention(*arrays, given, *targets)
        return AttentionResult(out, lse) if return_lse else out
    kept = _core.attention_with_capture(*arrays, given, int(capture.top_k), integers("capture.rows", capture.rows),
                                        bool(capture.entropy), bool(capture.received), capture.scores, *targets)
    return AttentionResult(out, lse, Captured(**kept))


def alibi_slopes(n: int) -> np.ndarray:
    """ALiBi's slopes for n heads, any n (Press et al. 2022): float32 (n)."""
    return np.asarray(_core.alibi_slopes(n), dtype=np.float32)
