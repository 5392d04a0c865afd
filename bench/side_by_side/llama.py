"""llama.cpp, built from its package for this machine, in a virtual environment of its own."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = ROOT / "build/bench-llama"
REQUIREMENTS = pathlib.Path(__file__).with_name("llama-requirements.txt")

# What the processor has, as Linux names it, and the option that uses it. Not GGML_NATIVE: that takes AMX too, whose
# code in this version ends with an illegal instruction on virtual machines.
OPTIONS = {
    "sse4_2": "GGML_SSE42", "avx": "GGML_AVX", "avx2": "GGML_AVX2", "bmi2": "GGML_BMI2", "fma": "GGML_FMA",
    "f16c": "GGML_F16C", "avx_vnni": "GGML_AVX_VNNI", "avx512bw": "GGML_AVX512", "avx512vbmi": "GGML_AVX512_VBMI",
    "avx512_vnni": "GGML_AVX512_VNNI", "avx512_bf16": "GGML_AVX512_BF16",
}


def processor_flags():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":")[1].split())
    return set()


def cmake_arguments():
    flags = processor_flags()
    chosen = [f"-D{option}={'ON' if flag in flags else 'OFF'}" for flag, option in OPTIONS.items()]
    return ["-DGGML_NATIVE=OFF", "-DLLAVA_BUILD=OFF", "-DCMAKE_C_FLAGS=-mtune=native",
            "-DCMAKE_CXX_FLAGS=-mtune=native", *chosen]


def install():
    """The interpreter that has the package; it is built once for each version, which takes minutes."""
    python, stamp = PEER / "bin/python", PEER / REQUIREMENTS.name
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", PEER], check=True)
    if not stamp.exists() or stamp.read_text() != REQUIREMENTS.read_text():
        print("building llama.cpp for this machine: a few minutes", file=sys.stderr)
        built = {"CMAKE_ARGS": " ".join(cmake_arguments()), "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count())}
        subprocess.run([python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-cache-dir",
                        "--no-binary", "llama-cpp-python", "--requirement", REQUIREMENTS],
                       check=True, env={**os.environ, **built})
        stamp.write_text(REQUIREMENTS.read_text())
    return python
