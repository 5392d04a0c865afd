"""Attention in plain numpy and float64: docs/semantics.md written down once more, for the tests to compare with."""

from typing import NamedTuple

import ml_dtypes
import numpy as np

EPS = {"float64": 2.0**-24, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}  # scale is float32


class Expected(NamedTuple):
    out: np.ndarray
    lse: np.ndarray
    weights: np.ndarray
    scores: np.ndarray  # after bias and masks, blocked keys -inf
    sink_weight: np.ndarray


def random(seed, shape, dtype="float32"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype_of(dtype))


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name)) if name == "bfloat16" else np.dtype(name)


def qkv_of(seed=0, batch=2, heads=(4, 2), queries=5, keys=7, d=8, dv=6, dtype="float32", kv_dtype=None):
    kv_dtype = kv_dtype or dtype
    return (random(seed, (batch, heads[0], queries, d), dtype), random(seed + 1, (batch, heads[1], keys, d), kv_dtype),
            random(seed + 2, (batch, heads[1], keys, dv), kv_dtype))


def visible_keys(shape, q_lengths, kv_lengths, causal, window, offset, mask):
    batch, _, queries, keys = shape
    visible = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape).copy()
    positions = np.zeros((batch, queries), int)
    j = np.arange(keys)
    for b in range(batch):
        start = 0 if causal == "top_left" else kv_lengths[b] - q_lengths[b]
        if offset is not None:
            start = np.broadcast_to(offset, batch)[b]
        p = positions[b] = np.arange(queries) + start
        seen = np.broadcast_to(j < kv_lengths[b], (queries, keys)).copy()
        if causal != "none":
            seen &= j <= p[:, None]
        if window is not None and window[0] is not None:
            seen &= j >= p[:, None] - window[0]
        if window is not None and window[1] is not None:
            seen &= j <= p[:, None] + window[1]
        seen[q_lengths[b]:] = False
        visible[b] &= seen
    return visible, positions


def attention(q, k, v, *, causal="none", window=None, scale=None, softcap=None, mask=None, bias=None,
              alibi_slopes=None, sink=None, q_lengths=None, kv_lengths=None, offset=None):
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    batch, heads, queries, d = q.shape
    keys = k.shape[2]
    k, v = (np.repeat(x, heads // x.shape[1], axis=1) for x in (k, v))
    q_lengths = [queries] * batch if q_lengths is None else list(q_lengths)
    kv_lengths = [keys] * batch if kv_lengths is None else list(kv_lengths)
    scores = q @ k.swapaxes(-1, -2) * (1 / np.sqrt(d) if scale is None else np.float64(np.float32(scale)))
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    visible, positions = visible_keys(scores.shape, q_lengths, kv_lengths, causal, window, offset, mask)
    if bias is not None:
        scores = scores + np.asarray(bias, dtype=np.float64)
    if alibi_slopes is not None:
        slopes = np.broadcast_to(np.asarray(alibi_slopes, dtype=np.float64), (batch, heads))
        scores = scores - slopes[..., None, None] * np.abs(positions[:, None, :, None] - np.arange(keys))
    scores = np.where(visible, scores, -np.inf)
    lived = (np.arange(queries) < np.array(q_lengths)[:, None])[:, None, :, None]
    sinks = np.full((1, heads, 1, 1), -np.inf) if sink is None else np.float64(sink)[None, :, None, None]
    sinks = np.where(lived, sinks, -np.inf)
    joined = np.concatenate([scores, np.broadcast_to(sinks, (*scores.shape[:3], 1))], axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        top = joined.max(-1, keepdims=True)
        powers = np.where(np.isneginf(joined), 0, np.exp(joined - top))
        total = powers.sum(-1, keepdims=True)
        lse = np.where(np.isneginf(top), -np.inf, top + np.log(total))
        weights = powers / np.where(total == 0, 1, total)
    return Expected(weights[..., :-1] @ v, lse[..., 0], weights[..., :-1], scores, weights[..., -1])


def assert_close(got, expected, values, dtype="float32"):
    """Within 16 roundings of the type at the size of the largest value: sums of a few products."""
    bound = 16 * EPS[dtype] * max(1.0, float(np.abs(np.asarray(values, dtype=np.float64)).max(initial=0)))
    np.testing.assert_allclose(np.asarray(got, dtype=np.float64), expected, rtol=0, atol=bound)
