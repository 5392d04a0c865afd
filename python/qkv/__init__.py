"""Exact self-attention for CPUs, on numpy arrays and PyTorch tensors."""

from ._attention import AttentionResult, Capture, Captured, alibi_slopes, attention
from ._backward import AttentionGradients, attention_backward
from ._cache import KVCache
from ._threads import get_num_threads, set_num_threads

__version__ = "0.1.0"
__all__ = [
    "AttentionGradients", "AttentionResult", "Capture", "Captured", "KVCache", "alibi_slopes", "attention",
    "attention_backward", "get_num_threads", "set_num_threads",
]
