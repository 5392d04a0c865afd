"""The operator on numpy arrays and PyTorch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _core
from ._arrays import like
from ._checks import flag, integer, integers, wrong_type
from ._core import describe
from ._options import Options, checked, settle_causal, takes

if TYPE_CHECKING:
    from typing_extensions import Unpack

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


def is_packed(given: dict[str, Any]) -> bool:
    return "cu_q" in given or "cu_kv" in given


def inputs(q: Any, k: Any, v: Any, given: dict[str, Any]) -> tuple[_core.Array, _core.Array, _core.Array]:
    """q, k and v as the extension takes them, once their ranks fit and `causal` is settled."""
    arrays = describe("q", q), describe("k", k), describe("v", v)
    packed = is_packed(given)
    rank = 3 if packed else 4
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array.ndim != rank:
            expected = "(total, heads, D), as cu_q and cu_kv are given" if packed else "(B, H, T, D)"
            raise ValueError(f"{name}: wrong rank, expected {expected}, got shape {tuple(array.shape)}")
    if "causal" in given:
        sizes = ([], []) if packed else ([q.shape[2]] * q.shape[0], [k.shape[2]] * q.shape[0])
        settle_causal(given, *sizes)
    return arrays


@takes(Options)
def attention(q: Any, k: Any, v: Any, *, return_lse: bool = False, capture: Capture | None = None, out: Any = None,
              **options: Unpack[Options]) -> Any:
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
    chunked       True: the rows are some of a longer call's, or a cache's, and get the bits that one call would give
    return_lse    True: also the log-sum-exp of each row's scores, float32 (B, Hq, Tq); packed: (Hq, total_q)
    capture       a qkv.Capture: what to keep of the weights
    out           an array to write to, (B, Hq, Tq, Dv), packed (total_q, Hq, Dv), of q's type, apart from the inputs

    Returns out, or AttentionResult(out, lse, capture) where return_lse or capture is given.
    Raises ValueError, TypeError or MemoryError that names the argument, before anything is written.
    """
    given = checked("attention", Options, options)
    arrays = inputs(q, k, v, given)
    if capture is not None and not isinstance(capture, Capture):
        raise wrong_type("capture", "a qkv.Capture", capture)
    lse = None
    if flag("return_lse", return_lse):
        lse = like(q, (q.shape[1], q.shape[0]) if is_packed(given) else q.shape[:3], "float32")
    if out is None:
        out = like(q, (*q.shape[:-1], v.shape[-1]))
    targets = describe("out", out, True), None if lse is None else describe("lse", lse)
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
