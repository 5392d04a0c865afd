"""Wrong calls: the type of the error, and the argument that its message names first."""

import fractions
import re

import ml_dtypes
import numpy as np
import pytest

import qkv
from reference import qkv_of, random

Q, K, V = qkv_of()
F32, F64 = np.float32, np.float64


def misaligned(x):
    raw = np.zeros(x.nbytes + 1, np.uint8)[1:]
    view = raw.view(x.dtype).reshape(x.shape)
    return view


def of_fields(x):
    """The float32 field of packed records of 6 bytes: strides that are no whole elements."""
    records = np.zeros(x.shape, np.dtype([("x", np.float32), ("y", np.int16)]))
    return records["x"]


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


OUT = np.zeros((2, 4, 5, 6), F32)
SHARED = np.zeros((2, 4, 5, 8), F32)
PACKED = {"q": random(0, (8, 4, 8)), "k": random(1, (8, 2, 8)), "v": random(2, (8, 2, 8)),
          "cu_q": [0, 3, 8], "cu_kv": [0, 4, 8]}

# Error, the name that the message starts with, and what differs from a right call.
WRONG = [
    # arrays
    (TypeError, "q", {"q": Q.tolist()}),
    (TypeError, "k", {"k": None}),
    (TypeError, "v", {"v": 1.0}),
    (TypeError, "q", {"q": "array"}),
    (TypeError, "q", {"q": memoryview(Q)}),
    (TypeError, "k", {"k": np.ma.masked_array(K, K > 0)}),
    (TypeError, "q", {"q": Q.astype(np.complex64)}),
    (TypeError, "q", {"q": Q.astype(np.longdouble)}),
    (TypeError, "q", {"q": Q.astype(np.int32)}),
    (TypeError, "q", {"q": Q > 0}),
    (TypeError, "q", {"q": Q.astype(object)}),
    (TypeError, "q", {"q": Q.astype("U8")}),
    (TypeError, "q", {"q": Q.astype("S8")}),
    (TypeError, "q", {"q": np.zeros(Q.shape, "datetime64[s]")}),
    (TypeError, "q", {"q": np.zeros(Q.shape, [("x", F32)])}),
    (TypeError, "q", {"q": np.zeros(Q.shape, np.dtype([]))}),
    (TypeError, "k", {"k": K.astype(ml_dtypes.float8_e4m3fn), "v": V.astype(ml_dtypes.float8_e4m3fn)}),
    (TypeError, "q", {"q": Q.astype(Q.dtype.newbyteorder())}),
    (TypeError, "v", {"v": V.astype(V.dtype.newbyteorder())}),
    (TypeError, "k", {"k": K.astype(F64)}),
    (TypeError, "v", {"v": V.astype(np.float16)}),
    (TypeError, "k", {"q": Q.astype(np.float16)}),
    (ValueError, "q", {"q": misaligned(Q)}),
    (ValueError, "k", {"k": of_fields(K)}),
    (ValueError, "q", {"q": Q[0]}),
    (ValueError, "q", {"q": Q[None]}),
    (ValueError, "q", {"q": np.array(1.0, F32)}),
    (ValueError, "v", {"v": V.reshape(2, 2, -1)}),
    (ValueError, "k", {"k": K[:1]}),
    (ValueError, "k", {"k": K[..., :7]}),
    (ValueError, "v", {"v": V[:, :, :6]}),
    (ValueError, "v", {"v": V[:, :1]}),
    (ValueError, "v", {"v": V[..., :0]}),
    (ValueError, "q", {"q": Q[..., :0], "k": K[..., :0]}),
    (ValueError, "q", {"q": Q[:, :3]}),
    # out
    (TypeError, "out", {"out": OUT.tolist()}),
    (TypeError, "out", {"out": OUT.astype(F64)}),
    (TypeError, "out", {"out": OUT.astype(OUT.dtype.newbyteorder())}),
    (ValueError, "out", {"out": read_only(OUT)}),
    (ValueError, "out", {"out": OUT[..., :5]}),
    (ValueError, "out", {"out": OUT[0]}),
    (ValueError, "out", {"out": OUT[None]}),
    (ValueError, "out", {"out": misaligned(OUT)}),
    (ValueError, "out", {"out": np.lib.stride_tricks.as_strided(OUT, OUT.shape, (0, 0, 24, 4))}),
    (ValueError, "out", {"q": SHARED, "out": SHARED[..., :6]}),
    (ValueError, "out", {"v": SHARED[:, :2, :5, :6], "k": K[:, :, :5], "out": SHARED[..., 2:]}),
    # names
    (TypeError, "causal", {"causal": None}),
    (TypeError, "causal", {"causal": 1}),
    (TypeError, "causal", {"causal": np.ones((5, 7), bool)}),
    (ValueError, "causal", {"causal": "yes"}),
    (ValueError, "causal", {"causal": "Bottom_Right"}),
    (ValueError, "causal", {"causal": True}),
    # window
    (TypeError, "window", {"window": 3}),
    (TypeError, "window", {"window": "ab"}),
    (TypeError, "window", {"window": np.array([1, 2])}),
    (ValueError, "window", {"window": ()}),
    (ValueError, "window", {"window": (1, 2, 3)}),
    (TypeError, "window.left", {"window": (1.0, 0)}),
    (TypeError, "window.right", {"window": (1, True)}),
    (ValueError, "window.left", {"window": (-1, 0)}),
    (ValueError, "window.right", {"window": (0, 2**63)}),
    # numbers
    (TypeError, "scale", {"scale": "0.5"}),
    (TypeError, "scale", {"scale": True}),
    (TypeError, "scale", {"scale": np.True_}),
    (TypeError, "scale", {"scale": 1j}),
    (TypeError, "scale", {"scale": np.complex64(1)}),
    (TypeError, "scale", {"scale": np.ones(1)}),
    (TypeError, "scale", {"scale": np.str_("1")}),
    (ValueError, "scale", {"scale": float("nan")}),
    (ValueError, "scale", {"scale": float("inf")}),
    (ValueError, "scale", {"scale": 1e300}),
    (ValueError, "scale", {"scale": 10**400}),
    (ValueError, "softcap", {"softcap": 0}),
    (ValueError, "softcap", {"softcap": -1.0}),
    (ValueError, "softcap", {"softcap": np.nan}),
    (TypeError, "softcap", {"softcap": [1.0]}),
    (TypeError, "dropout_p", {"dropout_p": None}),
    (TypeError, "dropout_p", {"dropout_p": "0"}),
    (ValueError, "dropout_p", {"dropout_p": 1.0, "seed": 0}),
    (ValueError, "dropout_p", {"dropout_p": -0.1, "seed": 0}),
    (ValueError, "dropout_p", {"dropout_p": np.nan, "seed": 0}),
    (ValueError, "seed", {"dropout_p": 0.5}),
    (ValueError, "seed", {"dropout_p": 0.5, "seed": -1}),
    (ValueError, "seed", {"dropout_p": 0.5, "seed": 2**64}),
    (TypeError, "seed", {"dropout_p": 0.5, "seed": 1.5}),
    (TypeError, "seed", {"dropout_p": 0.5, "seed": True}),
    (TypeError, "seed", {"dropout_p": 0.5, "seed": "1"}),
    (TypeError, "return_lse", {"return_lse": 1}),
    (TypeError, "return_lse", {"return_lse": None}),
    # options that are arrays
    (TypeError, "mask", {"mask": [True] * 7}),
    (TypeError, "mask", {"mask": np.ones(7, np.uint8)}),
    (TypeError, "mask", {"mask": np.ones(7, np.int16)}),
    (TypeError, "mask", {"mask": np.ones(7, F32)}),
    (ValueError, "mask", {"mask": np.ones(6, bool)}),
    (ValueError, "mask", {"mask": np.ones((1, 2, 4, 5, 7), bool)}),
    (ValueError, "mask", {"mask": np.ones((3, 1, 1, 1), bool)}),
    (TypeError, "bias", {"bias": 0.5}),
    (TypeError, "bias", {"bias": np.ones(7, F64)}),
    (TypeError, "bias", {"bias": np.ones(7, np.uint64)}),
    (ValueError, "bias", {"bias": np.ones((2, 5, 7), F32)}),
    (TypeError, "alibi_slopes", {"alibi_slopes": [0.5] * 4}),
    (TypeError, "alibi_slopes", {"alibi_slopes": np.ones(4)}),
    (ValueError, "alibi_slopes", {"alibi_slopes": np.ones(2, F32)}),
    (ValueError, "alibi_slopes", {"alibi_slopes": np.ones((1, 4), F32)}),
    (TypeError, "sink", {"sink": 0.0}),
    (TypeError, "sink", {"sink": np.ones(4, np.float16)}),
    (ValueError, "sink", {"sink": np.ones((4, 1), F32)}),
    # lengths and offsets
    (TypeError, "q_lengths", {"q_lengths": 3}),
    (TypeError, "q_lengths", {"q_lengths": "35"}),
    (TypeError, "q_lengths[1]", {"q_lengths": [3, 4.0]}),
    (TypeError, "q_lengths[0]", {"q_lengths": [None, 4]}),
    (TypeError, "q_lengths[0]", {"q_lengths": np.array([3.0, 4.0])}),
    (TypeError, "kv_lengths", {"kv_lengths": np.array([True, False])}),
    (TypeError, "kv_lengths[1]", {"kv_lengths": [3, True]}),
    (TypeError, "kv_lengths", {"kv_lengths": {3, 4}}),
    (TypeError, "kv_lengths", {"kv_lengths": np.ones((2, 1), int)}),
    (ValueError, "kv_lengths", {"kv_lengths": [7]}),
    (ValueError, "kv_lengths", {"kv_lengths": []}),
    (ValueError, "kv_lengths[1]", {"kv_lengths": [7, 8]}),
    (ValueError, "q_lengths[0]", {"q_lengths": [-1, 5]}),
    (ValueError, "q_lengths[0]", {"q_lengths": [2**64, 5]}),
    (ValueError, "kv_lengths", {"kv_lengths": [5], "causal": True}),
    (TypeError, "offset", {"offset": 1.0}),
    (TypeError, "offset", {"offset": True}),
    (TypeError, "offset", {"offset": "12"}),
    (ValueError, "offset", {"offset": [1, 2, 3]}),
    (ValueError, "offset", {"offset": 2**63}),
    (ValueError, "offset", {"offset": 2**62}),
    # packed batches
    (ValueError, "q", {"cu_q": [0, 5], "cu_kv": [0, 7]}),
    (ValueError, "cu_kv", {**PACKED, "cu_kv": None}),
    (ValueError, "cu_q", {**PACKED, "cu_q": None}),
    (ValueError, "cu_q", {**PACKED, "cu_q": []}),
    (ValueError, "cu_q", {**PACKED, "cu_q": [1, 3, 8]}),
    (ValueError, "cu_q", {**PACKED, "cu_q": [0, 3, 7]}),
    (ValueError, "cu_kv[2]", {**PACKED, "cu_kv": [0, 9, 8]}),
    (ValueError, "cu_kv", {**PACKED, "cu_kv": [0, 8]}),
    (TypeError, "cu_kv[1]", {**PACKED, "cu_kv": [0, 4.0, 8]}),
    (TypeError, "cu_q", {**PACKED, "cu_q": 8}),
    (ValueError, "mask", {**PACKED, "mask": np.ones(8, bool)}),
    (ValueError, "bias", {**PACKED, "bias": np.ones(8, F32)}),
    (ValueError, "kv_lengths[1]", {**PACKED, "kv_lengths": [4, 5]}),
    (ValueError, "q", {**PACKED, "q": Q}),
    # capture
    (TypeError, "capture", {"capture": {"top_k": 3}}),
    (TypeError, "capture", {"capture": True}),
    (TypeError, "capture", {"capture": qkv.Capture}),
    (ValueError, "capture.top_k", {"capture": qkv.Capture(top_k=-1)}),
    (ValueError, "capture.rows", {"capture": qkv.Capture(rows=[5])}),
    (ValueError, "capture.rows", {"capture": qkv.Capture(rows=[-1])}),
    (ValueError, "capture.rows", {"capture": qkv.Capture(rows=[1, 1])}),
    (ValueError, "capture.top_k", {"capture": qkv.Capture(top_k=2**55)}),
    (MemoryError, "attention", {"capture": qkv.Capture(top_k=2**31 - 1), "q": Q.repeat(4000, 2)}),
]


def check(error, name, call, *arguments, **given):
    with pytest.raises(error) as raised:
        call(*arguments, **given)
    assert type(raised.value) is error
    message = str(raised.value)
    assert re.match(re.escape(name) + r"[:\[. ]", message) and "\n" not in message, message
    assert len(message) < 250, message


@pytest.mark.parametrize("error, name, given", WRONG, ids=[f"{i} {row[1]}" for i, row in enumerate(WRONG)])
def test_wrong_calls(error, name, given):
    check(error, name, qkv.attention, **{"q": Q, "k": K, "v": V, **given})


@pytest.mark.parametrize("error, name, given", [
    (TypeError, "capture.top_k", {"top_k": 2.0}),
    (TypeError, "capture.top_k", {"top_k": True}),
    (TypeError, "capture.top_k", {"top_k": None}),
    (TypeError, "capture.rows", {"rows": 3}),
    (TypeError, "capture.rows[0]", {"rows": [0.5]}),
    (TypeError, "capture.entropy", {"entropy": 1}),
    (TypeError, "capture.received", {"received": "yes"}),
    (TypeError, "capture.scores", {"rows": [0], "scores": 1}),
    (ValueError, "capture.scores", {"rows": [0], "scores": "cooked"}),
    (ValueError, "capture.scores", {"scores": "raw"}),
])
def test_wrong_captures(error, name, given):
    check(error, name, qkv.Capture, **given)


RIGHT = {"batch": 2, "kv_heads": 2, "d": 8, "dv": 6, "dtype": "float32", "capacity": 16}


@pytest.mark.parametrize("error, name, given", [
    (TypeError, "batch", {"batch": 2.0}),
    (TypeError, "d", {"d": "8"}),
    (TypeError, "capacity", {"capacity": None}),
    (TypeError, "page", {"page": True}),
    (TypeError, "window", {"window": (3, 0)}),
    (ValueError, "batch", {"batch": 0}),
    (ValueError, "kv_heads", {"kv_heads": -1}),
    (ValueError, "dv", {"dv": 0}),
    (ValueError, "page", {"page": 0}),
    (ValueError, "window", {"window": 17}),
    (ValueError, "capacity", {"capacity": 2**63}),
    (TypeError, "dtype", {"dtype": "float8"}),
    (TypeError, "dtype", {"dtype": "float64"}),
    (TypeError, "dtype", {"dtype": np.int32}),
    (TypeError, "dtype", {"dtype": None}),
    (TypeError, "dtype", {"dtype": 32}),
])
def test_wrong_caches(error, name, given):
    check(error, name, qkv.KVCache, **{**RIGHT, **given})


@pytest.mark.parametrize("error, name, call", [
    (TypeError, "k", lambda cache: cache.append(K.tolist(), V)),
    (TypeError, "k", lambda cache: cache.append(K.astype(np.float16), V)),
    (ValueError, "k", lambda cache: cache.append(K[:1], V)),
    (ValueError, "v", lambda cache: cache.append(K, V[:, :, :3])),
    (ValueError, "v", lambda cache: cache.append(K, V[0])),
    (TypeError, "counts", lambda cache: cache.append(K, V, counts=3)),
    (TypeError, "counts[0]", lambda cache: cache.append(K, V, counts=[1.0, 2])),
    (ValueError, "counts[1]", lambda cache: cache.append(K, V, counts=[7, 8])),
    (ValueError, "counts", lambda cache: cache.append(K, V, counts=[7])),
    (ValueError, "k", lambda cache: [cache.append(K, V) for _ in range(3)]),
    (ValueError, "q", lambda cache: cache.attend(Q[0])),
    (ValueError, "q", lambda cache: cache.attend(Q[:1])),
    (ValueError, "q", lambda cache: cache.attend(Q[..., :7])),
    (TypeError, "q", lambda cache: cache.attend(Q.astype(F64))),
    (TypeError, "q", lambda cache: cache.attend([1])),
    (ValueError, "mask", lambda cache: cache.attend(Q, mask=np.ones(6, bool))),
    (ValueError, "out", lambda cache: cache.attend(Q, out=OUT[..., :5])),
    (ValueError, "source", lambda cache: cache.fork(2, 0)),
    (ValueError, "target", lambda cache: cache.fork(0, -1)),
    (TypeError, "source", lambda cache: cache.fork("0", 1)),
    (ValueError, "sequence", lambda cache: cache.trim(2, 0)),
    (ValueError, "length", lambda cache: cache.trim(0, 8)),
    (ValueError, "length", lambda cache: cache.trim(0, -1)),
    (TypeError, "length", lambda cache: cache.trim(0, 1.0)),
])
def test_wrong_calls_of_a_cache(error, name, call):
    cache = qkv.KVCache(**RIGHT)
    cache.append(K, V)
    check(error, name, call, cache)


def test_a_cache_of_its_window_and_int8():
    cache = qkv.KVCache(**{**RIGHT, "window": 4})
    cache.append(K, V)
    check(ValueError, "window.left", cache.attend, Q, window=(3, 0))
    cache = qkv.KVCache(**{**RIGHT, "dtype": "int8"})
    check(ValueError, "v", cache.append, K, np.full_like(V, np.inf))


@pytest.mark.parametrize("error, call", [
    (TypeError, lambda: qkv.alibi_slopes(2.0)), (TypeError, lambda: qkv.alibi_slopes(True)),
    (ValueError, lambda: qkv.alibi_slopes(-1)), (ValueError, lambda: qkv.alibi_slopes(2**63)),
    (MemoryError, lambda: qkv.alibi_slopes(2**62)), (MemoryError, lambda: qkv.alibi_slopes(2**63 - 1)),
])
def test_wrong_slopes(error, call):
    check(error, "n", call)


@pytest.mark.parametrize("error, count", [(ValueError, 0), (ValueError, -1), (ValueError, 2**31), (TypeError, 2.0),
                                          (TypeError, True), (TypeError, None)])
def test_wrong_thread_counts(error, count):
    check(error, "count", qkv.set_num_threads, count)


def test_numbers_of_other_kinds_are_taken():
    """What is refused above is refused for its kind: these are numbers."""
    expected = qkv.attention(Q, K, V, scale=0.5)
    for half in (np.float64(0.5), np.float16(0.5), np.array(0.5), fractions.Fraction(1, 2), ml_dtypes.bfloat16(0.5)):
        np.testing.assert_array_equal(qkv.attention(Q, K, V, scale=half), expected)


def test_arguments_that_do_not_exist():
    with pytest.raises(TypeError, match="is_causal"):
        qkv.attention(Q, K, V, is_causal=True)
    with pytest.raises(TypeError, match="positional"):
        qkv.attention(Q, K, V, True)
    with pytest.raises(TypeError, match=r"attention_backward\(\) .*'is_causal'"):
        qkv.attention_backward(OUT, Q, K, V, OUT, OUT[..., 0], is_causal=True)
    cache = qkv.KVCache(**RIGHT)
    with pytest.raises(TypeError, match=r"attend\(\) .*'kv_lengths'"):  # the cache knows them
        cache.attend(Q, kv_lengths=[7, 7])
