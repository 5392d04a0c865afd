"""Describing numpy arrays and PyTorch tensors to the extension, without copies."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def dtype_name(dtype: Any) -> str:
    """'float32' for numpy.float32, torch.float32, numpy.dtype('float32') and 'float32'."""
    if isinstance(dtype, str):
        return dtype
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    return np.dtype(dtype).name


def describe(name: str, array: Any, *, writable: bool = False) -> tuple:
    """(address, type's name, shape, strides in elements); TypeError or ValueError names the argument."""
    if is_torch(array):
        if array.device.type != "cpu":
            raise ValueError(f"{name}: wrong device, expected cpu, got {array.device}")
        if array.is_sparse or array.layout != sys.modules["torch"].strided:
            raise ValueError(f"{name}: wrong layout, expected strided, got {array.layout}")
        if array.is_conj() or array.is_neg():
            array = array.resolve_conj().resolve_neg()
        return array.data_ptr(), dtype_name(array.dtype), list(array.shape), list(array.stride())
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{name}: wrong type, expected a numpy array or a PyTorch tensor, got {type(array).__name__}")
    if writable and not array.flags.writeable:
        raise ValueError(f"{name}: read-only, expected an array that can be written")
    if not array.dtype.isnative:
        raise TypeError(f"{name}: wrong byte order, expected the machine's own, got {array.dtype}")
    size = array.itemsize
    if any(step % size for step, count in zip(array.strides, array.shape) if count > 1):
        raise ValueError(f"{name}: strides are not whole elements, got {array.strides} bytes of {size} each")
    if array.ctypes.data % size:
        raise ValueError(f"{name}: not aligned, expected an address that is a multiple of {size}")
    return array.ctypes.data, array.dtype.name, list(array.shape), [step // size for step in array.strides]


def like(array: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
    """An uninitialised array of the same kind (and type, unless given)."""
    if is_torch(array):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype) if dtype else array.dtype)
    return np.empty(shape, dtype=dtype or array.dtype)


def integers(name: str, values: Any) -> list[int] | None:
    """A list of Python integers from a sequence, array or tensor; one number is a list of one."""
    if values is None:
        return None
    if hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, (list, tuple, range)):
        values = [values]
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        raise TypeError(f"{name}: wrong type, expected integers, got {values!r}")
    return list(values)
