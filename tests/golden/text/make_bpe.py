#!/usr/bin/env python3
"""Makes the golden files of byte-pair encoding from the reference, `tokenizers` (PyPI).

usage: make_bpe.py

classes.json holds the classes of characters in regular expressions, trained.json a vocabulary that the reference's
trainer learned. Each file of bpe/ holds a tokenizer of one family, with a small vocabulary trained here on the golden texts, what the
reference makes of some hand-picked texts, and for each of the 2,000 texts of bpe_texts.json a checksum of its ids.
Made with tokenizers 0.23.3.
"""
import collections
import json
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from make import ALPHABET, HARD, TEXTBOOK, ranges, write

GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
          r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CODE = [
    "def f(x):\n    return [i ** 2 for i in range(10) if i % 2]\n\n\nclass A:\n\tpass\n",
    "int main(void) {\r\n\tprintf(\"%d\\n\", 1'000);\r\n}\r\n", "SELECT * FROM t WHERE a<>'b' -- x\n;",
    "x = {'a': 1, 'd': 2}; y = x['s'];  # it's, I'LL, we'Ve, 'tis, 'ſ, didn't\u2019t",
    "3333 12 1,234,567.89 1e-10 \u0661\u0662\u0663\u0664 \u00b2\u00bd\u2167 0x1F 7\u0967\u0968 1 22 333 4444 55555",
    "a  b   c    d\n e\n  f\n\n  g\t\th \t i\r\n\r\n j \n", "   \n\n   \n", "\n", "\n\n\n", " \n x", "\u3000\u3000x\u00a0\u00a0 y",
    "....!!!??? --- === +++ <<<>>> @#$%^&*()_+{}|:\"<>?~`",
    "<s>[INST] Hi [/INST]</s>", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "a<|endoftext|>b <|endoftext|> c",
    "text <|im_end|> b", "<|endoftext|", "<|endoftext|><|endoftext|>", "<tool_call>x</tool_call>", "<0x0A> <0xZZ> \u2581x \u2581 \u2581\u2581",
    "\u0120x \u010a", "e\u0301 \u00e9 \u1e9b\u0323 \u212b \u1100\u1161\u11a8 \uac01 a\u0323\u0307 a\u0307\u0323 \u0958",
    "\U0001F468\u200d\U0001F469\u200d\U0001F467 \U0001F1EB\U0001F1F7 \u2764\ufe0f 1\ufe0f\u20e3", "\U0001F999" * 7,
    "y\u00fd " * 30, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
]
MARK = "\u2581"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<tool_call>"]


def texts():
    rng = random.Random(20190214)
    alphabet = ALPHABET + SPECIAL + ["  ", "\n\n", "'s", "'LL", "12", "345", "\u2581", "\U0001F999", "    ", " the", " un", "it"]
    made = []
    for _ in range(1600):
        made.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 24))))
    for _ in range(200):  # any code points at all
        made.append("".join(chr(rng.choice([rng.randrange(0, 0x3000), rng.randrange(0x20, 0xD800),
                                            rng.randrange(0x10000, 0x11FFF), rng.randrange(0x1D000, 0x1F000)]))
                            for _ in range(rng.randint(1, 8))))
    pieces = [p for t in CODE + HARD for p in (t[i:i + 12] for i in range(0, len(t), 12))]
    while len(made) < 2000:
        made.append("".join(rng.choice(pieces) for _ in range(rng.randint(1, 4))))
    return made


def checksum(ids):
    """FNV-1a over the ids as 32-bit little-endian numbers."""
    h = 0xcbf29ce484222325
    for i in ids:
        for byte in i.to_bytes(4, "little"):
            h = (h ^ byte) * 0x100000001b3 % 2**64
    return f"{h:016x}"


def trained(normalizer, pre_tokenizer, size, alphabet=None):
    """Vocabulary and merges of a BPE model trained on the golden texts."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    corpus = (TEXTBOOK + HARD + CODE) * 3 + texts()[:1600:4]
    if not alphabet:  # the most frequent characters; of equal ones the lower, where the trainer would take any
        counts = collections.Counter("".join(corpus).replace(" ", MARK))
        alphabet = sorted(counts, key=lambda c: (-counts[c], c))[:250]
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=list(alphabet), limit_alphabet=len(alphabet), show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


def byte_level(pre, size=700, special=SPECIAL[:3], normalizer=None, added=(), post=None, regex=True, prefix=False, **model):
    pre = pre_tokenizers.Sequence([*pre, pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)]) if pre \
        else pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)
    vocab, merges = trained(normalizer, pre, size, pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab, merges, **model))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    tokenizer.add_tokens(list(added))
    if post:
        tokenizer.post_processor = post(tokenizer)
    return tokenizer


def start_token(token):
    return lambda t: processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{token} $A", special_tokens=[(token, t.token_to_id(token))])])


def sentence_piece_like(pre_tokenizer=None, prepend=True, size=500, fallback=True, fuse=True, decoder="sequence", legacy_merges=False):
    """As SentencePiece models are converted: a merge for every way to put a piece together, the lower piece first."""
    spaces = [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    vocab, _ = trained(normalizers.Sequence(spaces), pre_tokenizers.Metaspace(), size)
    vocab = {p: i for p, i in vocab.items() if not p.startswith("<")}
    control = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] * fallback
    characters = sorted((p for p in vocab if len(p) == 1), key=vocab.get)
    pieces = sorted((p for p in vocab if len(p) > 1), key=vocab.get)
    pieces += [MARK * n for n in (2, 3, 4) if MARK * n not in pieces]
    vocab = {p: i for i, p in enumerate(control + pieces + characters)}
    merges = [(p[:k], p[k:]) for p in pieces for k in range(1, len(p)) if p[:k] in vocab and p[k:] in vocab]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=fallback, fuse_unk=fuse))
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    else:
        tokenizer.normalizer = normalizers.Sequence(spaces if prepend else spaces[1:])
    if decoder == "sequence":
        steps = [decoders.Replace(MARK, " "), *[decoders.ByteFallback()] * fallback, decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * prepend)
    else:
        tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def with_text_merges(tokenizer):
    """The same with merges written as in older files."""
    data = json.loads(tokenizer.to_str())
    data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
    return Tokenizer.from_str(json.dumps(data)), data


ADDED = [
    AddedToken("<tool_call>", normalized=False, special=False),
    AddedToken("<|left|>", lstrip=True, normalized=False, special=True),
    AddedToken("<|right|>", rstrip=True, normalized=False, special=True),
    AddedToken("word", single_word=True, normalized=False, special=False),
    AddedToken("\u00c9t\u00e9", normalized=True, special=False),
    AddedToken(" \u0120 ", normalized=False, special=False),
]
ADDED_TEXTS = ["a <|left|> b", "a  <|right|>  b", "word words word. aword \u00e9word", "\u00c9t\u00e9 E\u0301te\u0301 \u00e9t\u00e9",
               "x \u0120 y", "<tool_call>\n{}</tool_call> b", "<|right|> <|left|>", " <|left|>"]

SPLIT = lambda pattern, behavior="isolated", invert=False: pre_tokenizers.Split(Regex(pattern), behavior, invert)
FAMILIES = {
    "gpt2": lambda: byte_level([], post=lambda t: processors.ByteLevel(trim_offsets=False)),
    "gpt2_prefix": lambda: byte_level([], prefix=True),
    "smollm": lambda: byte_level([pre_tokenizers.Digits(individual_digits=True)]),
    "llama3": lambda: byte_level([SPLIT(GPT4 % "{1,3}")], regex=False, ignore_merges=True, post=start_token("<|endoftext|>")),
    "qwen2": lambda: byte_level([SPLIT(GPT4 % "")], regex=False, normalizer=normalizers.NFC(), added=ADDED),
    "tekken": lambda: byte_level([SPLIT(TEKKEN)], regex=False, ignore_merges=True),
    "inverted": lambda: byte_level([SPLIT(GPT4 % "{1,3}", "removed", True), pre_tokenizers.Digits(False)], regex=False),
    "rest": lambda: byte_level([SPLIT(r"\s+|[a-c]", "removed")]),
    "roberta": lambda: byte_level([], prefix=True, special=["<s>", "</s>"],
                                  post=lambda t: processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))),
    "llama2": lambda: sentence_piece_like(),
    "llama2_no_prefix": lambda: sentence_piece_like(prepend=False),
    "mistral": lambda: sentence_piece_like(pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
    "metaspace": lambda: sentence_piece_like(pre_tokenizers.Metaspace(), decoder=decoders.Metaspace()),
    "unknown": lambda: sentence_piece_like(fallback=False, size=200),
    "unknown_each": lambda: sentence_piece_like(fallback=False, fuse=False, size=200, prepend=False),
}


# Letters of Unicode 16: patterns without a splitter of their own go to ICU, which may not know them yet.
YOUNG = {"tekken": "\u1c89\ua7dc"}


def checksums(name, tokenizer, made):
    return " ".join("-" * 16 if set(text) & set(YOUNG.get(name, "")) else checksum(tokenizer.encode(text).ids) for text in made)


def case(tokenizer, text):
    encoding = tokenizer.encode(text)
    return {"text": text, "ids": encoding.ids, "tokens": [tokenizer.id_to_token(i) for i in encoding.ids], "decoded": tokenizer.decode(encoding.ids)}


def make_classes():
    def alone(split):
        return ranges(lambda c: len(split.pre_tokenize_str("\x01" + c + "\x01")) == 3)

    write("classes.json", {"letters": alone(SPLIT(r"\p{L}")), "numbers": alone(SPLIT(r"\p{N}")),
                           "whitespace": alone(SPLIT(r"\s")), "digits": alone(pre_tokenizers.Digits(True))})


def make_trained():
    text = "\n".join(TEXTBOOK + HARD + CODE)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=700, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(tokenizer.to_str())["model"]
    write("trained.json", {"text": text, "tokens": sorted(model["vocab"], key=model["vocab"].get), "merges": model["merges"]})


def main():
    make_classes()
    make_trained()
    made = texts()
    write("bpe_texts.json", made)
    for name, make in FAMILIES.items():
        tokenizer = make()
        data = json.loads(tokenizer.to_str())
        if name == "gpt2":
            tokenizer, data = with_text_merges(tokenizer)
        write(f"bpe/{name}.json", {
            "tokenizer": data,
            "cases": [case(tokenizer, text) for text in TEXTBOOK[:4] + HARD + CODE + ADDED_TEXTS],
            "checksums": checksums(name, tokenizer, made),
        })


if __name__ == "__main__":
    main()
