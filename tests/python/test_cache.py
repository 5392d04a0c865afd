"""The cache: however keys came in, attending gives the bits of one call."""

import threading

import numpy as np
import pytest

import qkv
import reference
from reference import assert_close, dtype_of, qkv_of, random

TOKENS = 40


def kv(seed=1, batch=2, tokens=TOKENS, dtype="float32"):
    return random(seed, (batch, 2, tokens, 8), dtype), random(seed + 1, (batch, 2, tokens, 6), dtype)


def filled(k, v, dtype="float32", chunks=(17, 1, 22), **given):
    cache = qkv.KVCache(len(k), 2, 8, 6, dtype, given.pop("capacity", 64), **given)
    start = 0
    for chunk in chunks:
        cache.append(k[:, :, start:start + chunk], v[:, :, start:start + chunk])
        start += chunk
    return cache


@pytest.mark.parametrize("page", [None, 1, 7, 16, 64])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("queries", [1, 3])
def test_equals_one_call(page, dtype, queries):
    k, v = kv(dtype=dtype)
    q = random(3, (2, 4, queries, 8), dtype)
    cache = filled(k, v, dtype, page=page)
    assert cache.lengths == [TOKENS, TOKENS]
    for given in ({}, {"causal": "bottom_right"}, {"window": (5, 0)}, {"sink": random(4, (4,)), "softcap": 2.0},
                  {"alibi_slopes": qkv.alibi_slopes(4)}, {"mask": np.arange(TOKENS) % 3 > 0}, {"q_lengths": [1, 0]},
                  {"offset": [3, 9], "causal": "top_left"}, {"dropout_p": 0.5, "seed": 3}):
        result = cache.attend(q, return_lse=True, **given)
        expected = qkv.attention(q, k, v, return_lse=True, **given)
        np.testing.assert_array_equal(result.out, expected.out)
        np.testing.assert_array_equal(result.lse, expected.lse)
        assert result.out.dtype == q.dtype


def test_decoding_gives_the_rows_of_one_call():
    k, v = kv()
    q = random(3, (2, 4, TOKENS, 8))
    whole = qkv.attention(q, k, v, causal="bottom_right")
    cache = qkv.KVCache(2, 2, 8, 6, np.float32, TOKENS, page=4)
    for t in range(TOKENS):
        cache.append(k[:, :, t:t + 1], v[:, :, t:t + 1])
        out = cache.attend(q[:, :, t:t + 1], causal="bottom_right")
        np.testing.assert_array_equal(out, whole[:, :, t:t + 1])


@pytest.mark.parametrize("cache_dtype", ["bfloat16", "float16"])
def test_16_bit_caches_round_float32(cache_dtype):
    k, v = kv()
    q = random(3, (2, 4, 1, 8))
    rounded = [x.astype(dtype_of(cache_dtype)) for x in (k, v)]
    np.testing.assert_array_equal(filled(k, v, cache_dtype).attend(q), qkv.attention(q, *rounded))


def test_int8_equals_attention_over_the_dequantised():
    k, v = kv()
    q = random(3, (2, 4, 5, 8))
    scale_k, scale_v = (np.abs(x).max(-1, keepdims=True) / np.float32(127) for x in (k, v))
    near_k, near_v = (np.rint(x / scale) * scale for x, scale in ((k, scale_k), (v, scale_v)))
    cache = filled(k, v, "int8", page=8)
    out = cache.attend(q, causal="bottom_right")
    expected = reference.attention(q, near_k, near_v, causal="bottom_right").out
    # A quotient that lies by half a step may round either way: one step of one value, spread over the row.
    assert np.abs(out - expected).max() < 2e-3
    assert_close(out, qkv.attention(q, near_k.astype(np.float32), near_v.astype(np.float32), causal="bottom_right"), v)
    assert cache.nbytes < filled(k, v, "float32", page=8).nbytes / 2


def test_lengths_of_their_own():
    k, v = kv()
    q = random(3, (2, 4, 1, 8))
    cache = qkv.KVCache(2, 2, 8, 6, "float32", 64)
    cache.append(k[:, :, :10], v[:, :, :10], counts=[10, 4])
    cache.append(k[:, :, 10:15], v[:, :, 10:15], counts=np.array([0, 5]))
    assert cache.lengths == [10, 9]
    second = [np.concatenate([x[1:, :, :4], x[1:, :, 10:15]], axis=2) for x in (k, v)]
    out = cache.attend(q, causal="bottom_right")
    np.testing.assert_array_equal(out[:1], qkv.attention(q[:1], k[:1, :, :10], v[:1, :, :10]))
    np.testing.assert_array_equal(out[1:], qkv.attention(q[1:], *second))


@pytest.mark.parametrize("page", [None, 4])
def test_window(page):
    k, v = kv()
    q = random(3, (2, 4, TOKENS, 8))
    whole = qkv.attention(q, k, v, causal="bottom_right", window=(6, None))
    cache = qkv.KVCache(2, 2, 8, 6, "float32", 9, page=page, window=7)
    size = cache.nbytes
    for t in range(0, TOKENS, 2):
        cache.append(k[:, :, t:t + 2], v[:, :, t:t + 2])
        out = cache.attend(q[:, :, t:t + 2], causal="bottom_right")
        np.testing.assert_array_equal(out, whole[:, :, t:t + 2])
    assert cache.lengths == [TOKENS, TOKENS] and cache.nbytes <= max(size, 4 * 9 * 2 * 14 * 4)


def test_fork_and_trim():
    k, v = kv()
    q = random(3, (2, 4, 1, 8))
    cache = qkv.KVCache(2, 2, 8, 6, "float32", 64, page=8)
    cache.append(k, v, counts=[20, 0])
    before = cache.nbytes
    cache.fork(0, np.int64(1))
    assert cache.lengths == [20, 20] and cache.nbytes == before
    same = np.concatenate([q[:1], q[:1]])
    out = cache.attend(same)
    np.testing.assert_array_equal(out[0], out[1])
    cache.append(k[:, :, 20:23], v[:, :, 20:23], counts=[0, 3])
    cache.trim(1, 22)
    assert cache.lengths == [20, 22]
    other = [np.concatenate([x[:1, :, :20], x[1:, :, 20:22]], axis=2) for x in (k, v)]
    out = cache.attend(q)
    np.testing.assert_array_equal(out[:1], qkv.attention(q[:1], k[:1, :, :20], v[:1, :, :20]))
    np.testing.assert_array_equal(out[1:], qkv.attention(q[1:], *other))
    cache.trim(sequence=0, length=0)
    assert cache.lengths == [0, 22] and (cache.attend(q)[0] == 0).all()


def test_nothing_appended_yet():
    cache = qkv.KVCache(2, 2, 8, 6, "float32", 64)
    result = cache.attend(random(3, (2, 4, 3, 8)), return_lse=True)
    assert (result.out == 0).all() and np.isneginf(result.lse).all()


def test_out_and_strides():
    k, v = kv()
    q = random(3, (2, 4, 3, 8))
    expected = filled(k, v).attend(q)
    out = np.zeros((2, 3, 4, 6), np.float32).swapaxes(1, 2)
    cache = filled(np.asfortranarray(k), v[:, ::-1, ::-1].copy()[:, ::-1, ::-1])
    assert cache.attend(np.asfortranarray(q), out=out) is out
    np.testing.assert_array_equal(out, expected)


def test_keyword_arguments_and_types_of_numpy():
    for dtype in ("float16", np.float16, np.dtype("float16")):
        cache = qkv.KVCache(batch=1, kv_heads=2, d=8, dv=6, dtype=dtype, capacity=np.int64(9), page=np.int32(3))
        cache.append(*(x[:1, :, :9] for x in kv(dtype="float16")))
        assert cache.lengths == [9]


def test_true_is_causal_where_lengths_agree():
    k, v = kv()
    q = random(3, (2, 4, TOKENS, 8))
    np.testing.assert_array_equal(filled(k, v).attend(q, causal=True), qkv.attention(q, k, v, causal=True))
    with pytest.raises(ValueError, match=r"^causal: .* got 1 queries and 40 keys in sequence 0"):
        filled(k, v).attend(q[:, :, :1], causal=True)


def test_a_failed_append_changes_nothing():
    k, v = kv()
    cache = filled(k, v, capacity=45)
    q = random(3, (2, 4, 1, 8))
    before = cache.attend(q)
    with pytest.raises(ValueError, match=r"^k: the cache is full, expected at most 5 more"):
        cache.append(k[:, :, :6], v[:, :, :6])
    with pytest.raises(ValueError, match=r"^v: "):
        cache.append(k[:, :, :2], v[:, :, :3])
    assert cache.lengths == [TOKENS, TOKENS]
    np.testing.assert_array_equal(cache.attend(q), before)


def test_two_threads_on_one_cache_are_refused_or_take_turns():
    k, v = (x.repeat(64, axis=2) for x in kv())
    q = random(3, (2, 4, 512, 8))
    cache = qkv.KVCache(2, 2, 8, 6, "float32", 1 << 14)
    cache.append(k, v)
    expected, results = cache.attend(q), []

    def attend():
        for _ in range(10):
            try:
                results.append(cache.attend(q))
            except RuntimeError as error:
                results.append(str(error))

    threads = [threading.Thread(target=attend) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 30
    for result in results:
        if isinstance(result, str):
            assert result == "KVCache: in use, expected one call at a time"
        else:
            np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(cache.attend(q), expected)
