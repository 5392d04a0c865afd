"""Makes a BERT model directory of a few kilobytes: pseudo-random parameters, always the same."""

import array
import json
import os
import random
import struct

WORDS = ("the chicken did cross road because it was too tired wide key ##s to cabinet are on table "
         "##ing walk play un ##believ ##able 12 a b c").split()
SIGNS = list("'.,!?-+[]{}=$<>/")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + WORDS + SIGNS


def config(layers=3, heads=2, width=16, positions=48):
    return {
        "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu",
        "hidden_size": width, "intermediate_size": 2 * width, "num_attention_heads": heads,
        "num_hidden_layers": layers, "max_position_embeddings": positions, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "pad_token_id": 0, "vocab_size": len(VOCABULARY),
    }


def shapes(settings):
    """Names and shapes of the tensors, as transformers' BertModel saves them."""
    width, inner = settings["hidden_size"], settings["intermediate_size"]
    result = {}

    def norm(name):
        result[name + ".weight"] = [width]
        result[name + ".bias"] = [width]

    def linear(name, rows, columns):
        result[name + ".weight"] = [rows, columns]
        result[name + ".bias"] = [rows]

    result["embeddings.word_embeddings.weight"] = [settings["vocab_size"], width]
    result["embeddings.position_embeddings.weight"] = [settings["max_position_embeddings"], width]
    result["embeddings.token_type_embeddings.weight"] = [settings["type_vocab_size"], width]
    norm("embeddings.LayerNorm")
    for layer in range(settings["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            linear(prefix + "attention.self." + part, width, width)
        linear(prefix + "attention.output.dense", width, width)
        norm(prefix + "attention.output.LayerNorm")
        linear(prefix + "intermediate.dense", inner, width)
        linear(prefix + "output.dense", width, inner)
        norm(prefix + "output.LayerNorm")
    linear("pooler.dense", width, width)
    return result


def tensors(settings):
    """Name -> (shape, float32 values as bytes)."""
    source = random.Random(7)
    result = {}
    for name, shape in shapes(settings).items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        middle = 1.0 if name.endswith("LayerNorm.weight") else 0.0
        values = array.array("f", (middle + source.uniform(-0.5, 0.5) for _ in range(count)))
        result[name] = (shape, values.tobytes())
    return result


def safetensors(contents):
    header, offset, body = {}, 0, []
    for name, (shape, data) in contents.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        body.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(body)


def write(folder, settings=None, contents=None):
    """Writes the directory and returns its path."""
    settings = settings or config()
    os.makedirs(folder)

    def put(name, data):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)

    put("config.json", json.dumps(settings).encode())
    put("vocab.txt", "".join(piece + "\n" for piece in VOCABULARY).encode())
    put("tokenizer_config.json", json.dumps(
        {"do_lower_case": True, "tokenizer_class": "BertTokenizer", "unk_token": "[UNK]", "sep_token": "[SEP]",
         "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}).encode())
    put("model.safetensors", safetensors(contents or tensors(settings)))
    return str(folder)
