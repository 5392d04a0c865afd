"""The layers' includes point one way, and what belongs to one layer stays in it (docs/design.md, "Layers").

usage: architecture_test.py PROJECT COMPILER
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# What each layer may include, itself aside.
MAY_USE = {
    "runtime": [],
    "kernels": ["runtime"],
    "attention": ["runtime", "kernels"],
    "layers": ["runtime", "kernels", "attention"],
    "formats": ["runtime"],
    "text": ["runtime"],
    "view": ["runtime"],
    "models": ["runtime", "kernels", "attention", "layers", "formats", "text"],
    "train": ["runtime", "kernels", "attention", "layers", "formats", "text", "models"],
    "bench": ["runtime", "kernels", "attention", "layers", "models"],
    "cli": ["runtime", "kernels", "attention", "layers", "formats", "text", "view", "models", "train", "bench"],
}

# The layer that defines what a public header declares. A capture is a plain struct that attention and models fill
# and view draws, so it counts as the runtime's vocabulary, like tensors and errors.
OWNER = {
    "error": "runtime", "export": "runtime", "progress": "runtime", "tensor": "runtime", "capture": "runtime",
    "attention": "attention", "attention_backward": "attention", "kv_cache": "attention", "rope": "attention", "layers": "layers", "tokenizer": "text",
    "view": "view", "model": "models", "generate": "models", "encode": "models",
    "explanation": "runtime", "explain": "models",
    "qkv": "cli",  # the header of headers: for users, not for the library
}

# Libraries that one part of the project alone knows, by the start of the header's name.
LIBRARY_USERS = {
    "omp.h": ["runtime"],
    "nlohmann/": ["runtime", "formats", "text", "view", "models", "train", "cli"],
    "hwy/": ["kernels"],
    "oneapi/": ["layers"],
    "dnnl": ["layers"],
    "unicode/": ["text", "view", "cli"],
    "pango/": ["view"],
    "cairo": ["view"],
    "CLI/": ["cli"],
}

# The library never prints and never exits, and is compiled for any machine of its family.
FORBIDDEN_IN_LIBRARY = re.compile(
    r"std::(cout|cerr|clog)\b|\b(f?printf|puts|putchar|fmt::print)\s*\(|\b(exit|_exit|abort|quick_exit)\s*\(")
PRAGMA_OMP = re.compile(r"^\s*#\s*pragma\s+omp\b|\bomp_\w+\s*\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT = re.compile(r"//.*")


def layer_of(path):
    """The layer that a file of the project belongs to, by its path relative to the root."""
    parts = path.parts
    if parts[0] == "src":
        return parts[1]
    if parts[:2] == ("include", "qkv"):
        return OWNER.get(path.stem)
    return parts[0]


def target_layer(name):
    """The layer of an included header of the project; None for any other."""
    folder, _, file = name.partition("/")
    if folder == "qkv":
        return OWNER.get(Path(file).stem, "?")
    return folder if folder in MAY_USE else None


def library_violation(layer, name):
    for prefix, users in LIBRARY_USERS.items():
        if name.startswith(prefix) and layer not in users:
            return f"<{name}> belongs to {', '.join(users)}"
    return None


def include_violation(path, layer, quote, name):
    if "../" in name or name.startswith("./"):
        return f"relative include of {name}"
    if path.parts[0] == "include" and quote == '"' and not name.startswith("qkv/"):
        return f"a public header includes {name}"
    if path.parts[0] == "include" and quote == "<" and "/" in name:
        return f"a public header needs <{name}>"
    used = target_layer(name)
    if used == "?":
        return f"{name} has no layer in this test's table"
    if used is not None and used != layer and used not in MAY_USE[layer]:
        return f"{layer} may not include {name} of {used}"
    return library_violation(layer, name)


def line_violation(path, layer, line):
    if match := INCLUDE.match(line):
        return include_violation(path, layer, *match.groups())
    code = COMMENT.sub("", line)
    if layer != "runtime" and PRAGMA_OMP.search(code):
        return "OpenMP outside src/runtime"
    if path.parts[0] == "src" and FORBIDDEN_IN_LIBRARY.search(code):
        return "the library prints or exits"
    return None


def violations(root):
    files = [path for folder in ("include", "src", "cli") for suffix in ("*.h", "*.cc", "*.in")
             for path in sorted((root / folder).rglob(suffix))]
    found = []
    for absolute in files:
        path = absolute.relative_to(root)
        layer = layer_of(path)
        if layer not in MAY_USE:
            found.append(f"{path}: has no layer in this test's table")
            continue
        text = absolute.read_text(encoding="utf-8")
        if ".h" in path.suffixes and "#pragma once" not in text and not path.name.endswith("-inl.h"):
            found.append(f"{path}: no #pragma once")
        for number, line in enumerate(text.splitlines(), 1):
            if problem := line_violation(path, layer, line):
                found.append(f"{path}:{number}: {problem}")
    return found


class Project(unittest.TestCase):
    def test_includes_point_one_way(self):
        self.assertEqual(violations(ROOT), [])

    def test_every_layer_is_there(self):
        folders = {path.name for path in (ROOT / "src").iterdir() if path.is_dir()}
        self.assertEqual(folders, set(MAY_USE) - {"cli"})

    def test_every_public_header_compiles_alone(self):
        def compile_alone(header):
            return subprocess.run([COMPILER, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", "c++",
                                   "-I", str(ROOT / "include"), "-include", str(header), os.devnull],
                                  capture_output=True, text=True)

        headers = sorted((ROOT / "include" / "qkv").glob("*.h"))
        self.assertTrue(headers)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for header, run in zip(headers, pool.map(compile_alone, headers)):
                self.assertEqual(run.returncode, 0, f"{header.name}: {run.stderr}")

    def test_no_machine_is_built_in(self):
        for path in [ROOT / "CMakeLists.txt", *ROOT.glob("cmake/*.cmake"), *ROOT.glob("src/**/CMakeLists.txt")]:
            self.assertNotRegex(path.read_text(), r"-m(arch|tune|avx|fma)", path)


class Checker(unittest.TestCase):
    """The checks above find what they look for."""

    def problems(self, path, text):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / path
            file.parent.mkdir(parents=True)
            file.write_text(text)
            return violations(Path(folder))

    def test_violations_are_found(self):
        for path, text in [
            ("src/kernels/a.cc", '#include "attention/plan.h"'),
            ("src/view/a.cc", '#include "qkv/model.h"'),
            ("src/text/a.cc", '#include "formats/safetensors.h"'),
            ("src/layers/a.cc", '#include "qkv/qkv.h"'),
            ("src/layers/a.cc", '#include "qkv/surprise.h"'),
            ("src/layers/a.cc", '#include "../runtime/cpu.h"'),
            ("src/attention/a.cc", "#include <oneapi/dnnl/dnnl.hpp>"),
            ("src/attention/a.cc", "#include <omp.h>"),
            ("src/attention/a.cc", "  #pragma omp parallel for"),
            ("src/models/a.cc", 'std::printf("loaded");'),
            ("src/models/a.cc", "std::exit(1);"),
            ("src/extra/a.cc", ""),
            ("src/runtime/a.h", "struct A {};"),
            ("include/qkv/tensor.h", '#pragma once\n#include "runtime/cpu.h"'),
            ("include/qkv/tensor.h", '#pragma once\n#include "qkv/model.h"'),
            ("include/qkv/model.h", "#pragma once\n#include <nlohmann/json.hpp>"),
        ]:
            self.assertEqual(len(self.problems(path, text)), 1, f"{path}: {text}")

    def test_allowed_passes(self):
        for path, text in [
            ("src/models/bert.cc", '#include "layers/linear.h"\n#include "qkv/model.h"\n#include <vector>'),
            ("src/view/page.cc", '#include "qkv/capture.h"\n#include "view/width.h"\n#include <cairo.h>'),
            ("src/runtime/threads.cc", "#include <omp.h>\n#pragma omp parallel"),
            ("src/formats/a.cc", "// exit(1) would be wrong here; snprintf(buffer, size, format) is not\n"),
            ("cli/main.cc", '#include "qkv/qkv.h"\n#include <CLI/CLI.hpp>\nint main() { std::exit(0); }'),
        ]:
            self.assertEqual(self.problems(path, text), [], path)


if __name__ == "__main__":
    ROOT, COMPILER = Path(sys.argv[1]).resolve(), sys.argv[2]
    unittest.main(argv=sys.argv[:1])
