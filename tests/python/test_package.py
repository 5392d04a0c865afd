"""The package as it is installed: its types, its pages' examples, what the extension links to."""

import contextlib
import importlib.metadata
import inspect
import io
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import qkv

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = Path(qkv.__file__).parent

USER = '''
import numpy as np
import qkv

x = np.ones((1, 2, 3, 4), np.float32)
out = qkv.attention(x, x, x, causal=True, window=(2, None), kv_lengths=[3], offset=0)
result: qkv.AttentionResult = qkv.attention(x, x, x, capture=qkv.Capture(top_k=2, rows=[0]), return_lse=True)
assert result.capture is not None and result.capture.top_keys is not None
best: int = int(result.capture.top_keys[0, 0, 0, 0])
cache = qkv.KVCache(1, 2, 4, 4, "float32", capacity=8, page=None)
cache.append(x, x, counts=[3])
cache.attend(x, causal="bottom_right", alibi_slopes=qkv.alibi_slopes(2))
cache.fork(0, 0)
cache.trim(0, 1)
lengths: list[int] = cache.lengths
qkv.set_num_threads(qkv.get_num_threads())
'''


def mypy(*arguments, folder):
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_types_of_a_users_file(tmp_path):
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    result = mypy("user.py", folder=tmp_path)
    assert result.returncode == 0, result.stdout
    exec(USER, {})  # and it runs
    (tmp_path / "wrong.py").write_text("import qkv\nqkv.KVCache('2', 2, 4, 4, 'int8', 8)\n"
                                       "qkv.Capture(top='2')\n"
                                       "qkv.attention(1, 1, 1, scale='2')\n"
                                       "qkv.attention(1, 1, 1, scales=2.0)\n", encoding="utf-8")
    result = mypy("wrong.py", folder=tmp_path)
    assert all(f"wrong.py:{line}: error" in result.stdout for line in (2, 3, 4, 5)), result.stdout


def test_types_of_the_package(tmp_path):
    result = mypy("-p", "qkv", folder=tmp_path)
    assert result.returncode == 0, result.stdout
    assert (INSTALLED / "py.typed").exists()


def test_version():
    stated = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert qkv.__version__ == stated == importlib.metadata.version("qkv")


def test_everything_public_is_explained():
    for name in qkv.__all__:
        assert inspect.getdoc(getattr(qkv, name)), name
    text = pydoc.plain(pydoc.render_doc(qkv.attention))
    for parameter in inspect.signature(qkv.attention).parameters:
        assert re.search(rf"^    .*\b{parameter}\b.*  ", text.split("\n\n", 1)[1], re.MULTILINE), parameter
    assert max(map(len, inspect.getdoc(qkv.attention).splitlines())) <= 120


def test_signatures_show_the_options():
    """They are gathered from one list, and help() and editors still see each."""
    def options(call):
        return {name: str(one) for name, one in inspect.signature(call).parameters.items()
                if one.kind == inspect.Parameter.KEYWORD_ONLY}
    forward, backward, cached = map(options, (qkv.attention, qkv.attention_backward, qkv.KVCache.attend))
    assert "causal: 'str | bool' = 'none'" in forward.values() and "scale: 'float | None' = None" in forward.values()
    shared = set(forward) - {"return_lse", "capture", "out"}
    assert len(shared) == 16 and set(backward) == shared | {"dlse"}
    assert set(cached) == shared - {"kv_lengths", "cu_q", "cu_kv", "chunked"} | {"return_lse", "out"}
    assert all(forward[name] == backward[name] == cached.get(name, forward[name]) for name in shared)


def examples(page):
    """Blocks of Python on the page, each with the block of text that follows it."""
    return re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_examples_print_what_the_page_says(page):
    found = examples(page)
    assert found
    for code, printed in found:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, {})
        assert output.getvalue() == printed


def test_the_page_names_every_argument():
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    for call in (qkv.attention, qkv.Capture, qkv.KVCache):
        for parameter in inspect.signature(call).parameters:
            assert f"`{parameter}`" in page, parameter


def test_the_extension_needs_openmp_only():
    [extension] = INSTALLED.glob("_core*.so")
    dynamic = subprocess.run(["readelf", "-d", extension], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*?)\]", dynamic))
    assert "libgomp.so.1" in needed
    assert needed <= {"libgomp.so.1", "libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6",
                      "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
    assert str(ROOT).encode() not in extension.read_bytes()
