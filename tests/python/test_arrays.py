"""Memory: strides, no copies, what may be read and what may be written."""

import numpy as np
import pytest

import qkv
import reference
from reference import assert_close, qkv_of, random


def padded(x):
    wide = np.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
    wide[..., 2:-1] = x
    return wide[..., 2:-1]


LAYOUTS = {
    "contiguous": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "rows before heads": lambda x: np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2),
    "channels outermost": lambda x: np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 3, 0)), 0, 3),
    "part of wider rows": padded,
    "every second channel": lambda x: np.repeat(x, 2, axis=3)[..., ::2],
    "rows backwards": lambda x: np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1],
    "all axes backwards": lambda x: np.ascontiguousarray(x[::-1, ::-1, ::-1, ::-1])[::-1, ::-1, ::-1, ::-1],
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, dtype):
    q, k, v = qkv_of(dtype=dtype, keys=70)
    expected = qkv.attention(q, k, v)
    laid = [LAYOUTS[layout](x) for x in (q, k, v)]
    for x, y in zip((q, k, v), laid):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(qkv.attention(*laid), expected)
    out = LAYOUTS[layout](np.zeros_like(expected))
    assert qkv.attention(q, k, v, out=out) is out
    np.testing.assert_array_equal(out, expected)


def test_axes_of_stride_0():
    q, k, v = qkv_of(heads=(4, 1))
    wide_k, wide_v = (np.broadcast_to(x, (2, 4, *x.shape[2:])) for x in (k, v))
    np.testing.assert_array_equal(qkv.attention(q, wide_k, wide_v), qkv.attention(q, k, v))
    mask = np.broadcast_to(np.arange(7) != 3, (2, 4, 5, 7))
    np.testing.assert_array_equal(qkv.attention(q, k, v, mask=mask), qkv.attention(q, k, v, mask=mask[0, 0, 0]))


def test_options_of_any_strides():
    q, k, v = qkv_of()
    bias, slopes, sink = random(5, (7, 5)).T, random(6, (4, 2)).T, random(7, (8,))[::-2]
    mask = (random(8, (7, 5)) > -1)[::-1].T
    given = {"bias": bias, "alibi_slopes": slopes, "sink": sink, "mask": mask}
    assert_close(qkv.attention(q, k, v, **given), reference.attention(q, k, v, **given).out, v)
    plain = {name: np.ascontiguousarray(x) for name, x in given.items()}
    np.testing.assert_array_equal(qkv.attention(q, k, v, **given), qkv.attention(q, k, v, **plain))


def test_one_buffer_of_q_k_and_v():
    packed = random(0, (2, 9, 3, 4, 8))  # as one projection gives them
    q, k, v = (packed[:, :, i].swapaxes(1, 2) for i in range(3))
    copies = [np.ascontiguousarray(x) for x in (q, k, v)]
    np.testing.assert_array_equal(qkv.attention(q, k, v, causal=True), qkv.attention(*copies, causal=True))


def test_out_is_written_in_place_and_nothing_beside_it():
    q, k, v = qkv_of()
    whole = np.full((2, 4, 10, 6), 77, np.float32)
    address = whole.__array_interface__["data"][0]
    out = whole[:, :, 2:7]
    result = qkv.attention(q, k, v, out=out, return_lse=True)
    assert result.out is out and whole.__array_interface__["data"][0] == address
    np.testing.assert_array_equal(whole[:, :, 2:7], qkv.attention(q, k, v))
    assert (whole[:, :, :2] == 77).all() and (whole[:, :, 7:] == 77).all()


def test_inputs_are_read_where_they_are():
    """An input of 8 GiB, most of it never touched: a copy, or reading it all, would need that memory."""
    k = np.zeros((1, 1, 2**26, 32), np.float32)
    q, v = random(0, (1, 1, 1, 32)), k
    out = qkv.attention(q, k, v, kv_lengths=[4])
    np.testing.assert_array_equal(out, np.zeros((1, 1, 1, 32)))


def test_inputs_may_be_read_only():
    arrays = qkv_of()
    given = {"mask": np.ones(7, bool), "bias": random(1, (7,)), "sink": random(2, (4,)),
             "alibi_slopes": qkv.alibi_slopes(4), "q_lengths": np.array([5, 5])}
    before = [x.copy() for x in arrays]
    for x in (*arrays, *given.values()):
        x.flags.writeable = False
    qkv.attention(*arrays, **given)
    for x, y in zip(arrays, before):
        np.testing.assert_array_equal(x, y)


def test_memory_mapped_files(tmp_path):
    q, k, v = qkv_of()
    k.tofile(tmp_path / "k")
    mapped = np.memmap(tmp_path / "k", dtype=np.float32, mode="r", shape=k.shape)
    out = qkv.attention(q, mapped, v)
    np.testing.assert_array_equal(out, qkv.attention(q, k, v))


def test_a_failed_call_writes_nothing():
    q, k, v = qkv_of()
    out = np.full((2, 4, 5, 6), 77, np.float32)
    for wrong in ({"mask": np.ones(6, bool)}, {"sink": np.ones(3, np.float32)}, {"offset": [1, 2, 3]},
                  {"capture": qkv.Capture(rows=[5])}):
        with pytest.raises(ValueError):
            qkv.attention(q, k, v, out=out, **wrong)
    assert (out == 77).all()


# Empty axes


@pytest.mark.parametrize("shape", [(0, 4, 5, 8), (2, 0, 5, 8), (2, 4, 0, 8)])
def test_nothing_to_do(shape):
    q, k = np.ones(shape, np.float32), np.ones((shape[0], shape[1], 7, 8), np.float32)
    result = qkv.attention(q, k, k, return_lse=True)
    assert result.out.shape == shape and result.lse.shape == shape[:3]


def test_no_keys():
    q, k, v = qkv_of(keys=0)
    result = qkv.attention(q, k, v, return_lse=True)
    assert (result.out == 0).all() and np.isneginf(result.lse).all()
    sink = random(1, (4,))
    result = qkv.attention(q, k, v, sink=sink, return_lse=True)
    assert (result.out == 0).all()
    np.testing.assert_allclose(result.lse, np.broadcast_to(sink[:, None], (2, 4, 5)), rtol=2e-7)


def test_no_sequences():
    x = np.ones((0, 2, 8), np.float32)
    assert qkv.attention(x, x, x, cu_q=[0], cu_kv=[0]).shape == (0, 2, 8)
