#!/usr/bin/env python3
"""Makes the golden files of the text layer from the reference, `transformers` and `tokenizers` (PyPI).

usage: make.py MODEL    MODEL: the folder of the default model, minilm

Offsets are bytes of the UTF-8 text. Made with transformers 5.24.0 and tokenizers 0.23.3.
"""
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer

HERE = pathlib.Path(__file__).parent

SENTENCES = [
    "The chicken didn{}t cross the road because it was too tired{}",
    "The chicken didn{}t cross the road because it was too wide{}",
    "The chicken didn{}t cross the road because it",
    "The keys to the cabinet are on the table{}",
    "I walked along the pond, and noticed one of the trees along the bank{}",
]
TEXTBOOK = sorted({s.replace("{}", a, s.count("{}") - 1).replace("{}", end) if s.count("{}") == 2
                   else s.replace("didn{}t", "didn" + a + "t").replace("{}", end)
                   for s in SENTENCES for a in "'\u2019" for end in ("", ".")})

HARD = [
    "", " ", "\t\n\r\n  \u00a0\u3000", "\ufeff", "\u200b\u200d", "\u0000\ufffd", "\u0301",
    "Zürich 东京 tokyo 日本語のテキスト 한국어 café naïve 🐔➡️🛣️ 👩‍👩‍👧‍👦 🇫🇷 e\u0301a\u0308\u0323",
    "שלום עולם مرحبا بالعالم ‏RTL‎ \u202eabc\u202c",
    "<p class=\"x\">a<b && c>d</p></script><!-- <s> & \"quotes\" 'single' -->",
    "tabs\there\nlines\r\nCRLF\rCR\u00a0nbsp\u2028ls\u2029ps\u0085nel\u200bzw\ufeffbom\u00adshy\u2060wj",
    "\ufeffBOM at the start", "con\u0000trol\u0007 c\u001bhars\u007f \u0080\u009f end",
    "private \ue000\U000f0000\U0010fffd unassigned \u0378\u0530\U0001fffe non \uffff\ufdd0\U0010ffff",
    "a" * 100, "a" * 101, "é" * 100, "é" * 101, "e\u0301" * 100, "e\u0301" * 101, "中" * 101, "!" * 101,
    "x" * 99 + "中" + "x" * 101 + "." + "word" * 25,
    "[CLS] inside [SEP] text[MASK]glued [PAD][UNK] [sep] [ SEP ] [[SEP]] [unused1] [CLS", "[SEP]", "[SEP][SEP]",
    "İstanbul I\u0307 ı İ ΣΑΣ Σ ς Straße ẞ ﬁﬂﬀ ﬃ Ǆ ǅ Ⅷ Ω Å K \u1e9e \u0345 \u0390 \u1fb7",
    "\u0e01\u0e33\u0e49 \u0f77\u0f73\u0f74 \u1100\u1161\u11a8\uac01 \u0958 \u09cb \ufb1d \u0344\u0301",
    "q\u0307\u0323 q\u0323\u0307 \u1e9b\u0323 \U0001d15e\U0001d165\U0001d16d\U0001d165 \u302f\u0323a a\u0315\u0300\u05ae\u0062",
    "new marks: a\u0898b c\u08d3d \U0001e944e f\u1dfag \u1abfh \u1df6\u0323i \u08e2 \u1885\u1886 \u1734 \ua9bd \U000111c9 \u166d",
    "ASCII !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ signs; \u00a1\u00a7\u00b6\u00b7\u00bf\u2010\u2014\u2018\u2026\u3001\u3002\uff01\u2e43 $\u20ac\u00a3\u00a5 + < = > ^ ` | ~",
    "3333 1,234.56 1e-9 0x1F 12:34 2026-01-02 #hashtag @user a_b C++ C# .NET e.g. i.e. don't won't can't I'm he's they've we're",
    "unaffable embeddings tokenization supercalifragilisticexpialidocious Donaudampfschifffahrtsgesellschaft",
    "this is 🦙.cpp", "Hello world", " Hello world", "\t\t\t\t\t\ttest",
    "\uf900\ufaff\u3400\u4dbf\u4e00\u9fff\U00020000\U0002a6df\U0002a700\U0002b73f\U0002b740\U0002b81f\U0002b820\U0002ceaf\U0002f800\U0002fa1f",
    " ".join("The keys to the cabinet are on the table, and the chickens crossed roads; unbelievable!".split() * 40),
]

ALPHABET = (
    [c for c in "aeiost ETAN .,'-!$019_[]#"] + [" ", " ", "the", "ing", "un", "Road", "tired", "[SEP]", "[MASK]", "[CLS", "##"]
    + list("éÉüñçøßẞİıΣσςΩÅﬁﬀǅКяЖ") + list("中文字東京のテかな한국어각") + list("שלםابةक्षिกำ")
    + list("\u0301\u0308\u0323\u0327\u0345\u0334\u0338\u20dd\u302e\u302f\u0f71\u0f72\u0344\u0340\u0f73")
    + list("\t\n\r\u00a0\u2003\u3000\u2028\u0085\u1680\u000b\u001f")
    + list("\u0000\u0007\u001b\u007f\u0090\u00ad\u200b\u200c\u200d\u200e\u202e\u2060\ufeff\ufffd\ufffc\ufff9\u061c\u180e")
    + list("\ue000\U000f1234\u0378\uffff\ufdd0\U000e0001\U000e0100\ufe0f")
    + list("🐔🦙👩🇫\U0001d165\U0001d16d\U0001d15e\U0001f3fd")
    + list("\u2019\u2018\u201c\u2026\u3002\uff0c\u00bf\u2e43\u166d\u1734\u08e2\u08d3\u0898\u1df6\u1dfa\U000111c9\ua7dc\u1c89")
)


def random_texts():
    rng = random.Random(20170612)
    texts = []
    for i in range(4800):
        text = "".join(rng.choice(ALPHABET) for _ in range(rng.randint(1, 14)))
        texts.append(text)
    for i in range(400):  # any code points at all
        text = "".join(chr(rng.choice([rng.randrange(0x20, 0x3000), rng.randrange(0x20, 0xD800),
                                       rng.randrange(0x10000, 0x11FFF), rng.randrange(0x1D000, 0x1F000)]))
                       for _ in range(rng.randint(1, 8)))
        texts.append(text)
    return texts


def byte_offsets(text):
    at = [0]
    for c in text:
        at.append(at[-1] + len(c.encode()))
    return at


def encode(tokenizer, text):
    """tokenizer: of `tokenizers`. The ids, and [first, last] of each token, flattened."""
    encoding = tokenizer.encode(text)
    at = byte_offsets(text)
    return encoding.ids, [at[i] for pair in encoding.offsets for i in pair]


def decode(tokenizer, ids, contents):
    """tokenizer.decode(ids), but that added tokens stand as they are written in the file: this version of the
    reference gives those with `normalized` in their normalised form, and then fails to see that one is special."""
    added = tokenizer.get_added_tokens_decoder()
    tokens = [contents[i] for i in ids if i not in added or not added[i].special]
    decoded = tokenizer.decoder.decode(tokens) if tokenizer.decoder else " ".join(tokens)
    if not any(token.normalized for token in added.values()):
        assert decoded == tokenizer.decode(ids), (decoded, tokenizer.decode(ids))
    return decoded


def write(name, value):
    path = HERE / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8", newline="\n")


def case(tokenizer, text):
    ids, spans = encode(tokenizer, text)
    contents = {i: piece for piece, i in tokenizer.get_vocab().items()}
    return {"text": text, "ids": ids, "tokens": [contents[i] for i in ids], "spans": spans,
            "decoded": decode(tokenizer, ids, contents)}


def without_limits(tokenizer):
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def make_minilm(folder):
    reference = AutoTokenizer.from_pretrained(folder)
    tokenizer = without_limits(reference.backend_tokenizer)
    write("minilm.json", [case(tokenizer, t) for t in TEXTBOOK + HARD])
    rows = []
    for text in random_texts():
        ids, spans = encode(tokenizer, text)
        assert ids == reference(text)["input_ids"]
        flat, last = [], 0  # of the tokens between [CLS] and [SEP]: bytes skipped, bytes taken
        for a, b in zip(spans[2:-2:2], spans[3:-2:2]):
            flat += [a - last, b - a]
            last = b
        rows.append([text, ids[1:-1], flat])
    write("minilm_random.json", rows)


def ranges(predicate):
    """Code points, as [first, last] of each run; surrogates count as neither."""
    runs = []
    for c in range(0x110000):
        if 0xD800 <= c < 0xE000 or not predicate(chr(c)):
            continue
        if runs and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    return runs


def make_characters():
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    bert = {key: normalizers.BertNormalizer(**{**off, key: True}) for key in off}
    nfd = normalizers.NFD()
    words = pre_tokenizers.BertPreTokenizer()
    pieces = lambda c: len(words.pre_tokenize_str("a" + c + "b"))
    lower = [[c, list(map(ord, bert["lowercase"].normalize_str(chr(c))))] for c in range(0x110000)
             if not 0xD800 <= c < 0xE000]
    lower = [[c, to] for c, to in lower if to != [c]]
    decomposed = [[c, list(map(ord, nfd.normalize_str(chr(c))))] for c in range(0x110000)
                  if not 0xD800 <= c < 0xE000 and not 0xAC00 <= c <= 0xD7A3]
    decomposed = [[c, to] for c, to in decomposed if to != [c]]
    # Marks of a few classes tell the class of any other by who changes places with whom.
    rank = {r: chr(c) for r, c in [(1, 0x334), (7, 0x93C), (8, 0x3099), (9, 0x94D), (202, 0x327), (220, 0x323),
                                   (230, 0x301), (240, 0x345)]}

    def moved(c):
        return any(nfd.normalize_str(s) != s for mark in rank.values() for s in (c + mark, mark + c)
                   if nfd.normalize_str(c) == c)

    write("characters.json", {
        "whitespace": ranges(lambda c: pieces(c) == 2),
        "punctuation": ranges(lambda c: pieces(c) == 3),
        "dropped": ranges(lambda c: bert["clean_text"].normalize_str(c) == ""),
        "chinese": ranges(lambda c: bert["handle_chinese_chars"].normalize_str(c) != c),
        "marks": ranges(lambda c: bert["strip_accents"].normalize_str(c) == ""),
        "combining": ranges(moved),
        "lower": lower,
        "decomposed": decomposed,
    })


PIECES = ("[PAD] [UNK] [CLS] [SEP] [MASK] a b c A B é É e i \u0307 ΣΑ σα ß the chick ##en ##s ##a ##b ##c ##é ##e "
          "##中 中 文 . ! , ' s ##' # ## t hello world <x> do not").split()
TINY_TEXTS = [
    "", "a", "abc Abc ABC", "the chickens chicken chick.", "É é e\u0301 Ébé", "中文 a中b", "İ i\u0307", "ΣΑ σα", "ß",
    "##a # a##b", "hello world! do not, 's ' s", "a\u0000b\u0007c\ta\u00a0b", "a[MASK]b [MASK] c", "x[SEP]a", "zzz a zzz",
    "a <x> b <X> c<x>", "  <x>  a", "a hello\u00a0 b HELLO c hellos", "abcabcabca aaaaaaaa", "newtok a newtok. xnewtok newtokx é-newtok",
    "[lonely]a [LONELY] b", "Étok étok e\u0301tok", "\u3000[MASK]\u3000a",
]
TINY_ADDED = [
    AddedToken("[MASK]", lstrip=True, rstrip=True, normalized=False, special=True),
    AddedToken("<x>", normalized=True, special=False),
    AddedToken("hello", lstrip=True, normalized=True, special=False),
    AddedToken("newtok", single_word=True, normalized=False, special=False),
    AddedToken("[lonely]", rstrip=True, normalized=False, special=True),
    AddedToken("Étok", normalized=True, special=False),
]
TINY_VARIANTS = {
    "plain": dict(),
    "cased": dict(normalizer=dict(lowercase=False)),
    "accents": dict(normalizer=dict(strip_accents=False)),
    "cased_stripped": dict(normalizer=dict(lowercase=False, strip_accents=True)),
    "raw": dict(normalizer=dict(clean_text=False, handle_chinese_chars=False)),
    "unnormalized": dict(normalizer=None, decoder=None, post=None),
    "added": dict(added=TINY_ADDED, post="bert"),
    "added_cased": dict(added=TINY_ADDED, normalizer=dict(lowercase=False), max_chars=8),
    "no_prefix": dict(prefix="", decoder=decoders.WordPiece(prefix="", cleanup=False)),
}


def tiny_tokenizer(normalizer={}, decoder=decoders.WordPiece(), post="template", added=(), max_chars=100, prefix="##"):
    vocab = {piece: i for i, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=max_chars,
                                           continuing_subword_prefix=prefix))
    if normalizer is not None:
        tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if decoder is not None:
        tokenizer.decoder = decoder
    if post == "bert":
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    elif post == "template":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] [MASK] $A [SEP]", special_tokens=[("[CLS]", 2), ("[MASK]", 4), ("[SEP]", 3)])
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.add_tokens(list(added) or ["[MASK]"])
    return tokenizer


VOCAB_CONFIGS = {
    "defaults": {"tokenizer_class": "BertTokenizer"},
    "cased": {"do_lower_case": False, "tokenizer_class": "BertTokenizer"},
    "accents": {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False,
                "tokenizer_class": "BertTokenizer"},
    "named": {"do_lower_case": False, "mask_token": "<x>", "sep_token": "hello", "tokenizer_class": "BertTokenizer"},
    "outside": {"mask_token": "[lonely]", "pad_token": "[outside]", "tokenizer_class": "BertTokenizer"},
}


def make_tiny():
    for name, options in TINY_VARIANTS.items():
        tokenizer = tiny_tokenizer(**options)
        tokenizer.enable_truncation(3)  # which the product ignores
        tokenizer.enable_padding(length=9)
        write(f"tiny/{name}.json", {
            "tokenizer": json.loads(tokenizer.to_str()),
            "cases": [case(without_limits(tokenizer), text) for text in TINY_TEXTS],
        })
    vocabulary = "".join(piece + "\n" for piece in PIECES)
    for name, config in VOCAB_CONFIGS.items():
        folder = pathlib.Path(tempfile.mkdtemp())
        (folder / "vocab.txt").write_text(vocabulary, encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = without_limits(AutoTokenizer.from_pretrained(folder).backend_tokenizer)
        write(f"tiny/vocab_{name}.json", {"vocab": vocabulary, "config": config,
                                          "cases": [case(tokenizer, text) for text in TINY_TEXTS]})
        shutil.rmtree(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make_characters()
    make_tiny()
    make_minilm(sys.argv[1])
