"""The third lesson's runs: what their numbers say fits together, a small run prints the same lines, and sizes that do
not fit are refused.

usage: real_size_test.py PROJECT PROGRAM
"""
import pathlib
import re
import subprocess
import sys
import unittest

from examples_test import shown_blocks

PROJECT, PROGRAM = pathlib.Path(sys.argv[1]), sys.argv[2]
PAGES = [PROJECT / "docs" / "tutorial" / f"3-real-size{language}.md" for language in ("", ".zh")]
NUMBER = re.compile(r"\d+(?:\.\d+)?")
SMALL = ["--width", "96", "--heads", "6"]
OPERATIONS = 2 * 50 * 4 * 12288 ** 2 + 2 * 50 * 51 * 12288


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)


def lines(output):
    """The lines without numbers, and without the processor's name."""
    text = [line for line in output.splitlines() if "threads" not in line]
    return [re.sub(r"-?#", "#", " ".join(NUMBER.sub("#", line).split())) for line in text]


def values(block, label):
    line = next(line for line in block.splitlines() if line.startswith(label))
    return [float(number) for number in NUMBER.findall(line)]


class RealSize(unittest.TestCase):
    def runs(self):
        """What the pages show of runs on a real machine, float32 and bfloat16: the same on both."""
        english, chinese = ([text for kind, text in shown_blocks(page) if kind == "console"] for page in PAGES)
        self.assertEqual(english, chinese)
        self.assertEqual(len(english), 2)
        return zip(english, ("f32", "bf16"), (4, 2))

    def test_a_small_run_prints_the_same_lines(self):
        for shown, dtype, _ in self.runs():
            answer = run(*SMALL, "--dtype", dtype)
            self.assertEqual((answer.returncode, answer.stderr), (0, ""))
            self.assertEqual(lines(answer.stdout), lines(shown))

    def test_what_the_runs_say_fits_together(self):
        for shown, _, size in self.runs():
            operations, read = values(shown, "peaks")
            for seconds, share, of_reading, resident in zip(
                    values(shown, "the layer"), values(shown, "share of the peak of operations"),
                    values(shown, "share of the peak of reading"), values(shown, "memory while it runs")):
                self.assertAlmostEqual(share, OPERATIONS / seconds / operations / 1e9, delta=0.01)
                self.assertAlmostEqual(of_reading, 4 * 12288 ** 2 * size / seconds / read / 1e9, delta=0.01)
                self.assertLessEqual(4 * 12288 ** 2 * size / 1e9, resident)
            self.assertLess(values(shown, "memory at most")[0], 4 * 12288 ** 2 * (4 + size) / 1e9 + 0.2)

    def test_what_is_refused(self):
        for arguments, status, message in [
                (["--width", "4000000", "--heads", "1"], 4, "the layer: does not fit in memory, expected .* at most, got"),
                (["--width", "96", "--heads", "7"], 2, "--width: the width cannot be divided among the heads"),
                (["--width", "0"], 2, "--width"), ([*SMALL, "--tokens", "51"], 2, "--tokens: the text is too short"),
                (["--dtype", "f16"], 2, "--dtype"), (["--nothing"], 2, "--nothing")]:
            with self.subTest(arguments=arguments):
                answer = run(*arguments)
                self.assertEqual((answer.returncode, answer.stdout), (status, ""))
                self.assertRegex(answer.stderr, message)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
