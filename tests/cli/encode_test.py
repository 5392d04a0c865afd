"""qkv encode: vectors, similarities and a word in two texts, on a tiny model with random parameters."""

import json
import math
import unittest

from harness import CommandTest

TEXTS = ["the chicken did cross", "the road was wide", "it was too tired"]


class EncodeTest(CommandTest):
    def encode(self, *arguments, **options):
        return self.call("encode", "--model", self.model, *arguments, **options)

    def vectors(self, *arguments, **options):
        return json.loads(self.succeed(self.encode("--json", *arguments, **options)))["embeddings"]

    def refused(self, pattern, *arguments, status=2, **options):
        self.fail_with(self.encode(*arguments, **options), status, pattern, command="encode")

    def test_vectors_have_length_one_and_do_not_depend_on_their_neighbours(self):
        together = self.vectors(*TEXTS)
        self.assertEqual(len(together), 3)
        for text, vector in zip(TEXTS, together):
            self.assertAlmostEqual(math.hypot(*vector), 1, places=5)
            for one, other in zip(vector, self.vectors(text)[0]):
                self.assertAlmostEqual(one, other, places=5)

    def test_texts_come_as_arguments_a_file_or_standard_input(self):
        expected = self.vectors(*TEXTS)
        lines = "\n".join(TEXTS) + "\n"
        self.assertEqual(self.vectors("--file", self.file("lines", lines)), expected)
        self.assertEqual(self.vectors("-", input=lines.encode()), expected)

    def test_similarities_are_printed(self):
        a, b = self.vectors(*TEXTS[:2])
        table = self.succeed(self.encode(*TEXTS[:2]))
        self.assertIn(f"{sum(x * y for x, y in zip(a, b)):.2f}", table)
        self.assertIn("1.00", table)
        for text in TEXTS[:2]:
            self.assertIn(text, table)
        self.assertIn("16 numbers", self.succeed(self.encode(TEXTS[0])))

    def test_a_long_text_loses_its_end(self):
        kept = "the chicken " * 23  # 46 of the 48 positions, between the special tokens
        longer = kept + "was wide " * 10
        self.assertEqual(self.encode(kept).stderr, b"")
        self.assertEqual(self.vectors(kept), json.loads(self.encode("--json", longer).stdout)["embeddings"])
        self.assertEqual(self.encode(longer).stderr, b"the text was cut from 68 tokens to 48\n")
        self.assertEqual(self.encode("road", longer, longer).stderr,
                         b"text 2 was cut from 68 tokens to 48 (and 1 more were cut)\n")

    def test_an_empty_text_is_refused(self):
        for text in ("", " ", "\n"):
            self.refused("the text is empty: it has no tokens", text)
        self.refused("text 2: the text is empty", "road", "")

    def test_a_word_that_is_not_there_names_the_option_and_the_text(self):
        self.refused("--tokens, text 2: no such word", "--tokens", "it", "it was too tired", "the road")

    def test_a_word_in_two_texts(self):
        texts = ("it was too tired", "the road and it")
        printed = self.succeed(self.encode("--tokens", "it", *texts))
        self.assertIn("[it] was too tired", printed)
        self.assertIn("the road and [it]", printed)
        answer = json.loads(self.succeed(self.encode("--tokens", "it", "--json", *texts)))
        self.assertEqual(len(answer["similarities"]), 4)  # the embeddings and three layers
        self.assertTrue(all(-1 <= value <= 1 for value in answer["similarities"]))
        same = json.loads(self.succeed(self.encode("--tokens", "it", "--json", texts[0], texts[0])))
        for value in same["similarities"]:
            self.assertAlmostEqual(value, 1, places=6)

    def test_errors(self):
        self.refused("no text")
        self.refused("2 texts", "--tokens", "it", "it was")
        self.refused("no such word", "--tokens", "zebra", "it was", "it was")
        self.refused("the text is empty", "-", input=b"\n\n")
        self.refused("UTF-8", "-", input=b"\xff", status=3)


if __name__ == "__main__":
    unittest.main()
