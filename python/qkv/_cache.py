"""Keys and values kept from call to call."""

from __future__ import annotations

from typing import Any, Sequence

from . import _core
from ._arrays import describe, dtype_name, integers, like
from ._attention import AttentionResult, options


class KVCache:
    """Keys and values of `batch` sequences, up to `capacity` tokens each, appended to and attended to.

    dtype: 'float32', 'bfloat16', 'float16', or 'int8' (one scale per token and head; attending equals float32
    attention over the dequantised cache). page: tokens of a page; None: one page a sequence. window: a sliding
    window of that many tokens; the oldest are dropped past the capacity. Attending gives the bits of one attention
    call over the same keys, however they were appended. Not for two threads at once.
    """

    def __init__(self, batch: int, kv_heads: int, d: int, dv: int, dtype: Any, capacity: int,
                 page: int | None = None, window: int | None = None) -> None:
        self._cache = _core.KVCache(batch, kv_heads, d, dv, dtype_name(dtype), capacity, page, window)
        self._dv = dv

    @property
    def lengths(self) -> list[int]:
        """Tokens appended to each sequence, dropped ones included."""
        return self._cache.lengths

    @property
    def nbytes(self) -> int:
        """Bytes of the pages."""
        return self._cache.nbytes

    def append(self, k: Any, v: Any, counts: Sequence[int] | None = None) -> None:
        """k (B, Hkv, T, D), v (B, Hkv, T, Dv). counts: how many of the T tokens each sequence takes."""
        self._cache.append(describe("k", k), describe("v", v), integers("counts", counts))

    def attend(self, q: Any, *, causal: str | bool = "none", window: tuple[int | None, int | None] | None = None,
               scale: float | None = None, softcap: float | None = None, mask: Any = None, bias: Any = None,
               alibi_slopes: Any = None, sink: Any = None, q_lengths: Sequence[int] | None = None,
               offset: int | Sequence[int] | None = None, dropout_p: float = 0.0, seed: int | None = None,
               return_lse: bool = False, out: Any = None) -> Any:
        """Attention of q (B, Hq, Tq, D) over the cache, options as qkv.attention's: (B, Hq, Tq, Dv)."""
        description = describe("q", q)
        shape = tuple(description[2])
        if len(shape) != 4:
            raise ValueError(f"q: wrong rank, expected (B, Hq, Tq, D), got {shape}")
        given = options(causal=causal, window=window, scale=scale, softcap=softcap, mask=mask, bias=bias,
                        alibi_slopes=alibi_slopes, sink=sink, q_lengths=q_lengths, kv_lengths=None, cu_q=None,
                        cu_kv=None, offset=offset, dropout_p=dropout_p, seed=seed,
                        sizes=(shape[0], shape[2], self.lengths))
        if out is None:
            out = like(q, (*shape[:3], self._dv))
        lse = like(q, shape[:3], "float32") if return_lse else None
        self._cache.attend(description, given, describe("out", out, writable=True),
                           None if lse is None else describe("lse", lse, writable=True))
        return AttentionResult(out, lse) if return_lse else out

    def fork(self, source: int, target: int) -> None:
        """Makes sequence `target` a copy of `source`; pages are shared until one of the two appends."""
        self._cache.fork(source, target)

    def trim(self, sequence: int, length: int) -> None:
        """Forgets a sequence's tokens from `length` on."""
        self._cache.trim(sequence, length)
