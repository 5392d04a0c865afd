"""What a capture keeps, against the whole matrix of weights."""

import numpy as np
import pytest

import qkv
import reference
from reference import assert_close, qkv_of, random

EVERYTHING = qkv.Capture(top_k=3, rows=[4, 0], entropy=True, received=True)
GIVEN = {
    "plain": {},
    "causal": {"causal": "bottom_right"},
    "top_left": {"causal": "top_left"},
    "window": {"window": (1, 1)},
    "softcap and bias": {"softcap": 1.0, "bias": random(1, (5, 7))},
    "alibi": {"alibi_slopes": qkv.alibi_slopes(4)},
    "sink": {"sink": random(4, (4,))},
    "lengths": {"q_lengths": [3, 5], "kv_lengths": [2, 7]},
}


def check(q, k, v, given, dtype="float32"):
    expected = reference.attention(q, k, v, **given)
    out, lse, kept = qkv.attention(q, k, v, capture=EVERYTHING, **given)
    assert lse is None
    np.testing.assert_array_equal(out, qkv.attention(q, k, v, **given))
    weights = expected.weights

    assert kept.top_keys.dtype == np.int32 and kept.top_keys.shape == (2, 4, 5, 3)
    assert kept.top_weights.dtype == np.float32 and kept.top_weights.shape == (2, 4, 5, 3)
    order = np.argsort(-weights, axis=-1, kind="stable")[..., :3]
    sorted_weights = np.take_along_axis(weights, order, -1)
    np.testing.assert_array_equal(kept.top_keys, np.where(sorted_weights > 0, order, -1))
    assert_close(kept.top_weights, sorted_weights, 1)

    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(weights > 0, weights * np.log(weights), 0).sum(-1)
    assert kept.entropy.dtype == np.float32 and kept.entropy.shape == (2, 4, 5)
    assert_close(kept.entropy, entropy, 2)
    assert kept.received.dtype == np.float32 and kept.received.shape == (2, 4, 7)
    assert_close(kept.received, weights.sum(-2), 5)
    assert kept.rows.dtype == np.float32 and kept.rows.shape == (2, 4, 2, 7)
    assert_close(kept.rows, weights[:, :, [4, 0]], 1)
    if "sink" in given:
        assert_close(kept.sink_weight, expected.sink_weight, 1)
    else:
        assert kept.sink_weight is None


@pytest.mark.parametrize("name", GIVEN)
def test_all_of_it(name):
    check(*qkv_of(), GIVEN[name])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_types(dtype):
    check(*qkv_of(dtype=dtype), {"causal": "bottom_right"}, dtype)


@pytest.mark.parametrize("name, asked", [
    ("top_keys", {"top_k": 2}), ("top_weights", {"top_k": np.int64(2)}), ("entropy", {"entropy": True}),
    ("received", {"received": np.True_}), ("rows", {"rows": np.array([1])}),
])
def test_only_what_was_asked_for(name, asked):
    kept = qkv.attention(*qkv_of(), capture=qkv.Capture(**asked)).capture
    present = {field for field, value in vars(kept).items() if value is not None}
    assert present == ({"top_keys", "top_weights"} if "top" in name else {name})


def test_nothing_asked_for():
    q, k, v = qkv_of()
    out, lse, kept = qkv.attention(q, k, v, capture=qkv.Capture())
    np.testing.assert_array_equal(out, qkv.attention(q, k, v))
    assert lse is None and kept == qkv.Captured()


def test_no_rows():
    assert qkv.attention(*qkv_of(), capture=qkv.Capture(rows=[])).capture.rows.shape == (2, 4, 0, 7)


def test_more_keys_than_there_are():
    kept = qkv.attention(*qkv_of(), capture=qkv.Capture(top_k=9)).capture
    assert (kept.top_keys[..., 7:] == -1).all() and (kept.top_weights[..., 7:] == 0).all()
    np.testing.assert_array_equal(np.sort(kept.top_keys[..., :7]), np.broadcast_to(np.arange(7), (2, 4, 5, 7)))


@pytest.mark.parametrize("scores", ["raw", "softcapped", "biased"])
def test_scores(scores):
    q, k, v = qkv_of()
    given = {"softcap": 1.5, "bias": random(1, (5, 7)), "causal": "bottom_right"}
    kept = qkv.attention(q, k, v, capture=qkv.Capture(rows=range(5), scores=scores), **given).capture
    raw = np.float64(q) @ np.repeat(np.float64(k), 2, axis=1).swapaxes(-1, -2) / np.sqrt(8)
    expected = {"raw": raw, "softcapped": 1.5 * np.tanh(raw / 1.5),
                "biased": reference.attention(q, k, v, **given).scores}[scores]
    np.testing.assert_allclose(kept.rows, expected, rtol=0, atol=1e-5)


def test_weights_are_before_dropout():
    q, k, v = qkv_of()
    dropped = qkv.attention(q, k, v, capture=EVERYTHING, dropout_p=0.5, seed=3).capture
    plain = qkv.attention(q, k, v, capture=EVERYTHING).capture
    np.testing.assert_array_equal(dropped.rows, plain.rows)
    np.testing.assert_array_equal(dropped.top_weights, plain.top_weights)


def test_packed():
    cu_q, cu_kv = [0, 3, 8], [0, 2, 6]
    q, k, v = random(1, (8, 4, 8)), random(2, (6, 2, 8)), random(3, (6, 2, 6))
    asked = qkv.Capture(top_k=2, rows=[2, 0], entropy=True, received=True)
    kept = qkv.attention(q, k, v, cu_q=cu_q, cu_kv=cu_kv, capture=asked).capture
    assert kept.top_keys.shape == (2, 4, 5, 2) and kept.rows.shape == (2, 4, 2, 4)
    for b in range(2):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_kv[b], cu_kv[b + 1])
        alone = qkv.attention(*(x[None].swapaxes(1, 2) for x in (q[rows], k[keys], v[keys])), capture=asked).capture
        queries, count = cu_q[b + 1] - cu_q[b], cu_kv[b + 1] - cu_kv[b]
        np.testing.assert_array_equal(kept.top_keys[b, :, :queries], alone.top_keys[0])
        np.testing.assert_array_equal(kept.entropy[b, :, :queries], alone.entropy[0])
        np.testing.assert_array_equal(kept.received[b, :, :count], alone.received[0])
        np.testing.assert_array_equal(kept.rows[b, :, :, :count], alone.rows[0])
        assert (kept.top_keys[b, :, queries:] == -1).all() and (kept.rows[b, :, :, count:] == 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scores, blank", [(None, 0), ("raw", 0), ("softcapped", 0), ("biased", -np.inf)])
def test_packed_rows_that_not_every_sequence_has(dtype, scores, blank):
    cu_q, cu_kv = [0, 3, 3, 8], [0, 2, 5, 9]
    q, k, v = (random(n, shape).astype(dtype) for n, shape in enumerate([(8, 4, 8), (9, 2, 8), (9, 2, 6)]))
    kept = qkv.attention(q, k, v, cu_q=cu_q, cu_kv=cu_kv, capture=qkv.Capture(rows=[4, 0, 3], scores=scores)).capture
    assert kept.rows.shape == (3, 4, 3, 4)
    for b, own in enumerate([[0], [], [4, 0, 3]]):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_kv[b], cu_kv[b + 1])
        alone = qkv.attention(*(x[None].swapaxes(1, 2) for x in (q[rows], k[keys], v[keys])),
                              capture=qkv.Capture(rows=own, scores=scores)).capture
        places = [[4, 0, 3].index(row) for row in own]
        count = cu_kv[b + 1] - cu_kv[b]
        np.testing.assert_array_equal(kept.rows[b][:, places, :count], alone.rows[0])
        assert (np.delete(kept.rows[b], places, axis=1) == blank).all() and (kept.rows[b, ..., count:] == blank).all()


def test_packed_sizes_do_not_depend_on_lengths():
    q, k, v = random(1, (4, 4, 8)), random(2, (6, 2, 8)), random(3, (6, 2, 6))
    asked = qkv.Capture(rows=[0], received=True, entropy=True)
    kept = qkv.attention(q, k, v, cu_q=[0, 4], cu_kv=[0, 6], q_lengths=[2], kv_lengths=[3], capture=asked).capture
    assert kept.entropy.shape == (1, 4, 4) and kept.received.shape == (1, 4, 6) and kept.rows.shape == (1, 4, 1, 6)
    assert (kept.received[..., 3:] == 0).all()


def test_what_was_kept_outlives_the_call():
    kept = [qkv.attention(*qkv_of(), capture=EVERYTHING).capture.rows for _ in range(20)]
    for rows in kept:
        rows += 0  # writable, too
        np.testing.assert_array_equal(rows, kept[0])
