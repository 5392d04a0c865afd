"""Vocabularies that `qkv tokenizer` writes, in Hugging Face's `tokenizers`."""

import os
import pathlib
import subprocess

import pytest

tokenizers = pytest.importorskip("tokenizers")

ROOT = pathlib.Path(__file__).parents[3]
COMMAND = pathlib.Path(os.environ.get("QKV_COMMAND", ROOT / "build" / "qkv"))
pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built: make build")

TEXT = (ROOT / "README.md").read_text(encoding="utf-8") + "caf\u00e9 \U0001F999 \u4e2d\u6587\n\n\t12345  it's\n"


def run(*arguments):
    subprocess.run([COMMAND, "tokenizer", *map(str, arguments)], check=True, capture_output=True)


def test_trained_as_the_reference_trains(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    run("train", tmp_path / "text.txt", "--vocab", 600, "--out", tmp_path / "tokenizer.json")
    ours = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))

    reference = tokenizers.Tokenizer(tokenizers.models.BPE())
    reference.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    reference.decoder = tokenizers.decoders.ByteLevel()
    reference.train_from_iterator([TEXT], tokenizers.trainers.BpeTrainer(
        vocab_size=600, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    assert ours.get_vocab() == reference.get_vocab()
    assert ours.encode(TEXT).ids == reference.encode(TEXT).ids
    assert ours.decode(ours.encode(TEXT).ids) == TEXT
    assert ours.token_to_id("<|endoftext|>") == 0


def test_bytes(tmp_path):
    run("bytes", "--out", tmp_path / "tokenizer.json")
    ours = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert ours.encode(TEXT).ids == list(TEXT.encode())
    assert ours.decode(list(TEXT.encode())) == TEXT
