"""Writes cases.json and cases.bin: ONNX's own test cases of its operators Attention and RotaryEmbedding.

cases.json lists each case: node attributes, opset, tolerances, and for every input and output that the node has
its name, type, shape and place in cases.bin (an offset in bytes; raw, row-major, little-endian). Cases that ONNX
makes by expanding the operator into others hold the same numbers and are left out. The same bytes each time.

    python make.py        # needs onnx 1.23.2
"""
import json
import pathlib
import warnings

import numpy
import onnx
from onnx.backend.test.case.node import collect_testcases

VERSION = "1.23.2"
COUNTS = {"Attention": 93, "RotaryEmbedding": 8}


def pack(names, arrays, blob):
    """Describes the named arrays and appends them to `blob`. A node's empty name is an argument left out."""
    described = {}
    present = [name for name in names if name]
    assert len(present) == len(arrays), (names, len(arrays))
    for name, array in zip(present, arrays):
        array = numpy.ascontiguousarray(array)
        described[name] = {"type": array.dtype.name, "shape": list(array.shape), "at": len(blob)}
        blob.extend(array.tobytes())
        blob.extend(bytes(-len(blob) % 8))
    return described


def describe(case, blob):
    (node,) = case.model.graph.node
    ((inputs, outputs),) = case.data_sets
    return {
        "name": case.name.removeprefix("test_"),
        "operator": node.op_type,
        "opset": case.model.opset_import[0].version,
        "attributes": {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
        "rtol": case.rtol,
        "atol": case.atol,
        "inputs": pack(node.input, inputs, blob),
        "outputs": pack(node.output, outputs, blob),
    }


def main():
    assert onnx.__version__ == VERSION, f"needs onnx {VERSION}, not {onnx.__version__}"
    warnings.simplefilter("ignore")  # other operators' cases warn as they are made
    blob = bytearray()
    cases = [describe(case, blob) for case in sorted(collect_testcases(None), key=lambda case: case.name)
             if "_expanded" not in case.name and case.model.graph.node[0].op_type in COUNTS]
    found = {operator: sum(case["operator"] == operator for case in cases) for operator in COUNTS}
    assert found == COUNTS, found
    folder = pathlib.Path(__file__).parent
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (folder / "cases.json").write_text(f'{{"made_with":"onnx {VERSION}","cases":[\n{lines}\n]}}\n')
    (folder / "cases.bin").write_bytes(blob)


if __name__ == "__main__":
    main()
