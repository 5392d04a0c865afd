"""Where the contestants live: a virtual environment with the peers and our package, and our programs."""
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/compare"
PEERS = ROOT / "build/bench-peers"
REQUIREMENTS = [
    ("tests/python/requirements.txt", []),
    ("tests/python/peers/requirements.txt", ["--no-deps"]),  # PyTorch without its GPU libraries
    ("bench/side_by_side/requirements.txt", []),
]
SOURCES = ["CMakeLists.txt", "cmake", "include", "pyproject.toml", "python", "src"]
INSIDE = "QKV_BENCH_INSIDE"  # set for the process that runs with the peers' interpreter


def build_programs():
    """`qkv` and the worker, in a build folder of their own."""
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DQKV_BUILD_BENCHMARKS=ON", "-DQKV_BUILD_TESTS=OFF"]
    if shutil.which("ccache"):
        options.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", *options], check=True, stdout=sys.stderr)
    subprocess.run(["cmake", "--build", BUILD, "--target", "qkv_cli", "bench_worker"], check=True, stdout=sys.stderr)


def newest(names):
    files = [file for name in names for file in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))]
    return max(file.stat().st_mtime for file in files)


def install_peers():
    """Pinned packages once for each state of their lists, our package whenever a source is newer than it."""
    python = PEERS / "bin/python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", PEERS], check=True)
    for name, options in REQUIREMENTS:
        stamp = PEERS / name.replace("/", "-")
        if not stamp.exists() or stamp.read_text() != (ROOT / name).read_text():
            print(f"installing {name}", file=sys.stderr)
            subprocess.run([*pip, *options, "--requirement", ROOT / name], check=True)
            shutil.copy(ROOT / name, stamp)
    installed = PEERS / "qkv-installed"
    if not installed.exists() or installed.stat().st_mtime < newest(SOURCES):
        print("building the Python package", file=sys.stderr)
        subprocess.run([*pip, "--no-build-isolation", "--no-deps", "--force-reinstall", ROOT], check=True)
        installed.touch()
    return python


def enter(threads):
    """Starts the script again with the peers' interpreter, and exits with its status; returns where that has been done.

    Each side is told the threads by its own means; the environment must not tell them otherwise.
    """
    if os.environ.get(INSIDE):
        return
    build_programs()
    python = install_peers()
    drop = {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_WAIT_POLICY", "QKV_ISA", "PYTHONPATH"}
    environment = {name: value for name, value in os.environ.items() if name not in drop}
    count = str(threads)
    environment.update({INSIDE: "1", "OMP_NUM_THREADS": count, "QKV_NUM_THREADS": count, "HF_HUB_OFFLINE": "1"})
    sys.exit(subprocess.run([python, "-B", *sys.argv], env=environment).returncode)
