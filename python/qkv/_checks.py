"""Plain numbers and flags, checked: errors name the argument, and nothing is converted that a reader may not mean."""

from __future__ import annotations

import numbers
import operator
import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np

_INT64 = -(2**63), 2**63 - 1


def shown(value: Any) -> str:
    """The value on one short line."""
    return " ".join(reprlib.repr(value).split())


def wrong_type(name: str, expected: str, value: Any) -> TypeError:
    return TypeError(f"{name}: wrong type, expected {expected}, got {shown(value)}")


def _element_type(value: Any) -> str:
    """'bool', 'torch.int64', ... of a numpy or PyTorch scalar or array; '' of what is neither."""
    return str(getattr(value, "dtype", ""))


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise wrong_type(name, "True or False", value)
    return bool(value)


def integer(name: str, value: Any, low: int = _INT64[0], high: int = _INT64[1]) -> int:
    """An int from an int or a numpy or PyTorch integer; True is not one, nor is 2.0."""
    if isinstance(value, bool) or _element_type(value).endswith("bool") or getattr(value, "ndim", 0) != 0:
        raise wrong_type(name, "an integer", value)
    try:
        result = operator.index(value)
    except TypeError:
        raise wrong_type(name, "an integer", value) from None
    if not low <= result <= high:
        raise ValueError(f"{name}: out of range, expected {low} to {high}, got {result}")
    return result


def optional_integer(name: str, value: Any) -> int | None:
    return None if value is None else integer(name, value)


def integers(name: str, values: Any) -> list[int] | None:
    """A list of ints from a sequence, or from an array or tensor of one axis."""
    if values is None:
        return None
    if hasattr(values, "tolist"):
        if getattr(values, "ndim", 1) != 1 or _element_type(values).endswith("bool"):
            raise wrong_type(name, "integers on one axis", values)
        values = values.tolist()
    elif not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
        raise wrong_type(name, "a sequence of integers", values)
    return [integer(f"{name}[{index}]", value) for index, value in enumerate(values)]


def one_or_more_integers(name: str, values: Any) -> list[int] | None:
    """The same, or one integer."""
    if values is None or isinstance(values, Sequence) or getattr(values, "ndim", 0) != 0:
        return integers(name, values)
    return [integer(name, values)]


def number(name: str, value: Any) -> float:
    """A float from a real number of Python, numpy or PyTorch; neither True nor '0.5' is one."""
    if type(value) is float:
        return value
    is_scalar = getattr(value, "ndim", 0) == 0 and any(kind in _element_type(value) for kind in ("float", "int"))
    if isinstance(value, bool) or not (is_scalar or isinstance(value, numbers.Real)):
        raise wrong_type(name, "a number", value)
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}: out of range, expected a number that a float holds, got {shown(value)}") from None
