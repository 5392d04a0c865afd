"""Keys and values kept from call to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from . import _core
from ._arrays import dtype_name, like
from ._attention import AttentionResult
from ._checks import flag, integer, integers, optional_integer
from ._core import describe
from ._options import CacheOptions, checked, settle_causal, takes

if TYPE_CHECKING:
    from typing_extensions import Unpack


class KVCache:
    """Keys and values of `batch` sequences, up to `capacity` tokens each, appended to and attended to.

    kv_heads, d, dv  heads of keys and values, and their sizes
    dtype     'float32', 'bfloat16', 'float16' (or numpy's or PyTorch's name for it), or 'int8': one scale per token
              and head, and attending equals float32 attention over the dequantised cache
    page      tokens of a page; None: one page a sequence
    window    a sliding window of that many tokens, the query's own among them; the oldest tokens are dropped past the
              capacity, and it takes a capacity of window + chunk - 1 to append and attend in chunks

    Attending gives the bits of one attention call over the same keys, however they were appended. One thread at a
    time: a call during another one is refused with RuntimeError.
    """

    def __init__(self, batch: int, kv_heads: int, d: int, dv: int, dtype: Any, capacity: int,
                 page: int | None = None, window: int | None = None) -> None:
        self._batch, self._dv = integer("batch", batch), integer("dv", dv)
        self._cache = _core.KVCache(self._batch, integer("kv_heads", kv_heads), integer("d", d), self._dv,
                                    dtype_name("dtype", dtype), integer("capacity", capacity),
                                    optional_integer("page", page), optional_integer("window", window))
        self._busy = Lock()

    @property
    def lengths(self) -> list[int]:
        """Tokens appended to each sequence, dropped ones included."""
        return self._cache.lengths

    @property
    def nbytes(self) -> int:
        """Bytes of the pages."""
        return self._cache.nbytes

    def append(self, k: Any, v: Any, counts: Sequence[int] | None = None) -> None:
        """k (B, Hkv, T, D), v (B, Hkv, T, Dv): float32, or the cache's type. counts: how many of the T tokens each
        sequence takes, from the first; all unless given."""
        self._alone(self._cache.append, describe("k", k), describe("v", v), integers("counts", counts))

    @takes(CacheOptions)
    def attend(self, q: Any, *, return_lse: bool = False, out: Any = None, **options: Unpack[CacheOptions]) -> Any:
        """Attention of q (B, Hq, Tq, D), float32 or the cache's type, over the cache: (B, Hq, Tq, Dv).

        Options are those of qkv.attention; positions, mask and bias count every token ever appended. Unless `offset`
        says otherwise, the last query stands at the last token.
        """
        given = checked("attend", CacheOptions, options)
        description = describe("q", q)
        if q.ndim != 4:
            raise ValueError(f"q: wrong rank, expected (B, Hq, Tq, D), got shape {tuple(q.shape)}")
        shape = q.shape
        if "causal" in given:
            settle_causal(given, [shape[2]] * shape[0], self.lengths)
        lse = like(q, shape[:3], "float32") if flag("return_lse", return_lse) else None
        if out is None:
            out = like(q, (*shape[:3], self._dv))
        self._alone(self._cache.attend, description, given, describe("out", out, True),
                    None if lse is None else describe("lse", lse))
        return AttentionResult(out, lse) if return_lse else out

    def fork(self, source: int, target: int) -> None:
        """Makes sequence `target` a copy of `source`; pages are shared until one of the two appends."""
        self._alone(self._cache.fork, self._sequence("source", source), self._sequence("target", target))

    def trim(self, sequence: int, length: int) -> None:
        """Forgets a sequence's tokens from `length` on."""
        self._alone(self._cache.trim, self._sequence("sequence", sequence), integer("length", length))

    def _sequence(self, name: str, value: Any) -> int:
        return integer(name, value, 0, self._batch - 1)

    def _alone(self, call: Callable[..., None], *arguments: Any) -> None:
        # Refused rather than made to wait: a signal handler that came here would wait for itself.
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("KVCache: in use, expected one call at a time")
        try:
            call(*arguments)
        finally:
            self._busy.release()
