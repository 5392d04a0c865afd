"""qkv explain: its steps, its page, and what it refuses."""

import pathlib
import re
import unittest

import harness

TEXT = "the chicken did cross the road because it was too tired"
DECODERS = pathlib.Path(__file__).parents[1] / "golden" / "models" / "causal"
RANDOM = ["--d-in", "6", "--d-out", "4", "--heads", "2"]

# Arguments after `explain TEXT --model TINY`, the status, and what the line must say.
WRONG_WITH_MODEL = [
    (["--layer", "3"], 2, r"--layer: out of range, expected 0 to 2 \(there are 3 layers\), got 3"),
    (["--layer", "-1"], 2, r"--layer: bad number"),
    (["--layer", "1-2"], 2, r"--layer: bad number"),
    (["--head", "2"], 2, r"--head: out of range, expected 0 to 1 \(there are 2 heads\), got 2"),
    (["--head", "9" * 30], 2, r"--head: bad number"),
    (["--token", "horse"], 2, r"--token: no such word or piece"),
    (["--token", "99"], 2, r"--token: no token with that index"),
    (["--level", "all"], 2, r"--level: unknown level, expected simplified, head or multi-head"),
    (["--level", "multi-head", "--head", "1"], 2, r"--head: --level multi-head shows all heads"),
    (["--level", "simplified", "--head", "1"], 2, r"--head: --level simplified has no parameters"),
    (["--level", "simplified", "--dropout", "0.1"], 2, r"--dropout: --level simplified has no parameters"),
    (["--dropout", "1"], 2, r"--dropout: bad probability, expected a number from 0 to 0.99999994, the last below 1, got \"1\""),
    (["--dropout", "-0.1"], 2, r"--dropout: bad probability"),
    (["--dropout", "nan"], 2, r"--dropout: bad probability"),
    (["--dropout", "0.5x"], 2, r"--dropout: bad probability"),
    (["--dropout", ""], 2, r"--dropout: bad probability"),
    (["--seed", "1"], 2, r"--seed: nothing is random here"),
    (["--seed", "-1", "--dropout", "0.5"], 2, r"--seed: bad number"),
    (["--d-in", "4"], 2, r"--model: a random layer is no model's"),
    (["--output", "a.png"], 2, r"--output: unknown kind of page, expected a file name ending in \.html"),
    (["--output", "no/such/a.html"], 1, r"a\.html: cannot write: No such file"),
]

# Arguments after `explain`.
WRONG = [
    ([], 2, r"no text: give TEXT"),
    (["", *RANDOM], 2, r"the text is empty"),
    (["  ", *RANDOM], 2, r"the text is empty"),
    (["it", *RANDOM], 2, r"the text is too short: .*expected at least 2 tokens, got 1"),
    ([b"the \xff", *RANDOM], 3, r"UTF-8"),
    (["--file", "/no/such", *RANDOM], 3, r"/no/such: no such file"),
    ([TEXT, "--d-in", "0"], 2, r"--d-in: bad number"),
    ([TEXT, "--d-in", "1e3"], 2, r"--d-in: bad number"),
    ([TEXT, "--d-out", "5", "--heads", "2"], 2, r"--d-out: cannot be divided among the heads, "
                                                r"expected d_out a multiple of 2 heads, got 5"),
    ([TEXT, "--d-in", "5", "--heads", "2"], 2, r"--heads: cannot be divided among the heads"),
    ([TEXT, *RANDOM, "--head", "2"], 2, r"--head: out of range"),
    ([TEXT, *RANDOM, "--layer", "0"], 2, r"--layer: a random layer is the only one"),
    ([TEXT, "--d-in", "16000000"], 4, r"the random layer: does not fit in memory, expected [\d.]+ [GT]B at most, got [\d.]+ [TP]B$"),
    (["--truncate", "--d-in", "2"], 2, r"--truncate: a random layer takes texts of any length"),
    (["--file", "long.txt", "--d-in", "2"], 4, r"the explanation: does not fit in memory"),
]


class ExplainTest(harness.CommandTest):
    def explain(self, *arguments):
        return self.call("explain", *arguments)

    def tiny(self, *arguments):
        return self.succeed(self.explain(TEXT, "--model", self.model, *arguments))

    def steps(self, text):
        return re.findall(r"^(?:\d+ +|\u00b7  )(.+)$", text, re.M)

    def test_the_steps_of_every_level(self):
        self.assertEqual(self.steps(self.tiny("--level", "simplified")), ["Input", "Scores", "Weights", "Weighted sum"])
        head = ["Input", "Queries, keys, values", "Scores", "Scale", "Weights", "Without the scaling", "Weighted sum"]
        self.assertEqual(self.steps(self.tiny()), head)
        self.assertEqual(self.steps(self.tiny("--causal", "--dropout", "0.5")),
                         head[:4] + ["Causal mask", "Weights", "Without the scaling", "The other order",
                                     "Dropout, in training", "Weighted sum"])
        self.assertEqual(self.steps(self.tiny("--level", "multi-head")),
                         ["Input", "Queries, keys, values", "Split into heads", "Scores", "Scale", "Weights",
                          "Weighted sum", "Concatenate", "Output projection"])

    def decoder(self, name, *arguments):
        return self.explain(TEXT, "--model", str(DECODERS / name), *arguments)

    def test_the_steps_of_decoders(self):
        turned = ["Input", "Normalise", "Queries, keys, values", "Turn by position", "Scores", "Scale"]
        weights = ["Causal mask", "Weights", "Without the scaling", "The other order", "Weighted sum"]
        self.assertEqual(self.steps(self.succeed(self.decoder("llama"))), turned + weights)
        self.assertEqual(self.steps(self.succeed(self.decoder("gguf-llama.gguf", "--head", "3"))), turned + weights)
        self.assertEqual(self.steps(self.succeed(self.decoder("gpt2"))), turned[:3] + turned[4:] + weights)
        many = ["Split into heads", "Normalise heads", "Turn by position", "Scores", "Scale", "Causal mask", "Weights",
                "Weighted sum", "Concatenate", "Output projection"]
        self.assertEqual(self.steps(self.succeed(self.decoder("qwen3", "--level", "multi-head"))), turned[:3] + many)
        self.assertEqual(self.steps(self.succeed(self.decoder("mistral", "--level", "simplified"))),
                         ["Input", "Normalise", "Scores", "Causal mask with a window", "Weights", "Weighted sum"])
        text = self.succeed(self.decoder("llama", "--head", "3", "--layer", "1"))
        self.assertIn("head 3 of 4", text)
        self.assertRegex(text, r"those of head 1 of\s+2,\s+which\s+2\s+heads\s+of\s+queries\s+share")

    def test_a_decoder_refuses_what_is_not_there(self):
        for arguments, pattern in [(["--layer", "2"], r"--layer: out of range, expected 0 to 1 \(there are 2 layers\)"),
                                   (["--head", "4"], r"--head: out of range, expected 0 to 3 \(there are 4 heads\)")]:
            self.fail_with(self.decoder("llama", *arguments), 2, pattern, "explain")

    def test_shapes_and_marked_row(self):
        text = self.tiny("--level", "multi-head", "--layer", "2", "--token", "it")
        for shapes in ("(B, T, d_in) = (1, 13, 16)", "(B, H, T, D) = (1, 2, 13, 8)", "(B, H, T, T) = (1, 2, 13, 13)",
                       "(B, T, d_out) = (1, 13, 16)"):
            self.assertIn(shapes, text)
        self.assertIn("marks the row of \u201cit\u201d, token 8", text)
        self.assertRegex(text, r"(?m)^ \u25b8 it  ")

    def test_the_weights_are_those_of_look(self):
        look = self.json(TEXT, "--layer", "1", "--head", "1", "--token", "it")
        row = look["weights"][0][0][0]
        listed = re.search(r"\u201cit\u201d attends to ((?:.|\n)*?)\n   [A-Z]", self.tiny("--layer", "1", "--head", "1",
                                                                                   "--token", "it")).group(1)
        shown = [float(number) for number in re.findall(r"\d\.\d{3}", listed)]
        self.assertEqual(len(shown), 5)
        for mine, theirs in zip(shown, sorted(row, reverse=True)):
            self.assertAlmostEqual(mine, theirs, delta=0.00052)

    def test_a_random_layer_is_causal_and_always_the_same(self):
        text = self.succeed(self.explain(TEXT, *RANDOM, "--seed", "3"))
        self.assertIn("Causal mask", text)
        self.assertIn("\u2212\u221e", text)
        self.assertEqual(text, self.succeed(self.explain(TEXT, *RANDOM, "--seed", "3", "--threads", "1")))
        self.assertNotEqual(text, self.succeed(self.explain(TEXT, *RANDOM, "--seed", "4")))

    def test_lines_fit_the_terminal(self):
        answer = self.call("explain", TEXT, "--model", self.model, environment={"COLUMNS": "60"})
        self.assertLessEqual(max(map(len, self.succeed(answer).splitlines())), 60)

    def test_the_page_needs_nothing_else(self):
        answer = self.explain("<b>the</b> & chicken", "--model", self.model, "--output", "page.html")
        self.assertEqual((answer.returncode, answer.stdout, answer.stderr), (0, b"", b"wrote page.html\n"))
        with open(self.path("page.html"), encoding="utf-8") as file:
            page = file.read()
        self.assertNotRegex(page, r"https?:|src=|url\(|@import|<script|\{\{|<b>")
        self.assertIn("&lt;b&gt;", page)
        self.assertEqual(page.count("<section"), 7)
        self.assertIn("<msqrt>", page)
        for tag in ("math", "mrow", "mfrac", "table", "section", "tr"):
            self.assertEqual(len(re.findall(rf"<{tag}\b", page)), page.count(f"</{tag}>"), tag)

    def test_a_long_text_is_refused_or_cut_where_asked(self):
        long = ("the road " * 40, "--model", self.model)
        self.fail_with(self.explain(*long), 2, r"too long .*\(--truncate cuts it\), .*at most 48 tokens, got 82", "explain")
        cut = self.explain(*long, "--truncate")
        self.assertEqual((cut.returncode, cut.stderr), (0, b"the text was cut from 82 tokens to 48\n"))
        self.assertIn("(1, 48, 16)", cut.stdout.decode())

    def test_what_is_refused(self):
        self.file("long.txt", "a b " * 500000)
        for arguments, status, pattern in WRONG_WITH_MODEL:
            with self.subTest(arguments=arguments):
                answer = self.explain(TEXT, "--model", self.model, *arguments)
                self.fail_with(answer, status, pattern, "explain")
        for arguments, status, pattern in WRONG:
            with self.subTest(arguments=ascii(arguments)[:80]):
                self.fail_with(self.call("explain", *arguments), status, pattern, "explain")
        self.fail_with(self.explain("it", "--model", self.model), 2, "the text is too short", "explain")
        self.fail_with(self.explain("", "--model", self.model), 2, "the text is empty", "explain")


if __name__ == "__main__":
    unittest.main()
