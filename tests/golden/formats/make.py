"""Makes the golden files of tests/formats with the reference writer: python make.py (safetensors, torch)."""

import json
import pathlib

import torch
from safetensors.torch import save_file

here = pathlib.Path(__file__).parent

# One tensor of each type, the same values as far as the type holds them; the tests know them.
values = [0, 1, 2, 100]
signed = [-1, 1, 2, 100]
real = [-1.5, 0.5, 2.0, 96.0]
types = {
    "f64": (torch.float64, real), "f32": (torch.float32, real), "f16": (torch.float16, real),
    "bf16": (torch.bfloat16, real), "f8_e4m3": (torch.float8_e4m3fn, real), "f8_e5m2": (torch.float8_e5m2, real),
    "i64": (torch.int64, signed), "i32": (torch.int32, signed), "i16": (torch.int16, signed),
    "i8": (torch.int8, signed), "u64": (torch.uint64, values), "u32": (torch.uint32, values),
    "u16": (torch.uint16, values), "u8": (torch.uint8, values), "bool": (torch.bool, [False, True, True, False]),
}
save_file({name: torch.tensor(v, dtype=t).reshape(2, 2) for name, (t, v) in types.items()},
          here / "types.safetensors", metadata={"format": "pt", "note": "every type"})

save_file({"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3), "rank5": torch.arange(4.0).reshape(1, 2, 1, 2, 1),
           "名前 é": torch.ones(1)}, here / "shapes.safetensors")

save_file({}, here / "nothing.safetensors")

shards = here / "sharded"
shards.mkdir(exist_ok=True)
parts = [{"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.tensor([0.5, -0.5])},
         {"b.weight": torch.arange(4.0).to(torch.bfloat16).reshape(2, 2)}]
names = [f"model-0000{i + 1}-of-00002.safetensors" for i in range(2)]
for name, part in zip(names, parts):
    save_file(part, shards / name, metadata={"format": "pt"})
weight_map = {tensor: name for name, part in zip(names, parts) for tensor in part}
size = sum(t.nbytes for part in parts for t in part.values())
index = {"metadata": {"total_size": size}, "weight_map": weight_map}
(shards / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
