"""The options that attention, its gradients and a cache share: the one list of their names, types and checks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypedDict, TypeVar, get_type_hints

import numpy as np

from ._checks import flag, integer, integers, number, one_or_more_integers, optional_integer, shown, wrong_type
from ._core import describe

_CAUSAL = ("none", "top_left", "bottom_right")


def _causal(name: str, value: Any) -> str | bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if not isinstance(value, str):
        raise wrong_type(name, f"one of {_CAUSAL}, True or False", value)
    if value not in _CAUSAL:
        raise ValueError(f"{name}: unknown name, expected one of {_CAUSAL}, True or False, got {value!r}")
    return value


def _window(name: str, value: Any) -> tuple[int | None, int | None]:
    if not isinstance(value, (tuple, list)):
        raise wrong_type(name, "(left, right), either of them None where open", value)
    if len(value) != 2:
        raise ValueError(f"{name}: wrong number of sides, expected (left, right), got {shown(value)}")
    left, right = value
    return optional_integer(f"{name}.left", left), optional_integer(f"{name}.right", right)


def _seed(name: str, value: Any) -> int:
    return integer(name, value, 0, 2**64 - 1)


class CacheOptions(TypedDict, total=False):
    """Each option with what checks it and makes of it what the extension takes. What they mean: qkv.attention."""

    causal: Annotated[str | bool, _causal]
    window: Annotated[tuple[int | None, int | None] | None, _window]
    scale: Annotated[float | None, number]
    softcap: Annotated[float | None, number]
    mask: Annotated[Any, describe]
    bias: Annotated[Any, describe]
    alibi_slopes: Annotated[Any, describe]
    sink: Annotated[Any, describe]
    q_lengths: Annotated[Sequence[int] | None, integers]
    offset: Annotated[int | Sequence[int] | None, one_or_more_integers]
    dropout_p: Annotated[float, number]
    seed: Annotated[int | None, _seed]


class Options(CacheOptions, total=False):
    """Those of keys that are not in a cache, too."""

    kv_lengths: Annotated[Sequence[int] | None, integers]
    cu_q: Annotated[Sequence[int] | None, integers]
    cu_kv: Annotated[Sequence[int] | None, integers]
    chunked: Annotated[bool, flag]


_DEFAULTS = {"causal": "none", "dropout_p": 0.0, "chunked": False}  #: and None, which is none, for the others
_HINTS = {kind: get_type_hints(kind, include_extras=True) for kind in (CacheOptions, Options)}
_CHECKS = {name: hint.__metadata__[0] for name, hint in _HINTS[Options].items()}

_Call = TypeVar("_Call", bound=Callable[..., Any])


def takes(kind: type[CacheOptions]) -> Callable[[_Call], _Call]:
    """Shows the options of that kind in the signature of a function that gathers them as **options."""

    def show(function: _Call) -> _Call:
        own = inspect.signature(function)
        parameters = [one for one in own.parameters.values() if one.kind != inspect.Parameter.VAR_KEYWORD]
        parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name),
                                         annotation=inspect.formatannotation(hint.__origin__))
                       for name, hint in _HINTS[kind].items()]
        function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return show


def checked(call: str, kind: type[CacheOptions], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the extension takes them: those alone that were given, since converting all of them would take longer
    than a call on a few tokens. `causal` may still be True or False."""
    given = {}
    for name, value in options.items():
        if name not in _HINTS[kind]:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
        if value is not None or name in _DEFAULTS:
            given[name] = _CHECKS[name](name, value)
    return given


def _differences(offsets: list[int]) -> list[int]:
    return [b - a for a, b in zip(offsets, offsets[1:])]


def settle_causal(given: dict[str, Any], queries: list[int], keys: list[int]) -> None:
    """Gives `causal` its name where it is True or False. queries, keys: of each sequence, where nothing shortens them."""
    causal = given.get("causal")
    if not isinstance(causal, bool):
        return
    given["causal"] = "bottom_right" if causal else "none"
    if not causal:
        return
    if "cu_q" in given and "cu_kv" in given:
        queries, keys = _differences(given["cu_q"]), _differences(given["cu_kv"])
    lengths = zip(given.get("q_lengths", queries), given.get("kv_lengths", keys))
    for sequence, (q_length, kv_length) in enumerate(lengths):
        if q_length != kv_length:
            raise ValueError(
                "causal: True is ambiguous where queries and keys differ in number, expected 'top_left' or "
                f"'bottom_right', got {q_length} queries and {kv_length} keys in sequence {sequence}"
            )
