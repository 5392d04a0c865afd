"""Makes quantised.bin: blocks of random bytes of every type and what the reference implementation dequantises them
to: python make_quantised.py (gguf, numpy).

For each type, in the order of QuantisedType: the blocks of 512 elements, then 512 float32.
"""

import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# Where the float16 scales of a block are, in bytes.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}

random = np.random.default_rng(7)
with open(pathlib.Path(__file__).parent / "quantised.bin", "wb") as file:
    for name, places in SCALES.items():
        kind = GGMLQuantizationType[name]
        elements, size = GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (512 // elements, size), np.uint8)
        for place in places:
            # Both signs, subnormal to large.
            scales = random.normal(size=len(blocks)) * 10.0 ** random.integers(-7, 3, len(blocks))
            blocks[:, place:place + 2] = scales.astype(np.float16)[:, None].view(np.uint8)
        values = dequantize(blocks.reshape(1, -1), kind)
        assert values.size == 512 and values.dtype == np.float32
        file.write(blocks.tobytes() + values.tobytes())
