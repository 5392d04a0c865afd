"""Files, closed pipes, full disks and Ctrl-C."""

import json
import os
import resource
import signal
import stat
import subprocess
import time
import unittest

import harness
import tiny_model

TEXT = "the chicken did cross the road because it was too tired"
MAGIC = {"html": b"<!doctype html>", "svg": b"<?xml", "png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF-"}


class FileTest(harness.CommandTest):
    def test_pictures_of_every_kind(self):
        arguments = [part for ending in MAGIC for part in ("--output", self.path("look." + ending))]
        answer = self.look(TEXT, "--token", "it", *arguments)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(answer.stderr.decode(), "".join(f"wrote {name}\n" for name in arguments[1::2]))
        self.assertIn(b"chicken", answer.stdout)
        for ending, magic in MAGIC.items():
            with open(self.path("look." + ending), "rb") as file:
                self.assertEqual(file.read(len(magic)).lower(), magic.lower(), ending)

    def test_the_ending_may_be_in_capitals(self):
        for ending, magic in MAGIC.items():
            name = self.path("capitals." + ending.upper())
            self.assertEqual(self.look(TEXT, "--output=" + name).returncode, 0)
            with open(name, "rb") as file:
                self.assertEqual(file.read(len(magic)).lower(), magic.lower(), ending)

    def test_no_file_without_output_and_no_leftovers(self):
        os.mkdir(self.path("empty"))
        before = sorted(os.listdir(self.folder))
        self.succeed(self.look(TEXT))
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        self.look(TEXT, "--output", self.path("empty", "a.html"), "--output", self.path("empty", "b.png"))
        self.assertEqual(sorted(os.listdir(self.path("empty"))), ["a.html", "b.png"])

    def test_a_file_is_replaced_whole_with_its_usual_rights(self):
        name = self.file("old.html", "old " * 100000)
        self.assertEqual(self.look(TEXT, "--output", name).returncode, 0)
        with open(name, "rb") as file:
            self.assertNotIn(b"old old", file.read())
        umask = os.umask(0)
        os.umask(umask)
        self.assertEqual(os.stat(name).st_mode & 0o777, 0o666 & ~umask)

    def test_a_link_is_written_through(self):
        target = self.file("target.html", "old")
        os.symlink(target, self.path("link.html"))
        self.assertEqual(self.look(TEXT, "--output", self.path("link.html")).returncode, 0)
        self.assertTrue(os.path.islink(self.path("link.html")))
        with open(target, "rb") as file:
            self.assertNotEqual(file.read(3), b"old")

    def test_links_that_lead_nowhere_yet_or_never(self):
        for ending, magic in MAGIC.items():
            with self.subTest(ending=ending):
                later, lost, ring = (self.path(f"{name}.{ending}") for name in ("later", "lost", "ring"))
                os.symlink("later-target." + ending, later)
                self.assertEqual(self.look(TEXT, "--output", later).returncode, 0)
                with open(self.path("later-target." + ending), "rb") as file:
                    self.assertEqual(file.read(len(magic)).lower(), magic.lower())
                os.symlink(self.path("none", "target." + ending), lost)
                os.symlink(ring, ring)
                self.fail_with(self.look(TEXT, "--output", lost), 1, r"lost.*No such file")
                self.fail_with(self.look(TEXT, "--output", ring), 1, r"ring.*levels of symbolic links")
                for link in (later, lost, ring):
                    self.assertTrue(os.path.islink(link))

    def test_what_is_no_regular_file_stays_what_it_is(self):
        for ending, magic in MAGIC.items():
            with self.subTest(ending=ending):
                pipe, link = self.path("pipe-" + ending), self.path("to-pipe." + ending)
                os.mkfifo(pipe)
                os.symlink(pipe, link)
                with open(self.path("read-" + ending), "w+b") as copy:
                    reader = subprocess.Popen(["cat", pipe], stdout=copy)
                    answer = self.look(TEXT, "--output", link)
                    if not stat.S_ISFIFO(os.stat(pipe).st_mode):
                        reader.kill()  # it would wait for ever
                    reader.wait()
                    self.assertEqual(answer.returncode, 0, answer.stderr)
                    copy.seek(0)
                    self.assertEqual(copy.read(len(magic)).lower(), magic.lower())
                self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))

    def test_one_enormous_word_draws_as_fast_as_any(self):
        for word in ("a" * 1_000_000, "a" + "\u0301" * 500_000):
            text = self.file("word.txt", word)
            for ending in MAGIC:
                with self.subTest(word=word[:2], ending=ending):
                    name = self.path("word." + ending)
                    start = time.monotonic()
                    self.assertEqual(self.look("--file", text, "--output", name).returncode, 0)
                    self.assertLess(time.monotonic() - start, 60 if harness.SANITIZED else 10)
                    self.assertLess(os.stat(name).st_size, 1 << 20)

    def test_places_that_cannot_be_written(self):
        os.mkdir(self.path("folder.png"))
        for name in (self.path("folder.png"), "/proc/look.png", "/sys/look.svg", "/proc/look.html",
                     self.path("none", "look.pdf")):
            with self.subTest(name=name):
                self.fail_with(self.look(TEXT, "--output", name), 1, "^qkv: look: " + name + ": cannot write")

    def test_a_full_disk_leaves_the_old_file(self):
        # A limit on the size of files stands in for the full disk.
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        for ending in MAGIC:
            with self.subTest(ending=ending):
                name = self.file("kept." + ending, "old")
                self.fail_with(self.look(TEXT, "--output", name, preexec_fn=limit), 1, r"kept\." + ending)
                with open(name, "rb") as file:
                    self.assertEqual(file.read(), b"old")
        self.assertCountEqual([name for name in os.listdir(self.folder) if name.startswith("kept.")],
                              ["kept." + ending for ending in MAGIC])


class StandardOutputTest(harness.CommandTest):
    CALLS = (["look", TEXT], ["look", TEXT, "--json"], ["models"], ["--help"], ["--version"], ["look", "--help"],
             ["completion", "zsh"])

    def calls(self):
        for call in self.CALLS:
            yield call + (["--model", self.model] if call[0] == "look" and TEXT in call else [])

    def test_a_full_disk(self):
        for call in self.calls():
            with self.subTest(call=call), open("/dev/full", "wb") as full:
                answer = self.call(*call, stdout=full)
                self.fail_with(answer, 1, r"standard output: cannot write: No space left on device",
                               command=call[0] if not call[0].startswith("-") else "")

    def test_a_reader_that_has_gone_is_no_failure(self):
        for call in self.calls():
            with self.subTest(call=call):
                reader, writer = os.pipe()
                os.close(reader)
                answer = self.call(*call, stdout=writer)
                os.close(writer)
                self.assertEqual((answer.returncode, answer.stderr), (0, b""))

    def test_head_takes_a_line_of_a_long_answer(self):
        script = '"$0" look --model "$1" --json "$2" | head -c 10; echo "${PIPESTATUS[0]}"'
        answer = subprocess.run(["bash", "-c", script, harness.COMMAND, self.model, TEXT * 4], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, timeout=harness.SECONDS)
        self.assertEqual((answer.stdout, answer.stderr), (b'{"model": 0\n', b""))

    def test_closed_standard_streams(self):
        for close in (">&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"):
            with self.subTest(close=close):
                output = self.path("closed.html")
                script = f'"$0" look --model "$1" "$2" --output "$3" {close} | cat; exit "${{PIPESTATUS[0]}}"'
                answer = subprocess.run(["bash", "-c", script, harness.COMMAND, self.model, TEXT, output],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=harness.SECONDS)
                self.assertEqual(answer.returncode, 0 if close == "<&-" else 1)
                with open(output, "rb") as file:
                    page = file.read()
                self.assertTrue(page.lower().startswith(MAGIC["html"]) and page.rstrip().endswith(b"</html>"))


class InterruptTest(harness.CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.long_model = tiny_model.write(cls.path("long"), tiny_model.config(layers=24, heads=2, positions=16384))
        cls.long_text = cls.file("long.txt", "the " * 16382)

    def start(self, *arguments, **options):
        return subprocess.Popen([harness.COMMAND, "look", *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, cwd=self.folder, env=harness.ENVIRONMENT, **options)

    def interrupt(self, process):
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=harness.SECONDS)
        return time.monotonic() - started, output, errors

    def test_control_c_ends_long_work_soon(self):
        for extra in ([], ["--output", self.path("never.html")]):
            process = self.start("--model", self.long_model, "--file", self.long_text, "--top", "1", "--token", "5",
                                 "--threads", "2", *extra)
            time.sleep(1.5)
            self.assertIsNone(process.poll(), "the work must be long enough to be interrupted")
            seconds, output, errors = self.interrupt(process)
            self.assertEqual((process.returncode, output), (130, b""), errors)
            self.assertRegex(errors.decode(), r"\Aqkv: [^\n]*\n\Z")
            self.assertLess(seconds, 5 if harness.SANITIZED else 1)  # 0.2 s, and what a busy machine adds
        self.assertFalse(os.path.exists(self.path("never.html")))

    def test_control_c_while_waiting_for_the_text(self):
        process = self.start("--model", self.model, "-", stdin=subprocess.PIPE)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=harness.SECONDS), 130)
        self.assertEqual(process.stderr.read(), b"qkv: interrupted\n")
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()

    @unittest.skipIf(harness.SANITIZED, "sanitizers reserve more address space than any limit allows")
    def test_too_little_memory(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (250 << 20, 250 << 20))
        answer = self.call("look", "--model", self.long_model, "--file", self.long_text, "--threads", "1",
                           preexec_fn=limit)
        self.fail_with(answer, 4, r"memory")

    @unittest.skipIf(harness.SANITIZED, "sanitizers reserve more address space than any limit allows")
    def test_pictures_with_ever_less_memory(self):
        statuses = set()
        for mebibytes in range(200, 801, 100):
            limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))
            with self.subTest(mebibytes=mebibytes):
                answer = self.look(TEXT, "--threads", "1", "--output", self.path("small.png"), preexec_fn=limit)
                statuses.add(answer.returncode)
                if answer.returncode != 0:
                    self.fail_with(answer, 4, r"memory")
        self.assertEqual(statuses, {0, 4})


if __name__ == "__main__":
    unittest.main()
