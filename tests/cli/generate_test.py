"""qkv generate: options, streaming, stop strings and errors, on tiny models with random parameters."""

import os
import subprocess
import unittest

from harness import COMMAND, ENVIRONMENT, CommandTest

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "models", "causal")
LLAMA = os.path.join(GOLDEN, "gguf-llama.gguf")  # byte-level tokens: its answers are strings of any bytes
SUMMARY = rb"prompt \d+ tokens? in [\d.]+ s \(\d+ tokens/s\)"


class GenerateTest(CommandTest):
    def generate(self, *arguments, model=LLAMA, **options):
        return self.call("generate", "--model", model, *arguments, **options)

    def answer(self, *arguments, **options):
        answer = self.generate(*arguments, **options)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertRegex(answer.stderr, b"^" + SUMMARY)
        return answer.stdout.decode()  # valid UTF-8, whatever the model writes

    def refused(self, pattern, *arguments, status=2, **options):
        self.fail_with(self.generate(*arguments, **options), status, pattern, command="generate")


class Answers(GenerateTest):
    def test_the_same_each_time_and_for_each_way_to_give_the_text(self):
        text = "the road"
        expected = self.answer(text, "--max-tokens", "12")
        self.assertGreater(len(expected), 2)
        self.assertTrue(expected.endswith("\n"))
        self.assertEqual(self.answer("--file", self.file("text", text), "--max-tokens", "12"), expected)
        self.assertEqual(self.answer("-", "--max-tokens", "12", input=text.encode()), expected)
        self.assertEqual(self.answer(text, "--max-tokens", "12", "--threads", "1"), expected)

    def test_more_tokens_begin_with_the_fewer(self):
        fewer, more = (self.answer("ab", "--max-tokens", count).rstrip("\n�") for count in ("4", "12"))
        self.assertTrue(more.startswith(fewer), (fewer, more))

    def test_a_stop_string_ends_the_answer_before_it(self):
        whole = self.answer("the road", "--max-tokens", "24").rstrip("\n")
        stop = whole[len(whole) // 2:][:2]
        expected = whole[:whole.index(stop)]
        got = self.answer("the road", "--max-tokens", "24", "--stop", "never there", "--stop", stop)
        self.assertEqual(got.rstrip("\n"), expected.rstrip("\n"))

    def test_the_seed_decides(self):
        warm = ("ab", "--temperature", "1.5", "--max-tokens", "16", "--seed")
        self.assertEqual(self.answer(*warm, "3"), self.answer(*warm, "3"))
        self.assertNotEqual(self.answer(*warm, "3"), self.answer(*warm, "4"))

    def test_every_sampling_option_is_taken(self):
        greedy = self.answer("ab", "--max-tokens", "8")
        for option in (("--top-k", "1"), ("--top-p", "0.000001"), ("--min-p", "1")):
            self.assertEqual(self.answer("ab", "--max-tokens", "8", "--temperature", "1", *option), greedy)
        self.assertNotEqual(self.answer("ab", "--max-tokens", "24", "--repetition-penalty", "9"),
                            self.answer("ab", "--max-tokens", "24"))

    def test_every_way_of_multiplying_answers(self):
        for model in sorted(os.listdir(GOLDEN)):
            if not model.endswith(".gguf"):
                continue
            with self.subTest(model):
                for dtype in ("f32", "bf16"):
                    self.answer("abc", "--max-tokens", "3", "--dtype", dtype, model=os.path.join(GOLDEN, model))
                self.answer("abc" * 9, "--max-tokens", "3", model=os.path.join(GOLDEN, model))

    def test_the_summary_says_why_it_ended(self):
        cut = self.generate("ab", "--max-tokens", "2").stderr
        self.assertRegex(cut, rb"answer 2 tokens in .*cut by --max-tokens")
        one = self.generate("ab", "--max-tokens", "1").stderr
        self.assertRegex(one, rb"answer 1 token; cut by --max-tokens")
        full = self.generate("ab" * 30, "--max-tokens", "50").stderr
        self.assertRegex(full, rb"the model's context is full")
        beyond = self.generate("ab" * 30, "--max-tokens", "50", "--allow-long").stderr
        self.assertNotRegex(beyond, rb"context is full")

    def test_the_text_streams(self):
        process = subprocess.Popen([COMMAND, "generate", "--model", LLAMA, "the", "--max-tokens", "60"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
        self.assertEqual(len(process.stdout.read(1)), 1)
        process.stdout.close()  # a reader that has seen enough is no failure
        errors = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(), 0, errors)


class Errors(GenerateTest):
    def test_numbers_are_checked(self):
        for option, value in (("--temperature", "-1"), ("--temperature", "hot"), ("--top-p", "0"), ("--top-p", "1.5"),
                              ("--min-p", "2"), ("--top-k", "-1"), ("--seed", "x"), ("--max-tokens", "0"),
                              ("--repetition-penalty", "0"), ("--threads", "0"), ("--dtype", "f16")):
            with self.subTest(option=option, value=value):
                self.refused("generate: " + option, "ab", f"{option}={value}")
        self.refused("--seed: .*from 0 to 9223372036854775807, got", "ab", "--seed", "18446744073709551615")

    def test_texts_are_checked(self):
        self.refused("no text", *[])
        self.refused("the text is empty", "")
        self.refused("exclude each other", "ab", "--file", self.file("both", "ab"))
        self.refused(r"too long .*--allow-long.*at most 64 tokens", "ab" * 40)
        self.refused("UTF-8", "-", input=b"ab\xff", status=3)
        self.refused("--stop: empty", "ab", "--stop", "never", "--stop", "")

    def test_only_causal_models_continue_texts(self):
        self.refused("cannot continue a text", "the road", model=self.model)

    def test_without_a_chat_template_there_is_no_chat(self):
        self.refused("no chat template", "--chat", "why?")

    def test_learned_positions_end(self):
        """A model with a table of positions cannot go beyond it, so nobody is told that --allow-long helps."""
        gpt2 = os.path.join(GOLDEN, "gguf-gpt2.gguf")
        for more in ([], ["--allow-long"]):
            self.refused(r"too long for the model \(it has no more positions\), expected at most 64 tokens, got 80$",
                         "ab" * 40, *more, model=gpt2)
        full = self.generate("ab" * 30, "--max-tokens", "50", "--allow-long", model=gpt2)
        self.assertEqual(full.returncode, 0, full.stderr)
        self.assertRegex(full.stderr, b"the model's context is full")
        for more, way in (([], r"\(--truncate"), (["--allow-long"], r"\(it has no more positions; --truncate")):
            answer = self.call("look", "--model", gpt2, "ab" * 30, "--generate", "9", *more)
            self.fail_with(answer, 2, way + r" cuts it\), expected at most 64 tokens, got 69")

    def test_a_folder_with_a_gguf_file_is_a_model(self):
        folder = self.path("one")
        os.mkdir(folder)
        os.symlink(LLAMA, os.path.join(folder, "model.gguf"))
        self.assertEqual(self.answer("ab", "--max-tokens", "4", model=folder), self.answer("ab", "--max-tokens", "4"))
        os.symlink(LLAMA, os.path.join(folder, "again.gguf"))
        self.refused(r"one: several GGUF files in the folder, .*again\.gguf, model\.gguf", "ab", model=folder)


if __name__ == "__main__":
    unittest.main()
