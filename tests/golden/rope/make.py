"""Writes rope.json: what transformers makes of the rotary settings that configs state.

Each case holds the settings, the float32 inverse frequencies and the amplitude of cos and sin ("attention factor")
of ROPE_INIT_FUNCTIONS; the unscaled kind, which models compute themselves, comes from LlamaRotaryEmbedding.
And one rotation of each pairing by the models' own apply_rotary_pos_emb: Llama's (halves), GPT-J's (neighbours).

    python make.py        # needs transformers 5.24.0 and torch
"""
import json
import pathlib

import torch
import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as turn_neighbours
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb as turn_halves

VERSION = "5.24.0"

CASES = [
    ("smollm2", 64, 2048, {"rope_type": "default", "rope_theta": 10000.0}, None),
    ("llama3_base", 128, 8192, {"rope_type": "default", "rope_theta": 500000.0}, None),
    ("linear", 128, 4096, {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}, None),
    ("dynamic_short", 64, 2048, {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}, 100),
    ("dynamic_long", 64, 2048, {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}, 5000),
    ("dynamic_partial", 80, 2048,
     {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0, "partial_rotary_factor": 0.4}, 20000),
    ("yarn", 128, 131072,
     {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 32768}, None),
    ("yarn_mscale", 64, 163840,
     {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "original_max_position_embeddings": 4096,
      "mscale": 1.0, "mscale_all_dim": 0.707, "beta_fast": 32, "beta_slow": 1}, None),
    ("yarn_exact_ramp", 64, 131072,
     {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "original_max_position_embeddings": 4096,
      "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}, None),
    ("yarn_given_amplitude", 64, 8192,
     {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 4096,
      "attention_factor": 1.25, "beta_fast": 16, "beta_slow": 2}, None),
    ("llama3", 128, 131072,
     {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}, None),
    ("llama3_small", 64, 131072,
     {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}, None),
]


def frequencies(name, head_dim, length, settings, seq_len):
    config = LlamaConfig(hidden_size=head_dim, num_attention_heads=1, num_key_value_heads=1, head_dim=head_dim,
                         max_position_embeddings=length, rope_parameters=dict(settings))
    if settings["rope_type"] == "default":
        inv_freq, amplitude = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        inv_freq, amplitude = ROPE_INIT_FUNCTIONS[settings["rope_type"]](config, "cpu", seq_len=seq_len)
    return {"name": name, "head_dim": head_dim, "length": seq_len or 0, "trained_length": length,
            "settings": settings, "frequencies": inv_freq.tolist(), "amplitude": amplitude}


def rotations(head_dim=8, length=3):
    x = (torch.arange(2 * length * head_dim, dtype=torch.float32).reshape(1, 2, length, head_dim) % 7 - 3) / 4
    angles = torch.arange(length, dtype=torch.float32)[:, None] / 100 ** (torch.arange(0, head_dim, 2) / head_dim)
    cos, sin = torch.cat([angles, angles], -1).cos()[None], torch.cat([angles, angles], -1).sin()[None]
    halves, _ = turn_halves(x, x, cos, sin)
    neighbours = turn_neighbours(x.transpose(1, 2), angles.sin()[None], angles.cos()[None]).transpose(1, 2)
    return {"shape": list(x.shape), "base": 100, "x": x.flatten().tolist(), "halves": halves.flatten().tolist(),
            "neighbours": neighbours.flatten().tolist()}


def main():
    assert transformers.__version__ == VERSION, f"needs transformers {VERSION}, not {transformers.__version__}"
    golden = {"made_with": f"transformers {VERSION}", "rotations": rotations(),
              "frequencies": [frequencies(*case) for case in CASES]}
    path = pathlib.Path(__file__).with_name("rope.json")
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
