"""Every argument of qkv.attention, alone and with others, against the plain formula."""

import itertools

import numpy as np
import pytest

import qkv
import reference
from reference import assert_close, qkv_of, random

SHAPE = (2, 4, 5, 7)  # of the scores that qkv_of's arrays give


def rule(rng, *shape):
    mask = rng.random(shape) < 0.7
    mask[..., 0] = True
    return mask


RNG = np.random.default_rng(7)
ALONE = {
    "nothing": {},
    "causal none": {"causal": "none"},
    "causal top_left": {"causal": "top_left"},
    "causal bottom_right": {"causal": "bottom_right"},
    "window both": {"window": (2, 1)},
    "window left": {"window": (1, None)},
    "window right": {"window": [None, 0]},
    "window open": {"window": (None, None)},
    "window of numpy integers": {"window": (np.int64(2), np.int32(0))},
    "scale": {"scale": 0.3},
    "scale 0": {"scale": 0},
    "negative scale": {"scale": -1.5},
    "numpy scale": {"scale": np.float32(0.25)},
    "0-d scale": {"scale": np.array(0.25)},
    "softcap": {"softcap": 1.5},
    "full mask": {"mask": rule(RNG, *SHAPE)},
    "mask of keys": {"mask": rule(RNG, 7)},
    "mask of queries": {"mask": rule(RNG, 5, 1)},
    "mask of heads": {"mask": rule(RNG, 4, 1, 7)},
    "mask of sequences": {"mask": rule(RNG, 2, 1, 1, 7)},
    "0-d mask": {"mask": np.array(True)},
    "mask that blocks rows": {"mask": np.arange(5)[:, None] > 1},
    "mask that blocks all": {"mask": np.zeros((1, 1), bool)},
    "bias": {"bias": random(1, SHAPE)},
    "bias of keys": {"bias": random(1, (7,))},
    "bias of heads": {"bias": random(1, (4, 1, 1))},
    "bias with -inf": {"bias": np.where(rule(RNG, 5, 7), random(2, (5, 7)), -np.inf).astype(np.float32)},
    "very low bias": {"bias": np.full((7,), -1e30, np.float32)},
    "alibi": {"alibi_slopes": qkv.alibi_slopes(4)},
    "alibi of sequences": {"alibi_slopes": random(3, (2, 4))},
    "sink": {"sink": random(4, (4,))},
    "sink -inf": {"sink": np.full(4, -np.inf, np.float32)},
    "q_lengths": {"q_lengths": [3, 5]},
    "kv_lengths": {"kv_lengths": (7, 4)},
    "lengths 0": {"q_lengths": [0, 5], "kv_lengths": [7, 0]},
    "lengths as arrays": {"q_lengths": np.array([2, 4], np.int32), "kv_lengths": np.array([5, 6], np.uint8)},
    "lengths of numpy integers": {"kv_lengths": [np.int64(3), np.int16(7)]},
    "offset": {"offset": 1, "causal": "top_left"},
    "numpy offset": {"offset": np.int64(4), "causal": "bottom_right"},
    "0-d offset": {"offset": np.array(2), "causal": "bottom_right"},
    "negative offset": {"offset": -2, "causal": "bottom_right"},
    "offsets": {"offset": [0, 3], "window": (1, 1)},
}


def expect(q, k, v, given, dtype="float32"):
    expected = reference.attention(q, k, v, **given)
    result = qkv.attention(q, k, v, return_lse=True, **given)
    assert_close(result.out, expected.out, v, dtype)
    assert result.out.dtype == q.dtype and result.lse.dtype == np.float32
    finite = np.isfinite(expected.lse)
    np.testing.assert_array_equal(np.isneginf(result.lse), ~finite)
    largest = np.abs(expected.lse[finite]).max(initial=1)
    np.testing.assert_allclose(result.lse[finite], expected.lse[finite], rtol=0, atol=3e-6 * largest)
    assert_close(qkv.attention(q, k, v, **given), expected.out, v, dtype)
    in_chunks = {**given, "chunked": True}
    np.testing.assert_array_equal(qkv.attention(q, k, v, **in_chunks),
                                  qkv.attention(q, k, v, return_lse=True, **in_chunks).out)
    return result


@pytest.mark.parametrize("name", ALONE)
def test_alone(name):
    expect(*qkv_of(), ALONE[name])


@pytest.mark.parametrize("name", ALONE)
def test_float64(name):
    expect(*qkv_of(dtype="float64"), ALONE[name], "float64")


PAIRS = ["causal top_left", "causal bottom_right", "window both", "scale", "softcap", "full mask", "bias", "alibi",
         "sink", "q_lengths", "kv_lengths", "offsets"]


@pytest.mark.parametrize("first, second", list(itertools.combinations(PAIRS, 2)))
def test_in_pairs(first, second):
    expect(*qkv_of(seed=20), {**ALONE[first], **ALONE[second]})


def test_all_at_once():
    names = ("causal bottom_right", "window both", "scale", "softcap", "full mask", "bias", "alibi", "sink",
             "q_lengths", "kv_lengths")
    expect(*qkv_of(seed=30), {key: value for name in names for key, value in ALONE[name].items()})


@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (6, 2), (8, 1)])
@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 130), (33, 65), (130, 17)])
@pytest.mark.parametrize("d, dv", [(1, 3), (64, 64), (80, 16)])
def test_shapes(heads, queries, keys, d, dv):
    expect(*qkv_of(queries * keys, 1, heads, queries, keys, d, dv), {"causal": "bottom_right"})


@pytest.mark.parametrize("dtype, kv_dtype", [("bfloat16", None), ("float16", None), ("float32", "bfloat16"),
                                             ("float32", "float16"), ("float64", None)])
@pytest.mark.parametrize("name", ["nothing", "causal bottom_right", "full mask", "bias", "sink"])
def test_types(dtype, kv_dtype, name):
    q, k, v = qkv_of(dtype=dtype, kv_dtype=kv_dtype)
    expect(q, k, v, ALONE[name], dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_bias_of_the_type(dtype):
    expect(*qkv_of(dtype=dtype), {"bias": random(1, SHAPE, dtype)}, dtype)


# causal=True and False


@pytest.mark.parametrize("causal", [True, np.True_])
def test_true_is_causal_where_lengths_agree(causal):
    q, k, v = qkv_of(queries=7)
    expected = qkv.attention(q, k, v, causal="bottom_right")
    np.testing.assert_array_equal(qkv.attention(q, k, v, causal=causal), expected)
    q, k, v = qkv_of()
    short = {"q_lengths": [3, 5], "kv_lengths": [3, 5]}
    np.testing.assert_array_equal(qkv.attention(q, k, v, causal=causal, **short),
                                  qkv.attention(q, k, v, causal="top_left", **short))


def test_false_is_none():
    q, k, v = qkv_of()
    np.testing.assert_array_equal(qkv.attention(q, k, v, causal=False), qkv.attention(q, k, v))


@pytest.mark.parametrize("given", [
    {}, {"offset": 0}, {"kv_lengths": [5, 6]}, {"q_lengths": [5, 4], "kv_lengths": [5, 5]},
])
def test_true_asks_for_a_name_where_lengths_differ(given):
    with pytest.raises(ValueError, match=r"^causal: True is ambiguous .* 'top_left' or 'bottom_right'"):
        qkv.attention(*qkv_of(), causal=True, **given)


def test_true_of_packed():
    x = random(0, (5, 2, 8))
    qkv.attention(x, x, x, cu_q=[0, 2, 5], cu_kv=[0, 2, 5], causal=True)
    with pytest.raises(ValueError, match=r"^causal: .*got 2 queries and 3 keys in sequence 0"):
        qkv.attention(x, x, x, cu_q=[0, 2, 5], cu_kv=[0, 3, 5], causal=True)


# Packed batches


@pytest.mark.parametrize("as_given", [list, tuple, np.array, lambda x: np.array(x, np.int32)])
@pytest.mark.parametrize("given", [
    {}, {"causal": "bottom_right"}, {"window": (1, 1)}, {"sink": random(4, (4,))}, {"offset": [1, 0, 2]},
    {"alibi_slopes": qkv.alibi_slopes(4)}, {"q_lengths": [2, 0, 3]}, {"kv_lengths": [1, 4, 0]},
])
def test_packed_equals_each_sequence_alone(as_given, given):
    cu_q, cu_kv = [0, 3, 3, 8], [0, 2, 6, 11]
    q, k, v = random(1, (8, 4, 8)), random(2, (11, 2, 8)), random(3, (11, 2, 6))
    result = qkv.attention(q, k, v, cu_q=as_given(cu_q), cu_kv=as_given(cu_kv), return_lse=True, **given)
    assert result.out.shape == (8, 4, 6) and result.lse.shape == (4, 8)
    for b in range(3):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_kv[b], cu_kv[b + 1])
        own = {name: [value[b]] if name in ("offset", "q_lengths", "kv_lengths") else value
               for name, value in given.items()}
        alone = qkv.attention(*(x[None].swapaxes(1, 2) for x in (q[rows], k[keys], v[keys])), return_lse=True, **own)
        np.testing.assert_array_equal(result.out[rows], alone.out[0].swapaxes(0, 1))
        np.testing.assert_array_equal(result.lse[:, rows], alone.lse[0])


# Dropout


def test_dropout_repeats_by_seed():
    q, k, v = qkv_of(keys=64)
    first = qkv.attention(q, k, v, dropout_p=0.5, seed=1)
    np.testing.assert_array_equal(first, qkv.attention(q, k, v, dropout_p=np.float32(0.5), seed=np.uint64(1)))
    assert not np.array_equal(first, qkv.attention(q, k, v, dropout_p=0.5, seed=2))
    assert not np.array_equal(first, qkv.attention(q, k, v, dropout_p=0.5, seed=2**64 - 1))
    np.testing.assert_array_equal(qkv.attention(q, k, v, dropout_p=0.0, seed=1), qkv.attention(q, k, v))


def test_dropout_keeps_the_expectation():
    p, keys, draws = 0.25, 256, 400
    q, k = np.zeros((1, 1, draws, 1), np.float32), np.zeros((1, 1, keys, 1), np.float32)
    v = np.ones((1, 1, keys, 1), np.float32)
    out = qkv.attention(q, k, v, dropout_p=p, seed=9).ravel()
    deviation = np.sqrt(p / (1 - p) / keys)  # of a mean of `keys` draws that are 0 or 1 / (1 - p)
    assert abs(out.mean() - 1) < 5 * deviation / np.sqrt(draws)
    assert 0.8 * deviation < out.std() < 1.2 * deviation


def test_dropout_leaves_lse():
    q, k, v = qkv_of()
    np.testing.assert_array_equal(qkv.attention(q, k, v, dropout_p=0.9, seed=0, return_lse=True).lse,
                                  qkv.attention(q, k, v, return_lse=True).lse)


# The same bits, and what comes back


def test_threads_do_not_change_bits():
    q, k, v = qkv_of(batch=3, queries=150, keys=300, d=64, dv=64)
    before = qkv.get_num_threads()
    try:
        results = []
        for count in (1, 2, np.int64(3), 8):
            qkv.set_num_threads(count)
            assert qkv.get_num_threads() == count
            results.append(qkv.attention(q, k, v, causal="bottom_right"))
    finally:
        qkv.set_num_threads(before)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_results():
    q, k, v = qkv_of()
    assert isinstance(qkv.attention(q, k, v), np.ndarray)
    out, lse, capture = qkv.attention(q, k, v, return_lse=True)
    assert out.shape == (2, 4, 5, 6) and lse.shape == (2, 4, 5) and capture is None
    result = qkv.attention(q, k, v, capture=qkv.Capture(top_k=1), return_lse=np.False_)
    assert result.lse is None and result.capture.top_keys.shape == (2, 4, 5, 1)


def test_blocked_values_never_come_out():
    q, k, v = qkv_of()
    k[:, :, 3], v[:, :, 5] = np.nan, np.inf
    mask = np.ones(7, bool)
    mask[[3, 5]] = False
    assert np.isfinite(qkv.attention(q, k, v, mask=mask)).all()
    assert np.isnan(qkv.attention(q, k, v)).any()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 12, 71])
def test_alibi_slopes(n):
    power = 1 << (n.bit_length() - 1) if n else 0
    expected = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    expected += [2 ** (-4 * h / power) for h in range(1, 2 * (n - power), 2)]
    slopes = qkv.alibi_slopes(np.int64(n))
    assert slopes.dtype == np.float32 and slopes.shape == (n,)
    np.testing.assert_allclose(slopes, expected, rtol=1e-6)
