"""Arrays of the same kind as another, and the names of their types."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ._checks import shown, wrong_type


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


def like(array: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
    """An uninitialised array of the same kind (and type, unless given) as one that has been described."""
    if isinstance(array, np.ndarray):
        return np.empty(shape, dtype or array.dtype)
    try:
        return array.new_empty(shape, dtype=getattr(sys.modules["torch"], dtype)) if dtype else array.new_empty(shape)
    except RuntimeError as error:  # PyTorch's way to say that there is no memory
        raise MemoryError(f"out: cannot be allocated, got shape {shown(shape)}") from error
