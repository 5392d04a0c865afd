"""Makes the seed inputs of the fuzz targets: python3 make.py"""

import json
import pathlib
import struct

here = pathlib.Path(__file__).parent


def write(target, name, data):
    folder = here / target
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
    return struct.pack("<Q", len(text.encode()) if length is None else length) + text.encode() + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def make_safetensors():
    one = {"t": tensor("F32", [2], 0, 8)}
    files = {
        "floats": safetensors(one, struct.pack("<2f", 1.5, -2)),
        "halves": safetensors({"h": tensor("F16", [2, 1], 0, 4), "b": tensor("BF16", [2], 4, 8)}, bytes(range(8))),
        "metadata": safetensors({"__metadata__": {"format": "pt"}, "d": tensor("F64", [], 0, 8)}, b"\x3f" * 8),
        "integers": safetensors({"i": tensor("I64", [1], 0, 8), "u": tensor("U8", [1, 1, 1, 1, 1], 8, 9)}, b"x" * 9),
        "misaligned": safetensors({"a": tensor("BOOL", [1], 0, 1), "f": tensor("F32", [1], 1, 5)}, b"\1\0\0\x80\x3f"),
        "zero_size": safetensors({"z": tensor("F32", [0, 9], 0, 0), "f8": tensor("F8_E4M3", [2], 0, 2)}, b"ab"),
        "nothing": safetensors({}),
        "padded": safetensors('{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   ', b"x"),
        "utf8_name": safetensors({"名\u0000\n": tensor("I8", [1], 0, 1)}, b"x"),
        "huge_length": safetensors("{}", length=2**64 - 1),
        "huge_shape": safetensors({"t": tensor("F32", [2**32, 2**32], 0, 4)}, b"1234"),
        "overlap": safetensors({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}, b"123"),
        "hole": safetensors({"a": tensor("U8", [1], 0, 1), "b": tensor("U8", [1], 2, 3)}, b"123"),
        "duplicate": safetensors('{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"t":{}}'),
        "gguf": b"GGUF\3\0\0\0\0\0\0\0\0\0\0\0",
        "zip": b"PK\3\4\0\0\x08\x08\0\0\0\0",
    }
    for name, data in files.items():
        write("safetensors", name, data)


def make_config():
    bert = {"model_type": "bert", "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6,
            "num_attention_heads": 12, "intermediate_size": 1536, "max_position_embeddings": 512,
            "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
            "position_embedding_type": "absolute", "is_decoder": False}
    files = {
        "bert": json.dumps(bert),
        "bert_defaults": json.dumps({k: v for k, v in bert.items() if isinstance(v, int) or k == "model_type"}),
        "decoder": json.dumps({**bert, "is_decoder": True}),
        "nulls": json.dumps({**bert, "hidden_act": None, "layer_norm_eps": None}),
        "huge_sizes": json.dumps({**bert, "vocab_size": 2**64 - 1, "hidden_size": -(2**63)}),
        "values": '{"a":[null,true,false,-0,1.5e-300,18446744073709551616,"\\u00e9\\ud83d\\ude00\\n"],"":{}}',
        "duplicate": '{"a":1,"\\u0061":2}',
        "nested": "[" * 64 + "]" * 64,
        "too_deep": "[" * 65 + "]" * 65,
        "bom": b"\xef\xbb\xbf{}",
        "lone_surrogate": '{"a":"\\ud800"}',
        "not_utf8": b'{"a":"\xff\xc0\x80"}',
        "nul": b'{"a":1}\0{"b":2}',
        "trailing": "{} x",
    }
    for name, data in files.items():
        write("config", name, data)


def make_tokenizer():
    vocab = {"[UNK]": 0, "[C]": 1, "[S]": 2, "a": 3, "##b": 4, "c": 5, ".": 6, "é": 7, "##é": 8, "中": 9}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                  "lowercase": True}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
             "max_input_chars_per_word": 9, "vocab": vocab}
    least = {"pre_tokenizer": {"type": "BertPreTokenizer"}, "model": model}
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[C]"}}, {"Sequence": {"id": "A"}}],
                "special_tokens": {"[C]": {"ids": [1, 2]}}}
    added = [{"id": 2, "content": "[S]", **flags, "special": True},
             {"id": 10, "content": "<É>", **flags, "normalized": True, "lstrip": True},
             {"id": 11, "content": "word", **flags, "single_word": True, "rstrip": True}]
    pretty = lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    text = "\0abc ABÉ e\u0301 [S]a <é>word wordy\u3000中\u00ad.\u0130"
    files = {
        "least": pretty(least) + text,
        "normalizer": pretty({**least, "normalizer": normalizer}) + text,
        "accents": pretty({**least, "normalizer": {**normalizer, "strip_accents": False, "clean_text": False}}) + text,
        "template": pretty({**least, "post_processor": template}) + text,
        "bert": pretty({**least, "post_processor": {"type": "BertProcessing", "cls": ["[C]", 1], "sep": ["[S]", 2]}}) + text,
        "added": pretty({**least, "normalizer": normalizer, "added_tokens": added}) + text,
        "decoder": pretty({**least, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}) + text,
        "no_prefix": pretty({**least, "model": {**model, "continuing_subword_prefix": ""}}) + text,
        "unigram": pretty({**least, "model": {"type": "Unigram", "vocab": []}}) + text,
        "hole": pretty({**least, "model": {**model, "vocab": {"[UNK]": 0, "a": 2}}}) + text,
        "bad_text": (pretty(least) + "\0ab").encode() + b"\xc3",
        "vocab": "[PAD]\n[UNK]\r\n[CLS]\n[SEP]\n[MASK]\na\n##b\n\0" + pretty({"do_lower_case": False, "mask_token": None}),
        "vocab_named": "u\nc\ns\na\0" + pretty({"unk_token": "u", "cls_token": "c", "pad_token": "s",
                                             "sep_token": {"content": "s", "lstrip": True}}),
    }
    for name, data in files.items():
        write("tokenizer", name, data)


make_safetensors()
make_config()
make_tokenizer()
