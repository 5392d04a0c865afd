"""qkv train: runs, stops of every kind, resuming with the same bits, and bad input."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

from harness import COMMAND, CommandTest, ENVIRONMENT, SANITIZED

SIZES = ("--layers", "2", "--heads", "2", "--width", "32", "--context", "16", "--batch", "4", "--threads", "2",
         "--checkpoint-every", "5", "--validate-every", "10", "--dropout", "0.1")


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
        return self.call("train", self.text, "--out", folder, *SIZES, *arguments, **options)

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


class Broken(TrainTest):
    """However a run is stopped, going on ends with the bits of the run that was not."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        answer = subprocess.run([COMMAND, "train", cls.text, "--out", "unbroken", *SIZES, "--steps", "40"],
                                cwd=cls.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True)
        assert answer.returncode == 0, answer.stderr

    def same_as_unbroken(self, folder):
        for name in ("model.safetensors", "log.jsonl", "checkpoints/step-00000040.safetensors"):
            self.assertEqual(self.bytes_of(folder, name), self.bytes_of("unbroken", name), name)

    def start(self, folder, *arguments):
        return subprocess.Popen([COMMAND, "train", self.text, "--out", folder, *SIZES, "--steps", "40", *arguments],
                                cwd=self.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def test_killed_at_random_moments(self):
        choose = random.Random(7)
        kills, folder = 0, "killed"
        for _ in range(60):
            process = self.start(folder, "--resume")
            try:
                process.wait(timeout=choose.uniform(0.005, 0.4 if not SANITIZED else 4))
                process.stderr.close()
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                process.stderr.close()
                kills += 1
        self.assertGreater(kills, 0)
        self.succeed(self.train(folder, "--steps", "40", "--resume"))
        self.same_as_unbroken(folder)
        self.assertEqual([name for name in self.checkpoints(folder) if not name.endswith(".safetensors")], [])

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

    def test_a_longer_run_goes_on(self):
        shutil.copytree(self.path("unbroken"), self.path("longer"))
        self.succeed(self.train("longer", "--steps", "45", "--resume"))
        self.assertEqual([line["step"] for line in self.log("longer") if "loss" in line], list(range(1, 46)))

    def test_what_contradicts_the_run_is_refused(self):
        self.fail_with(self.train("unbroken", "--steps", "40"), 2, r"holds a run: --resume", "train")
        for arguments, pattern in ((("--weight-decay", "0.5"), r"weight_decay.*0\.1.*0\.5"), (("--seed", "1"), r"seed"),
                                   (("--lr", "0.5"), r"lr"), (("--dtype", "bf16"), r"precision")):
            self.fail_with(self.train("unbroken", "--steps", "40", "--resume", *arguments), 2, pattern, "train")
        self.fail_with(self.call("train", self.text, "--out", "unbroken", "--resume", "--width", "64"), 2,
                       r"width.*32.*64", "train")
        other = self.file("other.txt", text(seed=2))
        self.fail_with(self.call("train", other, "--out", "unbroken", *SIZES, "--resume"), 2, r"other texts", "train")


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
        answer = self.train("diverges", "--steps", "50", "--lr", "1e30", "--warmup", "0", "--clip", "0")
        self.assertEqual(answer.returncode, 1, answer.stderr)
        self.assertRegex(answer.stderr.decode(), r"step \d+")
        self.assertFalse(os.path.exists(self.path("diverges", "checkpoints")) and
                         any("nan" in line for line in open(self.path("diverges", "log.jsonl"))))

    def test_a_folder_that_cannot_be_written(self):
        self.file("plain", "a file")
        self.fail_with(self.train("plain"), 1, r"plain", "train")


if __name__ == "__main__":
    unittest.main()
