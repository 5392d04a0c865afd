"""A lesson shows its program's own output, source and picture, in both languages.

usage: lesson_test.py PROJECT LESSON PROGRAM PICTURE_PROGRAM [ARGUMENT]...    arguments are the program's
A lesson shows the output in pieces: its text blocks, joined by empty lines, are the whole of it. Its C++ blocks stand
in the example's files as they are.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from examples_test import shown_blocks

PROJECT, LESSON, PROGRAM, PICTURE = pathlib.Path(sys.argv[1]), *sys.argv[2:5]
TUTORIAL = PROJECT / "docs" / "tutorial"
PAGES = [TUTORIAL / f"{LESSON}.md", TUTORIAL / f"{LESSON}.zh.md"]
DECIMAL = re.compile(r"-?\d+\.\d+")


def shown(page, language):
    return [text for kind, text in shown_blocks(page) if kind == language]


def units(decimal):
    """A decimal number in units of its last place."""
    return int(decimal.replace(".", ""))


class Lesson(unittest.TestCase):
    maxDiff = None

    def assert_same_output(self, page, program):
        """The same text. Machines sum in different orders, so a decimal may be off by one in its last place."""
        if DECIMAL.sub("#", page) != DECIMAL.sub("#", program):
            self.assertEqual(page, program)
        for mine, theirs in zip(DECIMAL.findall(page), DECIMAL.findall(program)):
            self.assertLessEqual(abs(units(mine) - units(theirs)), 1, f"{mine} in the lesson, {theirs} computed")

    def test_the_output_is_the_programs(self):
        output = subprocess.run([PROGRAM, *sys.argv[5:]], check=True, capture_output=True, text=True).stdout.rstrip("\n")
        for page in PAGES:
            with self.subTest(page=page.name):
                self.assert_same_output("\n\n".join(shown(page, "text")), output)

    def test_the_source_is_the_programs(self):
        name = pathlib.Path(PROGRAM).name.removeprefix("example_")
        source = "".join(path.read_text(encoding="utf-8") for path in (PROJECT / "examples").glob(f"{name}.*"))
        for page in PAGES:
            with self.subTest(page=page.name):
                self.assertTrue(shown(page, "cpp"))
                for block in shown(page, "cpp"):
                    self.assertIn(block, source)

    def test_the_picture_is_the_programs(self):
        for page, language in zip(PAGES, ("en", "zh")):
            name = f"images/{page.stem}.png"
            with self.subTest(picture=name), tempfile.TemporaryDirectory() as folder:
                made = pathlib.Path(folder) / "made.png"
                subprocess.run([PICTURE, language, made], check=True)
                self.assertIn(f"]({name})", page.read_text(encoding="utf-8"))
                stored, fresh = (TUTORIAL / name).read_bytes(), made.read_bytes()
                # Which font draws Chinese is the machine's choice: there only the paper's size must agree.
                end = None if language == "en" else 33
                self.assertTrue(stored[:end] == fresh[:end], f"{name} is not what {PICTURE} draws")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
