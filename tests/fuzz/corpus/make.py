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


def make_index():
    files = {
        "two": json.dumps({"metadata": {"total_size": 8}, "weight_map": {"a.weight": "model-1.safetensors",
                                                                         "b.weight": "model-2.safetensors"}}),
        "empty": '{"weight_map":{}}',
        "escaped": '{"weight_map":{"\\u00e9":"\\u6a21.safetensors"}}',
        "up": '{"weight_map":{"a":"../m.safetensors"}}',
        "root": '{"weight_map":{"a":"\\u002fetc/passwd"}}',
        "nul": '{"weight_map":{"a":"m\\u0000"}}',
        "no_map": '{"metadata":{}}',
        "number": '{"weight_map":{"a":1}}',
        "twice": '{"weight_map":{"a":"m","a":"n"}}',
    }
    for name, data in files.items():
        write("index", name, data)


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def key(name, kind, value):
    return string(name) + struct.pack("<I", kind) + value


def array(kind, count, elements):
    return struct.pack("<IQ", kind, count) + elements


def tensor_info(name, sizes, kind, offset):
    return string(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


def gguf(keys, tensors, data=b"", version=3, alignment=32):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    return head + (-len(head) % alignment * b"\0" + data if data else b"")


def make_gguf():
    numbers = [key(f"k{kind}", kind, b"\1" * size) for kind, size in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4),
                                                               (7, 1), (10, 8), (11, 8), (12, 8)]]
    inner = array(8, 2, string("a") + string(""))
    align = key("general.alignment", 4, struct.pack("<I", 8))
    files = {
        "nothing": gguf([], []),
        "version2": gguf([key("k", 8, string("text"))], [tensor_info("t", [2], 0, 0)], b"12345678", version=2),
        "strings": gguf([key("general.name", 8, string("n\u00e9\n")), key("s", 9, inner)], []),
        "numbers": gguf(numbers, []),
        "arrays": gguf([key("b", 9, array(7, 2, b"\0\1")), key("i", 9, array(5, 1, b"1234")),
                        key("f", 9, array(12, 1, b"12345678"))], []),
        "nested": gguf([key("k", 9, array(9, 2, inner + array(9, 1, array(0, 3, b"123"))))], []),
        "aligned": gguf([align], [tensor_info("a", [1], 0, 8), tensor_info("b", [], 28, 0)], b"12345678abcd",
                        alignment=8),
        "quantised": gguf([align], [tensor_info("q", [32, 2], 3, 0), tensor_info("k", [256], 14, 40)], b"x" * 250,
                          alignment=8),
        "halves": gguf([], [tensor_info("h", [2, 1, 1, 1], 1, 0), tensor_info("b", [1], 30, 32)], b"x" * 34),
        "overlap": gguf([], [tensor_info("a", [9], 0, 0), tensor_info("b", [1], 0, 32)], b"x" * 64),
        "duplicate": gguf([key("k", 0, b"1"), key("k", 0, b"1")], []),
        "huge_array": gguf([key("k", 9, array(8, 2**63, string("a")))], []),
        "huge_shape": gguf([], [tensor_info("t", [2**42 + 1, 2**42 + 1], 0, 0)], b"1234"),
        "unsupported": gguf([], [tensor_info("t", [256], 23, 0)], b"x" * 136),
        "big_endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    }
    for name, data in files.items():
        write("gguf", name, data)


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


def make_tokenizer_of_pairs():
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    pieces = ["a", "b", "c", "\u0120", "\u00c3", "\u00a9", "1", ".", "ab", "\u0120a", "abc"]
    bytes_ = {"type": "BPE", "vocab": {p: i for i, p in enumerate(pieces)},
              "merges": [["a", "b"], ["\u0120", "a"], ["ab", "c"]]}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    least = {"pre_tokenizer": level, "decoder": {"type": "ByteLevel"}, "model": bytes_}
    pattern = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    split = lambda **more: {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False, **more}
    sequence = lambda *steps: {"type": "Sequence", "pretokenizers": list(steps)}
    mark = "\u2581"
    characters = ["<unk>", "<s>", *[f"<0x{b:02X}>" for b in (0xC3, 0xA9, 0x0A)], mark, "a", "b", mark + "a", "ab"]
    model = {"type": "BPE", "vocab": {p: i for i, p in enumerate(characters)}, "merges": [mark + " a", "a b"],
             "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    normalizer = {"type": "Sequence", "normalizers": [
        {"type": "NFC"}, {"type": "Prepend", "prepend": mark},
        {"type": "Replace", "pattern": {"String": " "}, "content": mark}]}
    decoder = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": mark}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    metaspace = {"type": "Metaspace", "replacement": mark, "prepend_scheme": "first", "split": True}
    template = {"type": "Sequence", "processors": [level, {"type": "TemplateProcessing", "special_tokens": {
        "<s>": {"ids": [1]}}, "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}]}
    pretty = lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    text = "\0abc  ab's 1234 \u00e9e\u0301\n\n .<s> a\U0001F999\u2581b"
    files = {
        "pairs": pretty(least) + text,
        "pairs_prefix": pretty({**least, "pre_tokenizer": {**level, "add_prefix_space": True}}) + text,
        "pairs_digits": pretty({**least, "pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, level)}) + text,
        "pairs_split": pretty({**least, "pre_tokenizer": sequence(split(), {**level, "use_regex": False}),
                               "normalizer": {"type": "NFC"}, "model": {**bytes_, "ignore_merges": True},
                               "added_tokens": [{"id": 11, "content": "<s>", **flags, "lstrip": True}]}) + text,
        "pairs_regex": pretty({**least, "pre_tokenizer": sequence(
            split(pattern={"Regex": "(a|b)+"}, behavior="Removed", invert=True), level)}) + text,
        "pairs_unknown": pretty({**least, "model": {**bytes_, "unk_token": ".", "fuse_unk": True}}) + text,
        "marks": pretty({"normalizer": normalizer, "decoder": decoder, "model": model, "post_processor": template,
                         "added_tokens": [{"id": 1, "content": "<s>", **flags}]}) + text,
        "marks_metaspace": pretty({"pre_tokenizer": metaspace, "decoder": metaspace, "model": model}) + text,
    }
    for name, data in files.items():
        write("tokenizer", name, data)


def make_causal_config():
    llama = {"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 3,
             "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536, "rms_norm_eps": 1e-5,
             "max_position_embeddings": 8192, "hidden_act": "silu", "tie_word_embeddings": True, "eos_token_id": [2, 0]}
    gpt2 = {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 2, "n_head": 12, "n_positions": 1024,
            "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_by_inverse_layer_idx": True}
    llama3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8192}
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "beta_fast": 32, "beta_slow": 1,
            "mscale": 0.7, "mscale_all_dim": 0.7, "truncate": False}
    files = {
        "llama": llama,
        "llama3": {**llama, "rope_parameters": llama3, "attention_bias": True, "mlp_bias": True, "head_dim": 64},
        "linear": {**llama, "rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 1e4},
        "dynamic": {**llama, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
        "yarn": {**llama, "model_type": "mistral", "rope_scaling": yarn, "sliding_window": 4096},
        "qwen2": {**llama, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 16,
                  "max_window_layers": 1},
        "qwen3": {**llama, "model_type": "qwen3", "sliding_window": 16,
                  "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        "gpt2": gpt2,
        "gpt2_more": {**gpt2, "n_inner": 100, "tie_word_embeddings": False, "add_cross_attention": False},
        "huge": {**llama, "vocab_size": 2**31, "num_hidden_layers": 4096, "hidden_size": 2**31 + 1},
        "nothing": {},
    }
    for name, data in files.items():
        write("causal_config", name, json.dumps(data))


def make_gguf_model():
    u32 = lambda name, value: key(name, 4, struct.pack("<I", value))
    f32 = lambda name, value: key(name, 6, struct.pack("<f", value))
    text = lambda name, value: key(name, 8, string(value))
    strings = lambda name, values: key(name, 9, array(8, len(values), b"".join(map(string, values))))
    ints = lambda name, values: key(name, 9, array(5, len(values), struct.pack(f"<{len(values)}i", *values)))
    floats = lambda name, values: key(name, 9, array(6, len(values), struct.pack(f"<{len(values)}f", *values)))
    sizes = lambda kind: [text("general.architecture", kind), u32(kind + ".embedding_length", 4),
                          u32(kind + ".block_count", 1), u32(kind + ".attention.head_count", 2),
                          u32(kind + ".feed_forward_length", 8), u32(kind + ".context_length", 16)]
    llama = [*sizes("llama"), u32("llama.attention.head_count_kv", 1),
             f32("llama.attention.layer_norm_rms_epsilon", 1e-5)]
    words = ["a", "b", "\u0120", "\u0120a", "ab", "<s>", "1", "2", "\u00c3", "\u00a9"]
    pairs = [text("tokenizer.ggml.model", "gpt2"), text("tokenizer.ggml.pre", "smollm"),
             strings("tokenizer.ggml.tokens", words), ints("tokenizer.ggml.token_type", [1] * 5 + [3] + [1] * 4),
             strings("tokenizer.ggml.merges", ["\u0120 a", "a b"]), u32("tokenizer.ggml.bos_token_id", 5),
             key("tokenizer.ggml.add_bos_token", 7, b"\1")]
    mark = "\u2581"
    pieces = ["<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", mark, "a", "b", mark + "a", "ab"]
    marks = [text("tokenizer.ggml.model", "llama"), strings("tokenizer.ggml.tokens", pieces),
             ints("tokenizer.ggml.token_type", [2, 3, 3, 6, 6, 1, 1, 1, 1, 1]),
             floats("tokenizer.ggml.scores", [0, 0, 0, 0, 0, -1, -2, -3, -4, -5]),
             u32("tokenizer.ggml.bos_token_id", 1), u32("tokenizer.ggml.eos_token_id", 2),
             u32("tokenizer.ggml.unknown_token_id", 0), key("tokenizer.ggml.add_space_prefix", 7, b"\0")]
    table = [tensor_info("token_embd.weight", [4, 10], 0, 0)]
    data = b"1234" * 40
    yarn = [text("llama.rope.scaling.type", "yarn"), f32("llama.rope.scaling.factor", 4.0),
            u32("llama.rope.dimension_count", 2), u32("llama.attention.sliding_window", 3)]
    files = {
        "llama_pairs": gguf([*llama, *pairs], table, data),
        "llama_marks": gguf([*llama, *marks], table, data),
        "yarn": gguf([*llama, *yarn, *marks[:2]], table, data),
        "factors": gguf([*llama, *pairs[:3]], [*table, tensor_info("rope_freqs.weight", [1], 0, 160)], data + b"\0\0\x80?"),
        "qwen3": gguf([*sizes("qwen3"), f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6), *pairs], table, data),
        "gpt2": gguf([*sizes("gpt2"), f32("gpt2.attention.layer_norm_epsilon", 1e-5), *pairs[2:]], table, data),
        "experts": gguf([*llama, u32("llama.expert_count", 8)], table, data),
        "split": gguf([*llama, key("split.count", 2, struct.pack("<H", 3))], table, data),
        "no_vocabulary": gguf(llama, [], b""),
        "digits": gguf([text("tokenizer.ggml.pre", "llama-bpe"), *pairs[:1], *pairs[2:5]], [], b""),
    }
    for name, data in files.items():
        write("gguf_model", name, data)


make_safetensors()
make_index()
make_gguf()
make_gguf_model()
make_config()
make_causal_config()
make_tokenizer_of_pairs()
make_tokenizer()
