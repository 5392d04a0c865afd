#!/usr/bin/env python3
"""Makes smollm2.json from the reference, `tokenizers` (PyPI): what SmolLM2's own tokenizer makes of the golden texts.

usage: make_smollm2.py FILE.gguf    needs `gguf` (PyPI)

The vocabulary and merges are the file's, the words those of SmolLM2's tokenizer.json: each digit alone, then GPT-2's.
Made with tokenizers 0.23.3 and gguf 0.19.0.
"""
import sys

import gguf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from make import HARD, TEXTBOOK, write
from make_bpe import ADDED_TEXTS, CODE, case, checksums, texts


def main(path):
    fields = gguf.GGUFReader(path).fields
    read = lambda key: fields["tokenizer.ggml." + key].contents()
    vocab = {token: i for i, token in enumerate(read("tokens"))}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in read("merges")]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([t for t, kind in zip(read("tokens"), read("token_type")) if kind == gguf.TokenType.CONTROL])
    write("smollm2.json", {"cases": [case(tokenizer, text) for text in TEXTBOOK + HARD + CODE + ADDED_TEXTS],
                           "checksums": checksums("smollm2", tokenizer, texts())})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
