"""Makes all.gguf of tests/formats with the reference writer: python make_gguf.py (gguf, numpy)."""

import pathlib

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter

here = pathlib.Path(__file__).parent

# Every kind of metadata, and one tensor of each type with counted bytes: what the tests know.
writer = GGUFWriter(here / "all.gguf", "llama")
for kind, value in [("UINT8", 200), ("INT8", -100), ("UINT16", 60000), ("INT16", -30000), ("UINT32", 4000000000),
                    ("INT32", -2000000000), ("UINT64", 2**63 + 1), ("INT64", -(2**62)), ("FLOAT32", 0.5),
                    ("FLOAT64", 1e300), ("BOOL", True), ("STRING", "two\nlines, é中")]:
    writer.add_key_value(f"test.{kind.lower()}", value, getattr(GGUFValueType, kind))
writer.add_array("test.strings", ["", "one", "中"])
writer.add_array("test.ints", [1, -2, 3])
writer.add_array("test.floats", [0.5, -1.5])
writer.add_array("test.bools", [True, False])
writer.add_array("test.many", list(range(5000)))

for kind in ["F32", "F16", "F64"]:
    writer.add_tensor(kind, np.array([[-1.5, 0.5, 2], [96, 0, 1]], getattr(np, f"float{kind[1:]}")))
for kind in ["I8", "I16", "I32", "I64"]:
    writer.add_tensor(kind, np.array([-1, 1, 100], getattr(np, f"int{kind[1:]}")))
writer.add_tensor("BF16", np.array([0x80, 0x3f, 0xc0, 0xbf], np.uint8), raw_dtype=GGMLQuantizationType.BF16)  # 1, -1.5
for kind, row_bytes in [("Q8_0", 34), ("Q4_0", 18), ("Q4_1", 20), ("Q5_0", 22), ("Q5_1", 24), ("Q4_K", 144),
                        ("Q5_K", 176), ("Q6_K", 210)]:
    blocks = np.arange(2 * row_bytes, dtype=np.uint8).reshape(2, row_bytes)
    writer.add_tensor(kind, blocks, raw_dtype=getattr(GGMLQuantizationType, kind))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
