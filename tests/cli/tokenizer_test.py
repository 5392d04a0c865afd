"""qkv tokenizer: the vocabulary that it learns, and texts that it refuses."""

import json
import unittest

import harness

TEXT = "In the beginning was the word, and the word was with the chicken.\n" * 20


class TokenizerTest(harness.CommandTest):
    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def train(self, *arguments):
        return self.call("tokenizer", "train", *arguments)

    def test_train_writes_a_vocabulary(self):
        text = self.file("book.txt", TEXT)
        printed = self.succeed(self.train(text, "--vocab", "280", "--out", "tokenizer.json"))
        self.assertRegex(printed, r"^tokenizer\.json: 280 tokens; the text's 1320 bytes are \d+ of them, [2-9]\.\d\d bytes each\n$")
        tokenizer = self.read("tokenizer.json")
        self.assertEqual(len(tokenizer["model"]["vocab"]), 280)
        self.assertEqual(len(tokenizer["model"]["merges"]), 280 - 257)
        self.assertEqual(tokenizer["added_tokens"][0]["content"], "<|endoftext|>")
        self.assertIn("\u0120the", tokenizer["model"]["vocab"])

    def test_several_texts_in_any_order_give_the_same_file(self):
        first, second = self.file("a.txt", TEXT), self.file("b.txt", TEXT.upper())
        for out, texts in ("ab.json", (first, second)), ("ba.json", (second, first)):
            self.succeed(self.train(*texts, "--vocab", "300", "--out", out))
        self.assertEqual(self.read("ab.json"), self.read("ba.json"))

    def test_a_small_text_makes_a_small_vocabulary(self):
        answer = self.train(self.file("small.txt", "abc"), "--out", "small.json")
        self.assertEqual(answer.returncode, 0)
        self.assertEqual(answer.stderr.decode(), "257 tokens: nothing else occurs twice in this text\n")

    def test_bytes(self):
        self.assertEqual(self.succeed(self.call("tokenizer", "bytes", "--out", "bytes.json")),
                         "bytes.json: 256 tokens, one for each byte\n")
        self.assertEqual(self.read("bytes.json")["model"]["vocab"]["A"], 65)

    def test_bad_texts_leave_no_file(self):
        for data, status, pattern in [("", 2, r"TEXT: the text is empty"), (b"ab\xff", 3, r"bad\.txt: invalid UTF-8 at byte 2")]:
            self.fail_with(self.train(self.file("bad.txt", data), "--out", "none.json"), status, pattern, "tokenizer")
        self.assertRaises(FileNotFoundError, self.read, "none.json")


if __name__ == "__main__":
    unittest.main()
