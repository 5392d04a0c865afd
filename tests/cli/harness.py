"""What the tests of the command share: running it, a tiny model, and checks of its answers."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

import tiny_model

COMMAND = os.environ["QKV_COMMAND"]
SANITIZED = bool(os.environ.get("QKV_SANITIZE"))
SECONDS = 120  # a call that takes longer hangs

# The user's own settings must not reach the tests.
ENVIRONMENT = {key: value for key, value in os.environ.items()
               if not key.startswith(("QKV_", "XDG_", "LC_")) and key not in
               ("NO_COLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "COLUMNS", "OMP_NUM_THREADS")}


class CommandTest(unittest.TestCase):
    """Has a temporary folder of its own with a tiny model in it."""

    longMessage = True

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="qkv-cli-")
        cls.model = tiny_model.write(cls.path("tiny"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    def path(cls, *names):
        return os.path.join(cls.folder, *names)

    @classmethod
    def file(cls, name, data):
        with open(cls.path(name), "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        return cls.path(name)

    def call(self, *arguments, environment=None, **options):
        """Runs the command; the answer has returncode, stdout and stderr (bytes)."""
        options.setdefault("stdin", subprocess.DEVNULL)
        if "input" in options:
            del options["stdin"]
        options.setdefault("stdout", subprocess.PIPE)
        return subprocess.run([COMMAND, *arguments], stderr=subprocess.PIPE, timeout=SECONDS, cwd=self.folder,
                              env={**ENVIRONMENT, **(environment or {})}, **options)

    def look(self, *arguments, **options):
        return self.call("look", "--model", self.model, *arguments, **options)

    def succeed(self, answer):
        self.assertEqual((answer.returncode, answer.stderr), (0, b""))
        return answer.stdout.decode()

    def json(self, *arguments, **options):
        return json.loads(self.succeed(self.look("--json", *arguments, **options)))

    def fail_with(self, answer, status, pattern, command="look"):
        """One line on standard error, and nothing else."""
        line = answer.stderr.decode()
        self.assertEqual(answer.returncode, status, line)
        self.assertFalse(answer.stdout, "nothing goes to standard output")
        self.assertTrue(line.endswith("\n"), line)
        self.assertTrue(line[:-1].isprintable(), "one line without control characters: " + ascii(line))
        self.assertTrue(line.startswith(f"qkv: {command}: " if command else "qkv: "), line)
        self.assertRegex(line, pattern)
        self.assertLess(len(line), 6000)
