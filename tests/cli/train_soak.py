#!/usr/bin/env python3
"""Kills training runs with SIGKILL at 50 moments, half of them inside the write of a checkpoint, and resumes them.

usage: QKV_COMMAND=build/qkv tests/cli/train_soak.py [--kills 50] [--seed 1]       (make soak)

Every run must end with the bits of one that was never stopped. Takes some minutes, so it is not among the tests, which
have a shorter version of it.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

from harness import COMMAND, ENVIRONMENT  # noqa: E402
from train_test import half_written, kill_after, kill_inside_a_write, text  # noqa: E402

OPTIONS = ("--layers", "4", "--heads", "4", "--width", "128", "--context", "32", "--batch", "4", "--threads", "2",
           "--dropout", "0.1", "--steps", "60", "--checkpoint-every", "3", "--validate-every", "5", "--sample-every", "7")
SAME = ("model.safetensors", "config.json", "log.jsonl", "checkpoints/step-00000060.safetensors")
LONGEST = 2.0  # seconds until a random kill


class Soak:
    def __init__(self, folder, seed):
        self.folder, self.choose = folder, random.Random(seed)
        self.text = os.path.join(folder, "text.txt")
        with open(self.text, "w") as file:
            file.write(text())
        self.runs = self.random_kills = self.write_kills = self.left_half = 0

    def command(self, name):
        return [COMMAND, "train", self.text, "--out", os.path.join(self.folder, name), *OPTIONS, "--resume"]

    def finish(self, name):
        answer = subprocess.run(self.command(name), env=ENVIRONMENT, capture_output=True, text=True)
        if answer.returncode != 0:
            sys.exit(f"resuming failed: {answer.stderr}")

    def kill(self, name):
        """False where the run ended before it could be killed."""
        folder = os.path.join(self.folder, name)
        inside = self.choose.random() < 0.5
        with subprocess.Popen(self.command(name), env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            if inside:
                killed = kill_inside_a_write(process, folder)
                self.write_kills += killed
            else:
                killed = kill_after(process, self.choose.uniform(0, LONGEST))
                self.random_kills += killed
        self.left_half += killed and bool(half_written(folder))
        return killed

    def compare(self, name):
        for file in SAME:
            with open(os.path.join(self.folder, name, file), "rb") as ours, \
                    open(os.path.join(self.folder, "unbroken", file), "rb") as theirs:
                if ours.read() != theirs.read():
                    sys.exit(f"{file} of the resumed run {name} differs from the unbroken run's")
        if half_written(os.path.join(self.folder, name)):
            sys.exit(f"run {name} left half-written files")

    def one_run(self, kills):
        """Kills one run again and again until it ends by itself, or as often as is left."""
        name = f"killed-{self.runs}"
        while self.random_kills + self.write_kills < kills and self.kill(name):
            pass
        self.finish(name)
        self.compare(name)
        self.runs += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qkv-soak-") as folder:
        soak = Soak(folder, options.seed)
        soak.finish("unbroken")
        while soak.random_kills + soak.write_kills < options.kills:
            soak.one_run(options.kills)
        print(f"{soak.random_kills} kills at random moments and {soak.write_kills} inside the write of a checkpoint, "
              f"{soak.left_half} of them with half a file left: {soak.runs} runs, resumed each time, ended with the "
              "bits of the unbroken one")


if __name__ == "__main__":
    main()
