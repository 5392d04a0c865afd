"""Our side: the operator through the Python package, layers and models through the worker."""
import subprocess
import tempfile

import numpy as np
import qkv

from . import environment
from .race import Contestant


class Result:
    """Holds what a call returned, until it is asked for."""

    def __init__(self):
        self.value = None

    def __call__(self):
        return np.asarray(self.value, np.float32)


def mask(case):
    return "bottom_right" if case["causal"] else "none"


def attention(case, inputs):
    out = np.empty_like(inputs.q)

    def call(turn):
        k, v = inputs.kv[turn]
        qkv.attention(inputs.q, k, v, causal=mask(case), out=out)
    yield Contestant("qkv", "attention", inputs.rotate(call), lambda: out.astype(np.float32), "ours")


def capture(case, inputs):
    """Out, the strongest weights, entropy and received mass; and the plain forward, to hold it against."""
    k, v = inputs.kv[0]
    request = qkv.Capture(top_k=16, entropy=True, received=True)
    kept = []

    def look():
        kept[:] = [qkv.attention(inputs.q, k, v, causal=mask(case), capture=request)]

    def result():
        got = kept[0].capture
        return np.concatenate([np.ravel(part) for part in (kept[0].out, got.top_weights, got.entropy, got.received)])
    yield Contestant("qkv", "capture", look, result, "ours")
    plain = Result()

    def forward():
        plain.value = qkv.attention(inputs.q, k, v, causal=mask(case))
    yield Contestant("qkv's plain forward", "attention", forward, plain, "context")


class Worker(Contestant):
    """A case in a process of its own (bench/worker.cc)."""

    def __init__(self, case):
        super().__init__("qkv", case["kind"], lambda: None, self.read_result, "ours")
        self.process = subprocess.Popen([environment.BUILD / "bench/bench_worker"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        case["operations"] = float(self.ask("prepare", case["name"]))

    def ask(self, request, argument):
        print(request, argument, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("the worker ended early")
        return answer

    def time(self, calls):
        return [float(ms) for ms in self.ask("time", calls).split()]

    def read_result(self):
        with tempfile.NamedTemporaryFile() as file:
            self.ask("result", file.name)
            return np.fromfile(file.name, np.float32)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def worker(case):
    yield Worker(case)
