"""Describing numpy arrays and PyTorch tensors to the extension, without copies."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from ._checks import shown, wrong_type

Description = tuple[int, str, tuple[int, ...], tuple[int, ...]]  #: address, type's name, shape, strides in elements

# The types that the library's views know; which of them an argument may have, the library says.
_KNOWN = frozenset({"float64", "float32", "bfloat16", "float16", "int64", "int32", "int8", "uint8", "bool"})
_EXPECTED = {"mask": "bool", "bias": "float32 or q's type", "alibi_slopes": "float32", "sink": "float32", "lse": "float32",
             "dlse": "float32"}


def is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def dtype_name(name: str, dtype: Any) -> str:
    """'float32' for numpy.float32, torch.float32, numpy.dtype('float32') and 'float32'."""
    if isinstance(dtype, str):
        return dtype
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    try:
        if dtype is not None:  # which numpy takes for float64
            return str(np.dtype(dtype).name)
    except TypeError:
        pass
    raise wrong_type(name, "the name of a type, or a type of numpy or PyTorch", dtype)


def _check_known(name: str, dtype: str) -> None:
    if dtype not in _KNOWN:
        expected = _EXPECTED.get(name, "float32, bfloat16, float16 or float64")
        raise TypeError(f"{name}: wrong type, expected {expected}, got {dtype}")


@functools.cache  # numpy and PyTorch make the name anew each time, which is half the work on a small array
def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else str(dtype.name)


def _describe_tensor(name: str, tensor: Any, writable: bool) -> Description:
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu":
        raise ValueError(f"{name}: wrong device, expected cpu, got {tensor.device}")
    if tensor.is_nested or tensor.layout != torch.strided:
        layout = "nested" if tensor.is_nested else tensor.layout
        raise ValueError(f"{name}: wrong layout, expected a strided tensor, got {layout}")
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(f"{name}: a lazy conjugate or negative, expected plain memory: resolve_neg() makes it so")
    if writable and tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name}: requires grad, expected a tensor that may be written in place")
    dtype = _name(tensor.dtype)
    _check_known(name, dtype)
    return tensor.data_ptr(), dtype, tensor.shape, tensor.stride()


def describe(name: str, array: Any, *, writable: bool = False) -> Description:
    """What the extension needs to know; TypeError or ValueError names the argument."""
    if is_torch(array):
        return _describe_tensor(name, array, writable)
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name}: wrong type, expected a numpy array or a PyTorch tensor, got {type(array).__name__}")
    dtype = _name(array.dtype)
    _check_known(name, dtype)
    if not array.dtype.isnative:
        raise TypeError(f"{name}: wrong byte order, expected the machine's own, got {array.dtype}")
    if writable and not array.flags.writeable:
        raise ValueError(f"{name}: read-only, expected an array that may be written")
    size = array.itemsize
    if not array.flags.c_contiguous and any(step % size for step, count in zip(array.strides, array.shape) if count > 1):
        raise ValueError(f"{name}: strides are not whole elements, got {array.strides} bytes of {size} each")
    address = array.__array_interface__["data"][0]
    if address % size:
        raise ValueError(f"{name}: not aligned, expected an address that is a multiple of {size}")
    return address, dtype, array.shape, tuple([step // size for step in array.strides])


def like(array: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
    """An uninitialised array of the same kind (and type, unless given)."""
    if not is_torch(array):
        return np.empty(shape, dtype=dtype or array.dtype)
    torch = sys.modules["torch"]
    try:
        return torch.empty(shape, dtype=getattr(torch, dtype) if dtype else array.dtype, device="cpu")
    except RuntimeError as error:  # PyTorch's way to say that there is no memory
        raise MemoryError(f"out: cannot be allocated, got shape {shown(shape)}") from error
