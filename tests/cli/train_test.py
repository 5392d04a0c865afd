"""qkv train: runs, stops of every kind, resuming with the same bits, and bad input."""

import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
import unittest

from harness import COMMAND, CommandTest, ENVIRONMENT, SANITIZED

SIZES = ("--layers", "2", "--heads", "2", "--width", "32", "--context", "16", "--batch", "4", "--threads", "2",
         "--checkpoint-every", "5", "--validate-every", "10", "--sample-every", "15", "--dropout", "0.1")


def sizes(arguments):
    """SIZES, without those that are given."""
    pairs = zip(SIZES[::2], SIZES[1::2])
    return [word for pair in pairs if pair[0] not in arguments for word in pair]


def text(lines=400, seed=1):
    words = "the chicken did not cross road because it was too tired and keys to cabinet are on table".split()
    choose = random.Random(seed)
    return "".join(" ".join(choose.choices(words, k=8)).capitalize() + ".\n" for _ in range(lines))


class TrainTest(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.file("text.txt", text())

    def train(self, folder, *arguments, **options):
        return self.call("train", self.text, "--out", folder, *sizes(arguments), *arguments, **options)

    def log(self, folder):
        with open(self.path(folder, "log.jsonl")) as file:
            return [json.loads(line) for line in file]

    def bytes_of(self, *names):
        with open(self.path(*names), "rb") as file:
            return file.read()

    def checkpoints(self, folder):
        return sorted(os.listdir(self.path(folder, "checkpoints")))


class Whole(TrainTest):
    def test_a_run_learns_and_leaves_what_it_says(self):
        answer = self.succeed(self.train("whole", "--steps", "60", "--lr", "0.01"))
        self.assertRegex(answer, r"step +60 of 60 +loss \d")
        self.assertRegex(answer, r"validation loss \d.*bits per byte")
        log = self.log("whole")
        losses = [line["loss"] for line in log if "loss" in line]
        self.assertEqual([line["step"] for line in log if "loss" in line], list(range(1, 61)))
        self.assertGreater(losses[0], 5, "near ln 256 at first")
        self.assertLess(losses[-1], losses[0] - 1.5)
        self.assertEqual(self.checkpoints("whole"), [f"step-{step:08}.safetensors" for step in (50, 55, 60)])
        self.assertEqual(self.bytes_of("whole", "loss.png")[:4], b"\x89PNG")
        for name in ("config.json", "model.safetensors", "tokenizer.json", "run.json"):
            self.assertTrue(self.bytes_of("whole", name))

    def test_a_reader_that_leaves_does_not_end_it(self):
        """qkv train ... | head -1: the run goes on and leaves its model."""
        reader, writer = os.pipe()
        os.close(reader)
        answer = self.train("unread", "--steps", "20", stdout=writer)
        os.close(writer)
        self.assertEqual((answer.returncode, answer.stderr), (0, b""))
        self.assertEqual(len([line for line in self.log("unread") if "loss" in line]), 20)
        self.assertTrue(self.bytes_of("unread", "model.safetensors"))

    def test_samples_now_and_then(self):
        answer = self.succeed(self.train("samples", "--steps", "20", "--sample-every", "8"))
        samples = [line for line in self.log("samples") if "sample" in line]
        self.assertEqual([line["step"] for line in samples], [8, 16])
        for line in samples:
            self.assertTrue(line["sample"])
            self.assertIn(line["prompt"], text())
            self.assertRegex(answer, rf"step +{line['step']} of 20   {re.escape(line['prompt'])} » ")
        self.assertEqual(len({line["prompt"] for line in samples}), 1, "always the same words")
        self.assertTrue(answer.isascii() or answer.replace("\n", "").isprintable())
        self.succeed(self.train("none", "--steps", "20", "--sample-every", "0"))
        self.assertFalse([line for line in self.log("none") if "sample" in line])
        self.assertEqual(self.bytes_of("none", "model.safetensors"), self.bytes_of("samples", "model.safetensors"),
                         "samples change nothing")

    def test_the_model_is_stored_in_the_type_that_was_asked_for(self):
        self.succeed(self.train("half", "--steps", "2", "--export-dtype", "bf16"))
        self.succeed(self.train("full", "--steps", "2"))
        half, full = (len(self.bytes_of(name, "model.safetensors")) for name in ("half", "full"))
        self.assertLess(half, 0.6 * full)
        self.assertEqual(json.loads(self.bytes_of("half", "config.json"))["dtype"], "bfloat16")
        self.succeed(self.call("inspect", self.path("half")))

    def test_texts_of_a_bpe_tokenizer(self):
        self.succeed(self.call("tokenizer", "train", self.text, "--vocab", "300", "--out", "tokenizer.json"))
        self.succeed(self.train("bpe", "--tokenizer", "tokenizer.json", "--steps", "3"))
        self.assertEqual(json.loads(self.bytes_of("bpe", "config.json"))["vocab_size"], 300)

    def test_a_flag_wins_over_the_file(self):
        self.file("config.json", json.dumps({"layers": 1, "steps": 2, "lr": 0.5}))
        self.succeed(self.call("train", self.text, "--out", "config", "--config", "config.json", "--heads", "2",
                               "--width", "16", "--context", "8", "--batch", "2", "--steps", "3"))
        run = json.loads(self.bytes_of("config", "run.json"))
        self.assertEqual((run["layers"], run["steps"], run["lr"]), (1, 3, 0.5))


def half_written(folder):
    """Checkpoints that are being written, or that a kill left so."""
    try:
        return [name for name in os.listdir(os.path.join(folder, "checkpoints")) if ".safetensors." in name]
    except FileNotFoundError:
        return []


def kill_after(process, seconds):
    """Whether it still ran then."""
    try:
        process.wait(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True


def kill_inside_a_write(process, folder):
    """Whether a checkpoint was half written when it died."""
    while process.poll() is None:
        if half_written(folder):
            process.kill()
            process.wait()
            return bool(half_written(folder))
    return False


class ResumedTest(TrainTest):
    """Has a run that was never stopped, for runs that were to be compared with."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        answer = subprocess.run([COMMAND, "train", cls.text, "--out", "unbroken", *SIZES, "--steps", "40"],
                                cwd=cls.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True)
        assert answer.returncode == 0, answer.stderr

    def same_as_unbroken(self, folder):
        for name in ("model.safetensors", "log.jsonl", "checkpoints/step-00000040.safetensors"):
            self.assertEqual(self.bytes_of(folder, name), self.bytes_of("unbroken", name), name)

    def files(self, folder):
        return sorted(os.path.relpath(os.path.join(parent, name), self.path(folder))
                      for parent, _, names in os.walk(self.path(folder)) for name in names)

    def start(self, folder, *arguments):
        steps = [] if "--steps" in arguments else ["--steps", "40"]
        return subprocess.Popen([COMMAND, "train", self.text, "--out", folder, *sizes(arguments), *steps, *arguments],
                                cwd=self.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Broken(ResumedTest):
    """However a run is stopped, going on ends with the bits of the run that was not."""

    def test_killed_at_random_moments(self):
        choose = random.Random(7)
        kills, folder = 0, "killed"
        for _ in range(60):
            with self.start(folder, "--resume") as process:
                if not kill_after(process, choose.uniform(0.005, 0.4 if not SANITIZED else 4)):
                    break
                kills += 1
        self.assertGreater(kills, 0)
        self.succeed(self.train(folder, "--steps", "40", "--resume"))
        self.same_as_unbroken(folder)
        self.assertEqual(self.files(folder), self.files("unbroken"), "nothing half-written stays")

    def test_killed_before_older_checkpoints_were_removed(self):
        self.succeed(self.train("crowded", "--steps", "40"))
        shutil.copy(self.path("crowded", "checkpoints", "step-00000030.safetensors"),
                    self.path("crowded", "checkpoints", "step-00000025.safetensors"))
        self.succeed(self.train("crowded", "--steps", "40", "--resume"))
        self.same_as_unbroken("crowded")
        self.assertEqual(self.files("crowded"), self.files("unbroken"))

    def test_killed_inside_a_checkpoints_write(self):
        larger = ("--layers", "2", "--width", "128", "--steps", "12", "--checkpoint-every", "2")
        self.succeed(self.train("larger", *larger))
        kills, folder = 0, "cut"
        for _ in range(6):
            with self.start(folder, *larger, "--resume") as process:
                kills += kill_inside_a_write(process, self.path(folder))
        self.succeed(self.train(folder, *larger, "--resume"))
        self.assertGreater(kills, 0)
        for name in ("model.safetensors", "log.jsonl", "checkpoints/step-00000012.safetensors"):
            self.assertEqual(self.bytes_of(folder, name), self.bytes_of("larger", name), name)
        self.assertEqual(self.files(folder), self.files("larger"), "nothing half-written stays")

    def test_ctrl_c_saves(self):
        process = self.start("interrupted")
        while not os.path.exists(self.path("interrupted", "checkpoints")):
            time.sleep(0.005)
            self.assertIsNone(process.poll(), "it should still run")
        process.send_signal(signal.SIGINT)
        message = process.communicate()[1].decode()
        if process.returncode == 0:
            self.skipTest("it was done before the signal came")
        self.assertEqual(process.returncode, 130, message)
        self.assertRegex(message, r"saved after step \d+; --resume goes on")
        self.succeed(self.train("interrupted", "--steps", "40", "--resume"))
        self.same_as_unbroken("interrupted")

    def test_a_damaged_checkpoint_is_named_and_the_one_before_offered(self):
        shutil.copytree(self.path("unbroken"), self.path("damaged"))
        last = self.path("damaged", "checkpoints", "step-00000040.safetensors")
        with open(last, "r+b") as file:
            file.seek(-5, os.SEEK_END)
            file.write(b"x")
        self.fail_with(self.train("damaged", "--steps", "40", "--resume"), 3,
                       r"step-00000040\.safetensors.*damaged.*step-00000035", "train")
        os.remove(last)
        self.succeed(self.train("damaged", "--steps", "40", "--resume"))
        self.same_as_unbroken("damaged")

    def test_killed_between_the_last_checkpoint_and_the_model(self):
        shutil.copytree(self.path("unbroken"), self.path("late"))
        os.remove(self.path("late", "model.safetensors"))
        for name in ("model.safetensors.Ab3dEf", "run.json.012345", "tokens/train.safetensors.zzzzzz"):
            self.file(os.path.join("late", name), "half a fi")
        self.succeed(self.train("late", "--steps", "40", "--resume"))
        self.same_as_unbroken("late")
        self.assertEqual(self.files("late"), self.files("unbroken"))

    def test_a_longer_run_goes_on(self):
        shutil.copytree(self.path("unbroken"), self.path("longer"))
        self.succeed(self.train("longer", "--steps", "45", "--resume"))
        self.assertEqual([line["step"] for line in self.log("longer") if "loss" in line], list(range(1, 46)))

    def test_settings_come_back_unless_a_flag_says_otherwise(self):
        def resume(*arguments):
            return self.call("train", self.text, "--out", "settings", "--resume", *arguments)
        kept = {"keep": 5, "export_dtype": "bf16", "validation": 0.3, "checkpoint_every": 2, "validate_every": 4,
                "sample_every": 6}
        flags = [word for key, value in kept.items() for word in ("--" + key.replace("_", "-"), str(value))]
        self.succeed(self.train("settings", "--steps", "10", *flags))
        names = [f"step-{step:08}.safetensors" for step in (2, 4, 6, 8, 10)]
        self.assertEqual(self.checkpoints("settings"), names)
        model = len(self.bytes_of("settings", "model.safetensors"))
        self.succeed(resume("--steps", "12"))
        run = json.loads(self.bytes_of("settings", "run.json"))
        self.assertEqual({key: run[key] for key in kept}, kept)
        self.assertEqual(self.checkpoints("settings"), [*names[1:], "step-00000012.safetensors"])
        self.assertEqual(len(self.bytes_of("settings", "model.safetensors")), model)
        self.assertEqual([line["step"] for line in self.log("settings") if "validation_loss" in line], [4, 8, 12])
        self.assertEqual([line["step"] for line in self.log("settings") if "sample" in line], [6, 12])
        self.succeed(resume("--steps", "14", "--keep", "2"))
        self.assertEqual(self.checkpoints("settings"), ["step-00000012.safetensors", "step-00000014.safetensors"])
        self.assertEqual(json.loads(self.bytes_of("settings", "run.json"))["keep"], 2)

    def test_a_run_is_made_longer_but_not_shorter(self):
        shutil.copytree(self.path("unbroken"), self.path("shorter"))
        before = self.bytes_of("shorter", "run.json")
        for steps in ("39", "9", "0"):
            self.fail_with(self.train("shorter", "--steps", steps, "--resume"), 2,
                           rf"--steps: .*expected at least 40, got {steps}$", "train")
        self.assertEqual(self.bytes_of("shorter", "run.json"), before)
        self.succeed(self.train("shorter", "--steps", "60", "--resume"))
        run = json.loads(self.bytes_of("shorter", "run.json"))
        self.assertEqual((run["steps"], run["warmup"]), (60, 4), "the warm-up is that of the 40 steps")

    def test_a_finished_run_says_so(self):
        shutil.copytree(self.path("unbroken"), self.path("finished"))
        answer = self.succeed(self.train("finished", "--resume"))
        self.assertRegex(answer, r"^the run is finished: all its 40 steps are done")
        self.assertRegex(answer, r"\nstep +40 of 40   validation \d\.\d{4}\n")
        self.assertNotRegex(answer, r"tokens/s|loss 0\.0000|left")
        self.same_as_unbroken("finished")

    def test_what_contradicts_the_run_is_refused(self):
        self.fail_with(self.train("unbroken", "--steps", "40"), 2, r"holds a run: --resume", "train")
        """By the flag that sets it; what has none, by its key in --config."""
        for arguments, pattern in ((("--weight-decay", "0.5"), r"--weight-decay: .*0\.1.*0\.5"),
                                   (("--seed", "1"), r"--seed: "), (("--lr", "0.5"), r"--lr: "),
                                   (("--dtype", "bf16"), r'--dtype: .*"f32".*"bf16"')):
            self.fail_with(self.train("unbroken", "--steps", "40", "--resume", *arguments), 2, pattern, "train")
        self.fail_with(self.call("train", self.text, "--out", "unbroken", "--resume", "--width", "64"), 2,
                       r"--width: .*32.*64", "train")
        for config, pattern in (({"width": 64}, r"--width: .*32.*64"), ({"vocab": 300, "heads": 4}, r"vocab.*256.*300"),
                                ({"beta2": 0.5}, r"--config, beta2: .*0\.95.*0\.5")):
            name = self.file("contradicts.json", json.dumps(config))
            self.fail_with(self.call("train", self.text, "--out", "unbroken", "--resume", "--config", name), 2, pattern,
                           "train")
        other = self.file("other.txt", text(seed=2))
        self.fail_with(self.call("train", other, "--out", "unbroken", *SIZES, "--resume"), 2, r"other texts", "train")


class Disk(ResumedTest):
    """Disks that are full or read-only."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.disk = cls.path("disk")
        os.mkdir(cls.disk)
        cls.mounted = False

    def tearDown(self):
        if self.mounted:
            subprocess.run(["umount", self.disk], check=True)
        self.mounted = False

    def mount(self, options):
        how = ["-o", f"remount,{options}"] if self.mounted else ["-t", "tmpfs", "-o", options, "tmpfs"]
        try:
            answer = subprocess.run(["mount", *how, self.disk], capture_output=True, text=True)
            refusal = answer.stderr.strip() if answer.returncode else ""
        except OSError as error:
            refusal = str(error)
        if refusal and not self.mounted:
            self.skipTest("mounting a disk of its own is refused: " + refusal)
        self.assertEqual(refusal, "")
        self.mounted = True

    def fail_to_write(self, answer, pattern):
        lines = answer.stderr.decode().splitlines()
        self.assertEqual(answer.returncode, 1, lines)
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], pattern)

    def test_a_full_disk_loses_nothing(self):
        """Full in turn for the tokens, the first checkpoint, a later one, the model beside it."""
        for kilobytes in (40, 200, 500, 700, 1100, 1500, 1700):
            with self.subTest(kilobytes=kilobytes):
                self.mount(f"size={kilobytes}k")
                self.fail_to_write(self.train("disk/run", "--steps", "40", "--resume"),
                                   r"^qkv: train: disk/run\S*: cannot write: No space left on device$")
                self.mount("size=8m")
                self.succeed(self.train("disk/run", "--steps", "40", "--resume"))
                self.same_as_unbroken("disk/run")
                self.assertEqual(self.files("disk/run"), self.files("unbroken"))
                self.tearDown()

    def test_a_read_only_disk(self):
        self.mount("size=8m")
        self.succeed(self.train("disk/run", "--steps", "20"))
        before = self.bytes_of("disk/run", "checkpoints", "step-00000020.safetensors")
        self.mount("ro")
        for folder, flags in (("disk/run", ["--resume"]), ("disk/new", []), ("disk/new", ["--resume"])):
            self.fail_to_write(self.train(folder, "--steps", "40", *flags),
                               rf"^qkv: train: {folder}\S*: cannot write: Read-only file system$")
        self.mount("rw")
        self.assertEqual(self.bytes_of("disk/run", "checkpoints", "step-00000020.safetensors"), before)
        self.succeed(self.train("disk/run", "--steps", "20", "--resume"))


class BadInput(TrainTest):
    def refuse(self, content, status, pattern, *arguments):
        name = self.file("bad.txt", content)
        self.fail_with(self.call("train", name, "--out", "bad", *SIZES, *arguments), status, pattern, "train")
        self.assertFalse(os.path.exists(self.path("bad", "model.safetensors")))
        shutil.rmtree(self.path("bad"), ignore_errors=True)

    def test_texts(self):
        self.refuse(b"", 2, r"empty")
        self.refuse(b"abc\0def" * 100, 3, r"bad\.txt.*NUL.*offset 3")
        self.refuse(b"abc\xff" * 100, 3, r"bad\.txt.*UTF-8")
        self.refuse(b"short", 2, r"shorter than the context")
        self.fail_with(self.call("train", "none.txt", "--out", "bad"), 3, r"none\.txt", "train")
        self.fail_with(self.call("train", "--out", "bad"), 2, r"no text", "train")
        self.fail_with(self.call("train", self.text), 2, r"--out", "train")

    def test_a_text_without_line_breaks(self):
        for name, letters, held_out in (("ascii", "abcdefgh ", 90), ("faces", "\N{GRINNING FACE}", 92)):
            content = (letters * 1800).encode()[:1800]
            line, folder = self.file(f"{name}.txt", content), f"line-{name}"
            self.succeed(self.call("train", line, "--out", folder, *SIZES, "--steps", "1"))
            tokens = self.bytes_of(folder, "tokens", "validation.safetensors")
            self.assertEqual(bytes(tokens[-4 * held_out::4]), content[-held_out:], "whole characters")
            self.assertIn(b'"shape":[%d]' % held_out, tokens.replace(b" ", b""))
        for share in ("1e-9", "1e-17", "0.005"):
            self.fail_with(self.call("train", "ascii.txt", "--out", "held", *SIZES, "--validation", share), 2,
                           r"--validation: .*held-out part.*expected more than 16 tokens.*, got \d$", "train")
        self.assertFalse(os.path.exists(self.path("held")))

    def test_a_start_that_failed_is_no_run(self):
        short = self.file("few.txt", "too short")
        for text_file, arguments, status in ((short, (), 2), (self.text, ("--batch", "100000000"), 4)):
            answer = self.call("train", text_file, "--out", "failed", *sizes(arguments), *arguments)
            self.assertEqual(answer.returncode, status, answer.stderr)
            self.assertFalse(os.path.exists(self.path("failed")), "nothing is written before all is checked")
        diverging = ("--steps", "9", "--lr", "1e38", "--warmup", "0", "--clip", "0")
        for again in ((), ("--resume",)):
            folder = "first" + "".join(again)
            self.assertEqual(self.train(folder, *diverging).returncode, 1)
            self.assertTrue(self.bytes_of(folder, "run.json"))
            self.succeed(self.train(folder, *again, "--steps", "2", "--lr", "0.01", "--width", "16", "--clip", "1"))
            self.assertEqual(json.loads(self.bytes_of(folder, "config.json"))["n_embd"], 16)
            self.assertEqual([line["step"] for line in self.log(folder) if "loss" in line], [1, 2])

    def test_one_process_at_a_time(self):
        refusal = r"train: locked: another process trains in this folder$"
        process = subprocess.Popen([COMMAND, "train", self.text, "--out", "locked", *SIZES, "--steps", "1000000"],
                                   cwd=self.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not os.path.exists(self.path("locked", "log.jsonl")):
            time.sleep(0.005)
            self.assertIsNone(process.poll(), "it should still run")
        for arguments in ((), ("--resume",)):
            self.fail_with(self.train("locked", *arguments), 2, refusal, "train")
        process.kill()
        process.wait()
        with open(self.path("locked", "run.lock")) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a kill leaves no lock

    def test_a_configuration_that_contradicts_itself(self):
        for config, pattern in (({"vocab": 999}, r"vocab: .*expected 256, got 999$"),
                                ({"length": 64, "context": 16}, r"own\.json: length: .*expected 16, got 64$")):
            name = self.file("own.json", json.dumps(config))
            self.fail_with(self.call("train", self.text, "--out", "bad", "--config", name), 2, pattern, "train")
        self.file("own.json", json.dumps({"warmup": 2, "length": 8, "vocab": 256}))
        self.succeed(self.train("named", "--config", "own.json", "--steps", "3"))
        run = json.loads(self.bytes_of("named", "run.json"))
        self.assertEqual((run["warmup"], run["context"], run["length"], run["vocab"]), (2, 16, 16, 256))

    def test_messages_name_file_and_option(self):
        self.file("s.txt", "no tokenizer")
        for arguments, status, pattern in (
                (("--tokenizer", "s.txt"), 3, r"s\.txt: not valid JSON"),
                (("--lr", "-1"), 2, r"--lr: .*at least 0, got .-1.$"),
                (("--validation", "1"), 2, r"--validation: .*from 0 to 0\.9999\d*, got .1.$"),
                (("--dropout", "0.999999999"), 2, r"--dropout: .*from 0 to 0\.99999994, got .0\.999999999.$"),
                (("--clip", "-2"), 2, r"--clip: .*got .-2.$")):
            self.fail_with(self.train("bad", *arguments), status, pattern, "train")
        self.fail_with(self.call("train", self.text, "--out", ""), 2, r"--out: no folder for the run", "train")
        self.succeed(self.train("broken", "--steps", "1"))
        self.file(os.path.join("broken", "tokenizer.json"), "{")
        self.fail_with(self.train("broken", "--resume"), 3, r"broken/tokenizer\.json: not valid JSON", "train")

    def test_options(self):
        for arguments, status, pattern in (
                (("--dtype", "f16"), 2, r"--dtype"), (("--clip", "-1"), 2, r"clip"),
                (("--lr", "nan"), 2, r"--lr"), (("--accumulate", "0"), 2, r"--accumulate"),
                (("--tokenizer", "none.json"), 3, r"none\.json"), (("--config", "none.json"), 3, r"none\.json"),
                (("--validation", "1"), 2, r"validation")):
            self.fail_with(self.train("bad", *arguments), status, pattern, "train")
        for arguments, pattern in ((("--heads", "5"), r"heads|width"), (("--dropout", "1"), r"dropout"),
                                   (("--layers", "0"), r"--layers")):
            self.fail_with(self.call("train", self.text, "--out", "bad", *arguments), 2, pattern, "train")
        self.file("wrong.json", '{"layer": 3}')
        self.fail_with(self.train("bad", "--config", "wrong.json"), 3, r"wrong\.json.*layer", "train")

    def test_a_loss_that_is_no_number_names_its_step_and_keeps_the_last_checkpoint(self):
        arguments = ("--steps", "50", "--lr", "1e30", "--warmup", "0", "--clip", "0", "--checkpoint-every", "1")
        answer = self.train("diverges", *arguments)
        lines = answer.stderr.decode().splitlines()
        self.assertEqual((answer.returncode, len(lines)), (1, 1), lines)
        step = int(re.search(r"step (\d+)", lines[0])[1])
        last = self.checkpoints("diverges")[-1]
        self.assertEqual(last, f"step-{step - 1:08}.safetensors", "all the steps before")
        self.assertFalse(re.search(rb"nan|inf", self.bytes_of("diverges", "log.jsonl")))
        before = self.bytes_of("diverges", "checkpoints", last)
        again = self.train("diverges", *arguments, "--resume")
        self.assertEqual((again.returncode, again.stderr), (1, answer.stderr))
        self.assertEqual(self.bytes_of("diverges", "checkpoints", last), before)

    def test_a_folder_that_cannot_be_written(self):
        self.file("plain", "a file")
        self.fail_with(self.train("plain"), 1, r"plain", "train")


if __name__ == "__main__":
    unittest.main()
