"""Which contestants a case has. The cases themselves are those of `qkv bench --list`.

To add cases of a new kind: a row in src/bench/case.cc, and here a function from (case, setting) to contestants.
"""
import json
import os
import pathlib
import subprocess
from dataclasses import dataclass

from . import environment
from .race import Unsupported


@dataclass
class Setting:
    machine: dict
    threads: int


def qkv_bench(*arguments):
    program = environment.BUILD / "qkv"
    return json.loads(subprocess.run([program, "bench", *arguments, "--json"], check=True, stdout=subprocess.PIPE).stdout)


def measure_peaks(threads):
    """The machine, and its peaks with one thread and with all: the best of three looks, as others may disturb one."""
    looks = [qkv_bench("--peaks", "--threads", str(threads)) for _ in range(3)]
    peaks = [{name: max(look["peaks"][which][name] for look in looks) for name in looks[0]["peaks"][which]}
             for which in range(len(looks[0]["peaks"]))]
    return looks[0]["machine"], peaks


def all_cases():
    return qkv_bench("--list")


def models_folder():
    data = os.environ.get("XDG_DATA_HOME") or pathlib.Path.home() / ".local/share"
    return pathlib.Path(os.environ.get("QKV_MODELS") or pathlib.Path(data) / "qkv/models")


def attention(case, setting):
    from . import onnx_runtime, openvino_peer, ours, pytorch
    from .data import Inputs
    inputs = Inputs(case, setting.machine)
    case["copies"] = len(inputs.kv)
    return [ours.attention(case, inputs), pytorch.attention(case, inputs),
            onnx_runtime.attention(case, inputs, setting.threads), openvino_peer.attention(case, inputs, setting.threads)]


def grid(case, setting):
    from . import ours, pytorch
    from .data import Inputs
    inputs = Inputs(case, setting.machine)
    return [ours.attention(case, inputs), pytorch.three_steps(case, inputs)]


def capture(case, setting):
    from . import ours, pytorch
    from .data import Inputs
    inputs = Inputs(case, setting.machine)
    return [ours.capture(case, inputs), pytorch.capture(case, inputs)]


def backward(case, _setting):
    from . import ours, pytorch
    return [ours.worker(case), pytorch.backward(case)]


def layer(case, _setting):
    from . import ours, pytorch
    return [ours.worker(case), pytorch.layer(case)]


def model(case, setting):
    from . import openvino_peer, ours, pytorch
    folder = models_folder() / case["model"]
    if not folder.exists():
        raise Unsupported(f"{case['model']} is not installed")
    return [ours.worker(case), pytorch.model(case, folder), openvino_peer.model(case, folder, setting.threads)]


KINDS = {"attention": attention, "grid": grid, "capture": capture, "backward": backward, "layer": layer, "model": model}


def contestants(case, setting):
    """All that can be set up, ours first, and notes on those that cannot. A way may come as a function that sets it up."""
    kind = "grid" if case["name"].startswith("grid-") else case["kind"]
    found, notes = [], []
    for group in KINDS[kind](case, setting):
        try:
            for way in group:
                found.append(way() if callable(way) else way)
        except Exception as error:  # whatever a peer raises for what it cannot do
            if not found:
                raise  # ours
            notes.append(str(error).splitlines()[0][:150])
    return found, notes
