"""How many threads the calls use."""

import os

from . import _core
from ._checks import integer


def get_num_threads() -> int:
    """Threads of a call: what set_num_threads said, else QKV_NUM_THREADS, else OMP_NUM_THREADS, else the processors
    that this process may use; 1 in a forked child."""
    return _core.get_num_threads()


def set_num_threads(count: int) -> None:
    """Results do not depend on it: the bits are the same for any number of threads."""
    _core.set_num_threads(integer("count", count, 1, 2**31 - 1))


# A forked child has none of its parent's threads, and GNU's OpenMP would wait for them for ever.
os.register_at_fork(after_in_child=lambda: _core.set_num_threads(1))
