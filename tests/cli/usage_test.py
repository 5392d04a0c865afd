"""Calls that make no sense, and help."""

import os
import random
import subprocess
import unittest

import harness

TEXT = "the chicken did cross the road because it was too tired"

# Arguments after `look --model TINY`, the status, and what the line must say.
WRONG_LOOKS = [
    ([], 2, r"no text: give TEXT, --file FILE, or - for standard input \(see qkv look --help\)"),
    (["--json"], 2, r"no text"),
    (["a", "b"], 2, r'unexpected argument "b" \(see qkv look --help\)'),
    (["a", "b", "c", "--nope"], 2, r"unexpected argument"),
    (["-"], 2, r"the text is empty"),
    (["--file", "-"], 2, r"the text is empty"),
    (["a", "--file", "x"], 2, r"TEXT and --file exclude each other"),
    (["-", "--file", "x"], 2, r"TEXT and --file exclude each other"),
    (["--file", "/no/such/file"], 3, r"/no/such/file: no such file"),
    (["--file", "missing.txt"], 3, r"missing\.txt: no such file"),
    (["--file", ""], 3, r"--file: no such file"),
    (["--file", "/"], 3, r"/: Is a directory"),
    (["--file", "tiny"], 3, r"tiny: Is a directory"),
    (["--file", "tiny/config.json/x"], 3, r"tiny/config\.json/x: Not a directory"),
    (["--file"], 2, r"--file: its value is missing"),
    (["--file", "a", "--file", "b"], 2, r"--file: given more than once"),
    (["--file=", "a"], 2, r"--file: empty value"),
    ([""], 2, r"the text is empty"),
    (["   "], 2, r"the text is empty"),
    (["\t\n\r "], 2, r"the text is empty"),
    (["\u3000\u00a0"], 2, r"the text is empty"),
    (["\u200b\u0007"], 2, r"the text is empty"),
    (["the " * 47], 2, r"too long for the model \(--truncate cuts it\), expected at most 48 tokens, got 49"),
    (["the " * 4000], 2, r"at most 48 tokens, got 4002"),
    ([b"the \xff road"], 3, r"UTF-8.*4"),
    ([b"\xc3"], 3, r"UTF-8"),
    ([b"a\xed\xa0\x80"], 3, r"UTF-8"),
    (["-x"], 2, r'unknown option "-x"'),
    (["--tokens", "it", TEXT], 2, r'unknown option "--tokens"'),
    (["--Token", "it", TEXT], 2, r'unknown option "--Token"'),
    (["\x1b[31mred", "a\nb\\n"], 2, r'unexpected argument "a\\nb\\\\n"'),
    ([TEXT, "--token"], 2, r"--token: its value is missing"),
    ([TEXT, "--token", "it", "--token", "was"], 2, r"--token: given more than once"),
    ([TEXT, "--token", ""], 2, r"--token: no such word or piece"),
    ([TEXT, "--token", " "], 2, r"--token: no such word or piece"),
    ([TEXT, "--token", "horse"], 2, r"no such word or piece in the text, expected an index or one of: "
                                    r"the chicken did cross road because it was too tired, got \"horse\""),
    ([TEXT, "--token", "chiken"], 2, r'\(did you mean "chicken"\?\)'),
    ([TEXT, "--token", "chick"], 2, r'--token: no such word or piece.*got "chick"'),
    ([TEXT, "--token", "chicken the"], 2, r"--token: no such word or piece"),
    ([TEXT, "--token", "=1"], 2, r'--token: no such word or piece.*got "=1"'),
    ([TEXT, "--token", "="], 2, r"--token: no such word or piece"),
    ([TEXT, "--token", b"\xff\xfe"], 2, r'--token: no such word or piece.*got "\\xff\\xfe"'),
    ([TEXT, "--token", "x" * 5000], 2, r"--token: no such word or piece"),
    ([TEXT, "--token", "-1"], 2, r'--token: no token with that index, expected 0 to 12.*got "-1"'),
    ([TEXT, "--token", "13"], 2, r"--token: no token with that index, expected 0 to 12"),
    ([TEXT, "--token", "9" * 30], 2, r"--token: no token with that index"),
    ([TEXT, "--layer", "3"], 2, r"--layer: out of range, expected 0 to 2 \(the model has 3 layers\), got 3"),
    ([TEXT, "--layer", "1-3"], 2, r"--layer: out of range"),
    ([TEXT, "--layer", "0-9223372036854775807"], 2, r"--layer: out of range.*got 9223372036854775807"),
    ([TEXT, "--layer", "9223372036854775808"], 2, r"--layer: bad list"),
    ([TEXT, "--layer", "-1"], 2, r'--layer: bad list, expected whole numbers and ranges such as 3,5-7, got "-1"'),
    ([TEXT, "--layer", "2-1"], 2, r"--layer: bad list"),
    ([TEXT, "--layer", ""], 2, r"--layer: bad list"),
    ([TEXT, "--layer", ","], 2, r"--layer: bad list"),
    ([TEXT, "--layer", "1,"], 2, r"--layer: bad list"),
    ([TEXT, "--layer", "1-"], 2, r"--layer: bad list"),
    ([TEXT, "--layer", "1-2-3"], 2, r"--layer: bad list"),
    ([TEXT, "--layer", " 1"], 2, r"--layer: bad list"),
    ([TEXT, "--layer", "1, 2"], 2, r"--layer: bad list"),
    ([TEXT, "--layer", "+1"], 2, r"--layer: bad list"),
    ([TEXT, "--layer", "1.0"], 2, r"--layer: bad list"),
    ([TEXT, "--layer", "0x1"], 2, r"--layer: bad list"),
    ([TEXT, "--layer", "all"], 2, r"--layer: bad list"),
    ([TEXT, "--layer=", "1"], 2, r"--layer: empty value"),
    ([TEXT, "--layer", "0", "--layer", "1"], 2, r"--layer: given more than once"),
    ([TEXT, "--head", "2"], 2, r"--head: out of range, expected 0 to 1 \(the model has 2 heads\), got 2"),
    ([TEXT, "--head", "one"], 2, r"--head: bad list"),
    ([TEXT, "--head", "\u0661"], 2, r"--head: bad list"),
    ([TEXT, "--top", "0"], 2, r"--top: bad number, expected a whole number of at least 1, got \"0\""),
    ([TEXT, "--top", "-3"], 2, r"--top: bad number"),
    ([TEXT, "--top", "2.5"], 2, r"--top: bad number"),
    ([TEXT, "--top", "1e3"], 2, r"--top: bad number"),
    ([TEXT, "--top", "9" * 40], 2, r"--top: bad number"),
    ([TEXT, "--threads", "0"], 2, r"--threads: bad number, expected a whole number from 1 to 1024"),
    ([TEXT, "--threads", "1025"], 2, r"--threads: bad number"),
    ([TEXT, "--threads", "two"], 2, r"--threads: bad number"),
    ([TEXT, "--dtype", "f16"], 2, r'--dtype: unknown type, expected f32 or bf16'),
    ([TEXT, "--output", "look"], 2, r"--output: unknown kind of picture, expected .*\.html, \.svg, \.png or \.pdf"),
    ([TEXT, "--output", "look.jpg"], 2, r'--output: unknown kind of picture.*got "look\.jpg"'),
    ([TEXT, "--output", ".png"], 2, r"--output: unknown kind of picture"),
    ([TEXT, "--output", ""], 2, r"--output: unknown kind of picture"),
    ([TEXT, "--output"], 2, r"--output: its value is missing"),
    ([TEXT, "--output", "a.png", "b.png"], 2, r'unexpected argument "b\.png"'),
    ([TEXT, "--output", "no/such/a.png"], 1, r"no/such/a\.png: cannot write: No such file or directory"),
    ([TEXT, "--output", "tiny/config.json/a.png"], 1, r"a\.png: cannot write: Not a directory"),
    ([TEXT, "--json=yes"], 2, r"--json: takes no value"),
    ([TEXT, "--truncate=1"], 2, r"--truncate: takes no value"),
    ([TEXT, "--skip-first", "--json"], 2, r"--skip-first: changes the pictures"),
    ([TEXT, "--dtype", "f8"], 2, r'--dtype: unknown type, expected f32 or bf16, got "f8"'),
]

# Whole calls, the command that the line names, the status, and what the line must say.
WRONG_CALLS = [
    ([], "", 2, r"no command \(see qkv --help\)"),
    ([""], "", 2, r'unknown command "" \(see qkv --help\)'),
    (["lok"], "", 2, r'unknown command "lok"'),
    (["Look", "a"], "", 2, r'unknown command "Look"'),
    (["explode\n"], "", 2, r'unknown command "explode\\n"'),
    (["--verbose"], "", 2, r'unknown option "--verbose"'),
    (["-"], "", 2, r'unknown option "-"'),
    (["look", "a", "--model"], "look", 2, r"--model: its value is missing"),
    (["look", "a", "--model", "no-such"], "look", 2, r"no-such: no such model"),
    (["look", "a", "--model", "/no/such"], "look", 3, r"/no/such"),
    (["look", "a", "--model", "\x1b[2J"], "look", 2, r"\\x1b\[2J: no such model"),
    (["look", "a", "--model", "m" * 5000], "look", 3, r"mmm"),
    (["models", "minilm"], "models", 2, r'unexpected argument "minilm"'),
    (["models", "--jsn"], "models", 2, r'unknown option "--jsn"'),
    (["inspect"], "inspect", 2, r"FILE is required \(see qkv inspect --help\)"),
    (["inspect", "a", "b"], "inspect", 2, r'unexpected argument "b"'),
    (["inspect", "/no/such.safetensors"], "inspect", 3, r"/no/such\.safetensors"),
    (["tokenizer"], "tokenizer", 2, r"ACTION is required"),
    (["tokenizer", "train", "a.txt"], "tokenizer", 2, r"--out is required"),
    (["tokenizer", "train", "--out", "t.json"], "tokenizer", 2, r"TEXT: no text: give at least one file"),
    (["tokenizer", "train", "/no/such.txt", "--out", "t.json"], "tokenizer", 3, r"/no/such\.txt: no such file"),
    (["tokenizer", "train", "/dev/null", "--out", "t.json"], "tokenizer", 3, r"/dev/null"),
    (["tokenizer", "train", "a.txt", "--vocab", "256", "--out", "t.json"], "tokenizer", 2,
     r"--vocab: bad number, expected a whole number from 257 to 1000000"),
    (["tokenizer", "train", "a.txt", "--out", "no/such/t.json"], "tokenizer", 1, r"no/such/t\.json: cannot write"),
    (["tokenizer", "bytes", "a.txt", "--out", "t.json"], "tokenizer", 2, r"bytes: takes --out alone"),
    (["tokenizer", "merge", "--out", "t.json"], "tokenizer", 2, r"ACTION: unknown action, expected train or bytes"),
    (["completion"], "completion", 2, r"SHELL is required"),
    (["completion", "tcsh"], "completion", 2, r'SHELL: unknown shell, expected bash, zsh or fish, got "tcsh"'),
]


class UsageTest(harness.CommandTest):
    def test_wrong_looks_are_refused_in_one_line(self):
        for arguments, status, pattern in WRONG_LOOKS:
            with self.subTest(arguments=ascii(arguments)[:100]):
                self.fail_with(self.look(*arguments), status, pattern)

    def test_wrong_calls_are_refused_in_one_line(self):
        for arguments, command, status, pattern in WRONG_CALLS:
            with self.subTest(arguments=ascii(arguments)[:100]):
                self.fail_with(self.call(*arguments), status, pattern, command)

    def test_nothing_is_written_for_a_wrong_call(self):
        answer = self.look("the road", "--output", "first.html", "--output", "second.gif")
        self.fail_with(answer, 2, r"second\.gif")
        answer = self.look("the road", "--output", "first.html", "--layer", "7")
        self.fail_with(answer, 2, r"--layer")
        self.assertFalse(os.path.exists(self.path("first.html")))

    def test_an_endless_text_is_refused(self):
        self.fail_with(self.look("--file", "/dev/zero"), 2, r"/dev/zero: the text is too long.*8 MiB")

    def test_a_number_of_threads_that_is_none_is_refused(self):
        for wrong in ("abc", "0", "-1", "2x", "100000"):
            answer = self.look("the road", environment={"QKV_NUM_THREADS": wrong})
            self.fail_with(answer, 2, rf'QKV_NUM_THREADS: bad number, expected a whole number from 1 to 1024, got "{wrong}"')
        for right in ("", "2"):
            self.succeed(self.look("the road", environment={"QKV_NUM_THREADS": right}))

    def test_help_has_a_usage_and_an_example(self):
        self.assertIn("qkv COMMAND", self.succeed(self.call("--help")))
        self.assertEqual(self.succeed(self.call("-h")), self.succeed(self.call("--help")))
        for command in ("look", "explain", "models", "inspect", "bench", "completion"):
            with self.subTest(command=command):
                text = self.succeed(self.call(command, "--help"))
                self.assertIn(f"Usage: qkv {command}", text)
                self.assertRegex(text, rf"Examples?:\n  .*qkv {command}")
                self.assertIn(f"  {command} ", self.succeed(self.call("--help")))
                self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_version(self):
        self.assertRegex(self.succeed(self.call("--version")), r"\Aqkv \d+\.\d+\.\d+\n\Z")


class HostileInputTest(harness.CommandTest):
    def test_random_bytes_as_text(self):
        source = random.Random(11)
        for case in range(80):
            text = bytes(source.randrange(1, 256) for _ in range(source.randrange(1, 40)))
            self.check_ends_well(case, ["--", text])

    def test_random_characters_as_text(self):
        source = random.Random(12)
        for case in range(80):
            text = "".join(chr(source.choice((source.randrange(1, 0x300), source.randrange(0xe000, 0x11000))))
                           for _ in range(source.randrange(1, 30)))
            self.check_ends_well(case, ["--json", "--", text.encode()])

    def test_hostile_values_of_every_option(self):
        values = ["", "0", "-0", "1" * 400, "-" + "1" * 400, "NaN", "inf", "1e999", "0x7fffffff", "2147483648",
                  "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551616", "1_000",
                  "%s%n", "--", "-", "\n", "[1]", "{}", "%%", "1,1,1,1", "0-0", "," * 1000, "\u00bd"]
        for option in ("--layer", "--head", "--top", "--threads", "--token"):
            for value in values:
                with self.subTest(option=option, value=value):
                    self.check_ends_well(option, ["the road", option, value])

    def check_ends_well(self, case, arguments):
        answer = self.look(*arguments)
        with self.subTest(case=case, arguments=arguments):
            if answer.returncode == 0:
                self.assertEqual(answer.stderr, b"")
            else:
                self.assertIn(answer.returncode, (2, 3))
                self.fail_with(answer, answer.returncode, r".")


class CompletionTest(harness.CommandTest):
    def complete(self, *words):
        """What bash offers for the last word."""
        script = self.file("completion.bash", self.succeed(self.call("completion", "bash")))
        program = (f'source "{script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _qkv; '
                   'printf "%s\\n" "${COMPREPLY[@]}"')
        answer = subprocess.run(["bash", "--norc", "-c", program, "bash", *words], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, cwd=self.folder, timeout=harness.SECONDS)
        self.assertEqual(answer.stderr, b"")
        return answer.stdout.decode().split()

    def test_bash_completes_commands_options_and_values(self):
        self.assertEqual(self.complete("qkv", "l"), ["look"])
        self.assertEqual(self.complete("qkv", "look", "--to"), ["--token", "--top"])
        self.assertEqual(self.complete("qkv", "look", "--model", "mini"), ["minilm"])
        self.assertEqual(set(self.complete("qkv", "look", "--model", "ti")), {"tiny"})  # a model, and a folder here
        self.assertEqual(self.complete("qkv", "look", "--file", "tiny/con"), ["tiny/config.json"])
        self.assertEqual(self.complete("qkv", "inspect", "tiny/mod"), ["tiny/model.safetensors"])
        self.assertEqual(self.complete("qkv", "completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(self.complete("qkv", "look", "--layer", ""), [])

    def test_every_option_of_the_help_is_completed(self):
        for shell in ("bash", "zsh", "fish"):
            script = self.succeed(self.call("completion", shell))
            for option in ("file", "model", "token", "layer", "head", "top", "output", "json", "truncate", "skip-first",
                           "threads", "help"):
                self.assertRegex(script, rf"(--|-l ){option}\b", shell)


if __name__ == "__main__":
    unittest.main()
