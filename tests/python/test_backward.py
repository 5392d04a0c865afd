"""qkv.attention_backward against differences of the plain formula, along random directions."""

import numpy as np
import pytest

import qkv
import reference
from reference import qkv_of, random
from test_options import ALONE

# Beside a bias of -1e30 a step of the scores is lost to rounding, even in float64.
SMOOTH = [name for name in ALONE if name != "very low bias"]
STEP = 1e-5
BOUND = 1e-6  # of losses of size 10: float32 scale, lse and sinks; the cubic term of the step is 1e-9


def loss(q, k, v, dout, dlse, given):
    """sum(dout * out) + sum(dlse * lse), in float64; dropout runs on the library, whose lse is float32."""
    if "dropout_p" in given:
        return (dout * qkv.attention(q, k, v, **given)).sum()
    expected = reference.attention(q, k, v, **given)
    return (dout * expected.out).sum() + (dlse * np.where(np.isfinite(expected.lse), expected.lse, 0)).sum()


def check(q, k, v, given, bound=BOUND):
    """Each gradient along a random direction is the difference quotient of the loss along it."""
    dout = random(5, (*q.shape[:-1], v.shape[-1]), "float64")
    dlse = random(6, q.shape[:-1])
    out, lse, _ = qkv.attention(q, k, v, return_lse=True, **given)
    by_lse = {} if "dropout_p" in given else {"dlse": dlse}
    gradients = qkv.attention_backward(dout.astype(q.dtype), q, k, v, out, lse, **by_lse, **given)
    exact = [x.astype(np.float64) for x in (q, k, v)]
    for n, gradient in enumerate(gradients[:3]):
        assert gradient.shape == exact[n].shape and gradient.dtype == (q, k, v)[n].dtype
        direction = random(7 + n, gradient.shape, "float64")
        moved = [[x + sign * STEP * direction if m == n else x for m, x in enumerate(exact)] for sign in (1, -1)]
        difference = (loss(*moved[0], dout, dlse, given) - loss(*moved[1], dout, dlse, given)) / (2 * STEP)
        assert abs(difference - (gradient.astype(np.float64) * direction).sum()) < bound
    for name, gradient in (("bias", gradients.dbias), ("sink", gradients.dsink)):
        if name not in given:
            assert gradient is None
            continue
        values = np.asarray(given[name], dtype=np.float64)
        direction = np.where(np.isfinite(values), random(10, values.shape, "float64"), 0)
        moved = [{**given, name: values + sign * STEP * direction} for sign in (1, -1)]
        difference = (loss(*exact, dout, dlse, moved[0]) - loss(*exact, dout, dlse, moved[1])) / (2 * STEP)
        assert gradient.shape == values.shape
        assert abs(difference - (gradient.astype(np.float64) * direction).sum()) < max(bound, 5e-6)


@pytest.mark.parametrize("name", SMOOTH)
def test_alone(name):
    check(*qkv_of(dtype="float64"), ALONE[name])


@pytest.mark.parametrize("name", SMOOTH)
def test_float32(name):
    check(*qkv_of(), ALONE[name], bound=2e-4)


@pytest.mark.parametrize("names", [("softcap", "bias of heads", "sink"), ("softcap", "bias", "window both"),
                                   ("alibi", "sink", "kv_lengths", "causal bottom_right"), ("full mask", "bias of keys")])
def test_together(names):
    check(*qkv_of(dtype="float64"), {key: value for name in names for key, value in ALONE[name].items()})


def test_dropout():
    check(*qkv_of(dtype="float64"), {"dropout_p": 0.4, "seed": 3})


def test_packed_is_each_sequence_alone():
    q, k, v = random(0, (8, 4, 8)), random(1, (9, 2, 8)), random(2, (9, 2, 6))
    dout = random(3, (8, 4, 6))
    given = {"cu_q": [0, 3, 8], "cu_kv": [0, 4, 9], "causal": "bottom_right"}
    out, lse, _ = qkv.attention(q, k, v, return_lse=True, **given)
    packed = qkv.attention_backward(dout, q, k, v, out, lse, **given)

    def alone(x, rows):
        return np.ascontiguousarray(x[rows].swapaxes(0, 1)[None])

    for rows, keys in ((slice(0, 3), slice(0, 4)), (slice(3, 8), slice(4, 9))):
        arrays = alone(q, rows), alone(k, keys), alone(v, keys)
        own, own_lse, _ = qkv.attention(*arrays, causal="bottom_right", return_lse=True)
        expected = qkv.attention_backward(alone(dout, rows), *arrays, own, own_lse, causal="bottom_right")
        for x, part, at in zip(expected[:3], packed[:3], (rows, keys, keys)):
            np.testing.assert_array_equal(alone(part, at), x)


def test_what_nothing_sees_gives_nothing():
    q, k, v = qkv_of()
    dout = random(3, (2, 4, 5, 6))
    given = {"q_lengths": [3, 5], "kv_lengths": [7, 4]}
    out, lse, _ = qkv.attention(q, k, v, return_lse=True, **given)
    expected = qkv.attention_backward(dout, q, k, v, out, lse, **given)
    for x, index in ((q, (0, slice(None), slice(3, None))), (dout, (0, slice(None), slice(3, None))),
                     (k, (1, slice(None), slice(4, None))), (v, (1, slice(None), slice(4, None)))):
        x[index] = np.nan
    got = qkv.attention_backward(dout, q, k, v, out, lse, **given)
    for x, y in zip(got[:3], expected[:3]):
        np.testing.assert_array_equal(x, y)
    assert not got.dq[0, :, 3:].any() and not got.dk[1, :, 4:].any() and not got.dv[1, :, 4:].any()


@pytest.mark.parametrize("error, name, change", [
    (ValueError, "dout", {"dout": np.zeros((2, 4, 5, 7), np.float32)}),
    (TypeError, "dout", {"dout": np.zeros((2, 4, 5, 6))}),
    (ValueError, "out", {"out": np.zeros((2, 4, 4, 6), np.float32)}),
    (ValueError, "lse", {"lse": np.zeros((2, 4), np.float32)}),
    (TypeError, "lse", {"lse": np.zeros((2, 4, 5))}),
    (ValueError, "dlse", {"dlse": np.zeros((2, 4, 6), np.float32)}),
    (TypeError, "dlse", {"dlse": 1.0}),
    (ValueError, "seed", {"dropout_p": 0.5}),
    (ValueError, "q", {"q": np.zeros((4, 5, 8), np.float32)}),
])
def test_wrong_calls_name_the_argument(error, name, change):
    q, k, v = qkv_of()
    out, lse, _ = qkv.attention(q, k, v, return_lse=True)
    call = {"dout": out, "q": q, "k": k, "v": v, "out": out, "lse": lse, **change}
    with pytest.raises(error, match=f"^{name}: "):
        qkv.attention_backward(**call)
