"""Calls inside a living process: Ctrl-C, other threads, memory."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import qkv
from reference import qkv_of, random


def run(code, *arguments, **given):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code), *arguments], capture_output=True, text=True,
                          timeout=120, **given)


LONG = {
    "operator": "qkv.attention(x, x, x)",
    "capture": "qkv.attention(x, x, x, capture=qkv.Capture(top_k=4, received=True))",
    "cache": "cache.attend(x)",
    "float64": "qkv.attention(*[x[:, :, :9000].astype(np.float64)] * 3)",
    "float64 capture": "qkv.attention(*[x[:, :1, :9000].astype(np.float64)] * 3, capture=qkv.Capture(received=True))",
}


@pytest.mark.parametrize("name", LONG)
def test_ctrl_c_ends_a_long_call(name):
    """The call ends soon after the signal, though it would take many seconds."""
    result = run("""
        import os, signal, sys, threading, time
        import numpy as np, qkv
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's children ignore it
        x = np.random.default_rng(0).standard_normal((1, 8, 60000, 64)).astype(np.float32)
        cache = qkv.KVCache(1, 8, 64, 64, "float32", 60000)
        cache.append(x, x)
        sent = []
        def interrupt():
            time.sleep(0.5)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            CALL
        except KeyboardInterrupt:
            print(time.monotonic() - sent[0])
        small = x[:, :, :9]
        assert np.isfinite(qkv.attention(small, small, small)).all()   # and the library goes on
        assert np.isfinite(cache.attend(x[:, :, :1], window=(3, 0))).all()
    """.replace("CALL", LONG[name]))
    assert result.returncode == 0, result.stderr
    assert 0 < float(result.stdout) < 5  # of many: 0.2 s on an idle machine, but tests measure no speed


def test_a_signal_handlers_exception_comes_out():
    result = run("""
        import os, signal, threading
        import numpy as np, qkv
        class Stop(Exception): pass
        def handler(*_): raise Stop("told to")
        signal.signal(signal.SIGTERM, handler)
        x = np.ones((1, 8, 60000, 64), np.float32)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
        try:
            qkv.attention(x, x, x)
        except Stop as error:
            print(error)
    """)
    assert result.stdout == "told to\n", result.stderr


def test_other_threads_run_meanwhile():
    x = random(0, (1, 4, 4000, 64))
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    qkv.attention(x, x, x)
    end = time.monotonic()
    done.set()
    thread.join()
    during = sum(start < t < end for t in ticks)
    assert during >= 3, f"{during} ticks in {end - start:.3f} s"


def test_threads_on_the_same_inputs():
    q, k, v = qkv_of(queries=100, keys=200, d=32, dv=32)
    asked = qkv.Capture(top_k=3)
    expected = qkv.attention(q, k, v, causal="bottom_right", capture=asked, return_lse=True)
    failures = []

    def work():
        for _ in range(20):
            got = qkv.attention(q, k, v, causal="bottom_right", capture=asked, return_lse=True)
            if not (np.array_equal(got.out, expected.out) and np.array_equal(got.lse, expected.lse)
                    and np.array_equal(got.capture.top_keys, expected.capture.top_keys)):
                failures.append(got)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def every_kind_of_call():
    q, k, v = qkv_of(queries=64, keys=128, d=16, dv=16)
    cache = qkv.KVCache(2, 2, 16, 16, "int8", 256, page=16)
    qkv.attention(q, k, v, capture=qkv.Capture(top_k=8, rows=[1], entropy=True, received=True), return_lse=True)
    qkv.attention(q, k, v, mask=np.ones(128, bool), bias=random(1, (128,)), q_lengths=[5, 64])
    cache.append(k, v)
    cache.attend(q)
    cache.fork(0, 1)
    with pytest.raises(ValueError):
        qkv.attention(q, k, v, sink=np.ones(3, np.float32))
    with pytest.raises(TypeError):
        qkv.attention(q, k, v.astype(np.float64))


def test_memory_does_not_grow():
    threads = qkv.get_num_threads()
    qkv.set_num_threads(1)  # so that a busy machine makes it no slower
    try:
        for _ in range(100):
            every_kind_of_call()
        before = resident()
        for _ in range(1000):
            every_kind_of_call()
        assert resident() - before < 4 << 20  # a leak of one capture a call would be 30 MB
    finally:
        qkv.set_num_threads(threads)


def test_without_a_threading_module_or_a_terminal():
    """An import and a call in a bare process, standard input and output closed."""
    result = run("""
        import os, sys
        os.close(0), os.close(1)
        import numpy as np, qkv
        x = np.ones((1, 1, 2, 4), np.float32)
        sys.exit(0 if np.allclose(qkv.attention(x, x, x), 1) else 1)
    """)
    assert result.returncode == 0, result.stderr


def test_threads_by_environment():
    result = run("import qkv; print(qkv.get_num_threads())", env={**os.environ, "QKV_NUM_THREADS": "3"})
    assert result.stdout == "3\n", result.stderr


def test_a_forked_child_can_call():
    result = run("""
        import os, numpy as np, qkv
        x = np.random.default_rng(0).standard_normal((2, 8, 600, 64)).astype(np.float32)
        expected = qkv.attention(x, x, x)
        child = os.fork()
        if child == 0:
            os._exit(0 if np.array_equal(qkv.attention(x, x, x), expected) else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert result.stdout == "0\n", result.stderr
