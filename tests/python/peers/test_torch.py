"""PyTorch's tensors, and PyTorch's scaled_dot_product_attention as a peer."""

import gc
import itertools

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import qkv
from reference import EPS

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def tensors(dtype="float32", batch=2, heads=(4, 2), queries=33, keys=70, d=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (batch, heads[0], queries, d), (batch, heads[1], keys, d), (batch, heads[1], keys, d)
    return [torch.randn(shape, generator=generator).to(TYPES[dtype]) for shape in shapes]


def assert_equal_to(out, q, k, v, dtype, **given):
    """Against PyTorch in float64: within 16 roundings of the type, and no farther than twice PyTorch's own result."""
    exact_given = {name: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
                   for name, x in given.items()}
    exact = scaled_dot_product_attention(q.double(), k.double(), v.double(), **exact_given)
    peer = scaled_dot_product_attention(q, k, v, **given)
    size = float(v.abs().max())
    error, peer_error = (float((x.double() - exact).abs().max()) for x in (out, peer))
    assert error <= 16 * EPS[dtype] * size
    assert error <= 2 * peer_error + 4 * EPS[dtype] * size


HEADS = [(4, 4), (4, 2), (4, 1)]
SIZES = [(1, 1), (1, 300), (33, 70), (130, 130), (200, 65)]
KINDS = ["plain", "causal", "mask", "bias", "scale"]


@pytest.mark.parametrize("dtype, heads, sizes, kind", list(itertools.product(TYPES, HEADS, SIZES, KINDS)))
def test_equals_sdpa(dtype, heads, sizes, kind):
    queries, keys = sizes
    q, k, v = tensors(dtype, 2, heads, queries, keys, seed=queries)
    mask = torch.rand(2, 1, queries, keys, generator=torch.Generator().manual_seed(1)) < 0.7
    mask[..., 0] = True
    bias = torch.randn(4, queries, keys, generator=torch.Generator().manual_seed(2)).to(TYPES[dtype])
    theirs, ours = {
        "plain": ({}, {}),
        "causal": ({"is_causal": True}, {"causal": "top_left"}),
        "mask": ({"attn_mask": mask}, {"mask": mask}),
        "bias": ({"attn_mask": bias}, {"bias": bias}),
        "scale": ({"scale": 0.3}, {"scale": 0.3}),
    }[kind]
    out = qkv.attention(q, k, v, **ours)
    assert isinstance(out, torch.Tensor) and out.dtype == q.dtype
    assert_equal_to(out, q, k, v, dtype, enable_gqa=heads[0] != heads[1], **theirs)


@pytest.mark.parametrize("layout", ["contiguous", "rows before heads", "sliced", "expanded", "channels outermost"])
def test_layouts(layout):
    q, k, v = tensors(heads=(4, 4))
    lay = {
        "contiguous": torch.Tensor.contiguous,
        "rows before heads": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        "sliced": lambda x: torch.cat([x, x], dim=3)[..., : x.shape[3]],
        "expanded": lambda x: x[:, :1].expand(-1, 4, -1, -1),
        "channels outermost": lambda x: x.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0),
    }[layout]
    laid = [lay(x) for x in (q, k, v)]
    assert torch.equal(qkv.attention(*laid), qkv.attention(*(x.contiguous() for x in laid)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_float32_queries_and_16_bit_keys(dtype):
    q = tensors()[0]
    _, k, v = tensors(dtype)
    out = qkv.attention(q, k, v)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, qkv.attention(q, k.float(), v.float()), rtol=0, atol=1e-5)


def test_the_same_as_on_numpy():
    q, k, v = tensors()
    arrays = [x.numpy() for x in (q, k, v)]
    given = {"causal": "bottom_right", "window": (9, 0), "softcap": 3.0, "sink": torch.randn(4), "return_lse": True,
             "alibi_slopes": torch.from_numpy(qkv.alibi_slopes(4)), "kv_lengths": torch.tensor([70, 40])}
    ours = qkv.attention(q, k, v, **given, capture=qkv.Capture(top_k=2, entropy=True))
    plain = {name: x.numpy() if isinstance(x, torch.Tensor) else x for name, x in given.items()}
    theirs = qkv.attention(*arrays, **plain, capture=qkv.Capture(top_k=2, entropy=True))
    assert isinstance(ours.lse, torch.Tensor) and ours.lse.dtype == torch.float32
    np.testing.assert_array_equal(ours.out.numpy(), theirs.out)
    np.testing.assert_array_equal(ours.lse.numpy(), theirs.lse)
    np.testing.assert_array_equal(ours.capture.top_keys, theirs.capture.top_keys)
    np.testing.assert_array_equal(qkv.attention(q, arrays[1], v).numpy(), qkv.attention(*arrays))


def test_numbers_that_are_tensors():
    q, k, v = tensors()
    expected = qkv.attention(q, k, v, scale=0.5, window=(3, 1), offset=7, dropout_p=0.5, seed=11)
    got = qkv.attention(q, k, v, scale=torch.tensor(0.5), window=(torch.tensor(3), 1), offset=torch.tensor(7),
                        dropout_p=torch.tensor(0.5), seed=torch.tensor(11))
    assert torch.equal(got, expected)
    for given in ({"scale": torch.tensor(True)}, {"scale": torch.tensor([0.5])}, {"offset": torch.tensor(1.0)},
                  {"seed": torch.tensor(True)}, {"kv_lengths": torch.tensor([True, False])},
                  {"scale": torch.tensor(1j)}):
        with pytest.raises(TypeError, match=f"^{next(iter(given))}"):
            qkv.attention(q, k, v, **given)


def test_out_is_written_where_it_is():
    q, k, v = tensors()
    whole = torch.full((2, 4, 40, 32), 77.0)
    out, address = whole[:, :, 3:36], whole.data_ptr()
    assert qkv.attention(q, k, v, out=out) is out and whole.data_ptr() == address
    assert torch.equal(whole[:, :, 3:36], qkv.attention(q, k, v))
    assert (whole[:, :, :3] == 77).all() and (whole[:, :, 36:] == 77).all()


def test_gradients_are_neither_needed_nor_made():
    q, k, v = (x.requires_grad_() for x in tensors())
    out = qkv.attention(q, k, v)
    assert not out.requires_grad
    assert torch.equal(out, qkv.attention(q.detach(), k.detach(), v.detach()))
    assert torch.equal(qkv.attention(torch.nn.Parameter(q.detach()), k, v), out)
    target = torch.zeros_like(q).requires_grad_()
    with pytest.raises(ValueError, match="^out: requires grad"):
        qkv.attention(q, k, v, out=target)
    with torch.no_grad():
        qkv.attention(q, k, v, out=target)
    with torch.inference_mode():
        assert torch.equal(qkv.attention(q, k, v), out)


@pytest.mark.parametrize("error, message, change", [
    (ValueError, "wrong device, expected cpu, got meta", lambda x: x.to("meta")),
    (ValueError, "wrong layout", lambda x: x.to_sparse()),
    (ValueError, "wrong layout", lambda x: x[0, 0].to_sparse_csr()),
    (ValueError, "wrong layout", lambda x: x.to_mkldnn()),
    (ValueError, "wrong layout", lambda x: torch.nested.nested_tensor([x[0], x[1]])),
    (ValueError, "lazy conjugate or negative", lambda x: torch.complex(x, x).conj().imag),
    (TypeError, "wrong type, expected float32, .* got complex64", lambda x: torch.complex(x, x)),
    (TypeError, "wrong type, expected float32, .* got float8_e4m3fn", lambda x: x.to(torch.float8_e4m3fn)),
    (TypeError, "wrong type, expected float32, .* got qint8", lambda x: torch.quantize_per_tensor(x, 1, 0, torch.qint8)),
    (TypeError, "wrong type", lambda x: x.to(torch.int64)),
    (ValueError, "wrong rank", lambda x: x[0]),
])
def test_refused(error, message, change):
    q, k, v = tensors()
    with pytest.raises(error, match=f"^q: .*{message}"):
        qkv.attention(change(q), k, v)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_cache(dtype):
    q, k, v = tensors(dtype)
    cache = qkv.KVCache(2, 2, 32, 32, TYPES[dtype], 80, page=16)
    for t in range(0, 70, 7):
        cache.append(k[:, :, t:t + 7], v[:, :, t:t + 7])
    result = cache.attend(q, causal="bottom_right", return_lse=True)
    expected = qkv.attention(q, k, v, causal="bottom_right", return_lse=True)
    assert torch.equal(result.out, expected.out) and torch.equal(result.lse, expected.lse)


def test_tensors_are_let_go():
    q, k, v = tensors()
    for _ in range(3):
        qkv.attention(q, k, v, capture=qkv.Capture(rows=[0]), return_lse=True)
    gc.collect()
    before = sum(isinstance(x, torch.Tensor) for x in gc.get_objects())
    for _ in range(50):
        qkv.attention(q, k, v, capture=qkv.Capture(rows=[0]), return_lse=True)
    gc.collect()
    assert sum(isinstance(x, torch.Tensor) for x in gc.get_objects()) <= before


def test_beside_pytorchs_own_threads():
    """Two OpenMP runtimes in one process, in turns."""
    q, k, v = tensors(queries=300, keys=300, d=64)
    first = qkv.attention(q, k, v)
    for _ in range(5):
        torch.randn(500, 500) @ torch.randn(500, 500)
        assert torch.equal(qkv.attention(q, k, v), first)


def test_a_tensor_that_cannot_be_allocated():
    wide = torch.zeros(1).expand(1, 1, 2**40, 32)
    with pytest.raises(MemoryError, match="^out"):
        qkv.attention(wide, wide[:, :, :1], wide[:, :, :1])


def gradients(function, dtype, q, k, v, dout):
    leaves = [x.to(dtype).requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(function(*leaves), leaves, dout.to(dtype))


@pytest.mark.parametrize("dtype, heads, sizes, kind", list(itertools.product(
    ["float32", "bfloat16"], [(4, 4), (4, 2)], [(33, 70), (130, 130), (300, 300)], KINDS)))
def test_gradients_equal_autograd(dtype, heads, sizes, kind):
    """No farther from float64 than twice PyTorch's own gradients, and four roundings of the largest one."""
    queries, keys = sizes
    q, k, v = tensors(dtype, 2, heads, queries, keys, seed=queries)
    dout = torch.randn(q.shape, generator=torch.Generator().manual_seed(3)).to(TYPES[dtype])
    mask = torch.rand(2, 1, queries, keys, generator=torch.Generator().manual_seed(1)) < 0.7
    mask[..., 0] = True
    bias = torch.randn(4, queries, keys, generator=torch.Generator().manual_seed(2)).to(TYPES[dtype])
    theirs, ours = {
        "plain": ({}, {}),
        "causal": ({"is_causal": True}, {"causal": "top_left"}),
        "mask": ({"attn_mask": mask}, {"mask": mask}),
        "bias": ({"attn_mask": bias}, {"bias": bias}),
        "scale": ({"scale": 0.3}, {"scale": 0.3}),
    }[kind]

    def peer(q, k, v):
        given = {name: x.to(q.dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
                 for name, x in theirs.items()}
        return scaled_dot_product_attention(q, k, v, enable_gqa=heads[0] != heads[1], **given)

    exact = gradients(peer, torch.float64, q, k, v, dout)
    their_gradients = gradients(peer, TYPES[dtype], q, k, v, dout)
    out, lse, _ = qkv.attention(q, k, v, return_lse=True, **ours)
    our_gradients = qkv.attention_backward(dout, q, k, v, out, lse, **ours)
    for ours_x, theirs_x, x in zip(our_gradients[:3], their_gradients, exact):
        error, peer_error = (float((y.double() - x).abs().max()) for y in (ours_x, theirs_x))
        assert error <= 2 * peer_error + 4 * EPS[dtype] * float(x.abs().max())


def test_gradients_of_a_bias_and_of_lse():
    q, k, v = tensors(heads=(4, 4))
    bias = torch.randn(4, 1, 70, generator=torch.Generator().manual_seed(2))
    dout, dlse = torch.randn(2, 4, 33, 32), torch.randn(2, 4, 33)
    leaves = [x.double().requires_grad_() for x in (q, k, v, bias)]
    scores = leaves[0] @ leaves[1].mT / 32**0.5 + leaves[3]
    out = scores.softmax(-1) @ leaves[2]
    expected = torch.autograd.grad([out, scores.logsumexp(-1)], leaves, [dout.double(), dlse.double()])
    ours, lse, _ = qkv.attention(q, k, v, bias=bias, return_lse=True)
    got = qkv.attention_backward(dout, q, k, v, ours, lse, bias=bias, dlse=dlse)
    for x, y in zip(got[:4], expected):
        torch.testing.assert_close(x.double(), y, rtol=0, atol=1e-5 * float(y.abs().max()))
