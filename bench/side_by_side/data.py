"""Inputs: the numbers that src/bench/workload.h draws, so that programs in two languages compute the same."""
import ml_dtypes
import numpy as np

TYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def values(stream, shape, dtype="float32"):
    """Numbers of mean 0 and variance 1 that look random; number i is ValueAt(stream, i)."""
    bits = np.arange(np.prod(shape), dtype=np.uint32)
    bits *= np.uint32(0x9e3779b1)
    bits += np.uint32(stream * 0x85ebca77 & 0xffffffff)
    bits ^= bits >> np.uint32(16)
    bits *= np.uint32(0x85ebca6b)
    bits ^= bits >> np.uint32(13)
    bits *= np.uint32(0xc2b2ae35)
    bits ^= bits >> np.uint32(16)
    bits >>= np.uint32(8)
    numbers = bits.astype(np.float32)
    numbers *= np.float32(2**-24)
    numbers -= np.float32(0.5)
    numbers *= np.float32(3.4641016)
    return numbers.reshape(shape).astype(TYPES[dtype], copy=False)


def token_ids(batch, length):
    """As ModelWorkload has them, for a vocabulary of 21,000 or more."""
    return (1000 + np.arange(batch * length, dtype=np.int64) * 7919 % 20000).reshape(batch, length)


class Inputs:
    """q, and copies of k and v that take turns, so that none is in a cache when its turn comes."""

    def __init__(self, case, machine):
        b, d, dtype = case["batch"], case["d"], case["dtype"]
        self.q = values(0, (b, case["q_heads"], case["queries"], d), dtype)
        k = values(1, (b, case["kv_heads"], case["keys"], d), dtype)
        v = values(2, (b, case["kv_heads"], case["keys"], d), dtype)
        count = 1
        if case["limit"] == "memory":
            memory = min(machine["beyond_caches"], machine["free_memory"] // 4)
            count = max(2, -(-int(memory) // int(case["bytes"])))
        self.kv = [(k, v)] + [(k.copy(), v.copy()) for _ in range(count - 1)]
        self.case = case

    def rotate(self, call):
        """call(i) with i = 0, 1, ... in turn."""
        turn = 0

        def next_call():
            nonlocal turn
            turn = (turn + 1) % len(self.kv)
            return call(turn)
        return next_call
