"""scripts/models and scripts/setup, with a stand-in for the registry and for the package manager."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = {"tiny/config.json": b"{}", "tiny/model.safetensors": b"weights" * 1000}

# Stands in for pip: copies the package, fails, or writes a part and hangs, as $FAKE_PIP says.
FAKE_PIP = '''
import os, pathlib, shutil, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
package = pathlib.Path(os.environ["FAKE_PACKAGE"])
mode = os.environ["FAKE_PIP"]
if mode == "refuse":
    sys.exit("ERROR: No space left on device")
if mode == "offline":
    print("WARNING: Retrying (total=0) after connection broken by 'Name or service not known'", file=sys.stderr)
    sys.exit("ERROR: No matching distribution found for tiny==1.0")
if mode == "hang":
    (folder / package.name).write_bytes(package.read_bytes()[:100])
    time.sleep(60)
shutil.copy(package, folder)
with open(os.environ["FAKE_LOG"], "a") as log:
    log.write(sys.argv[-1] + "\\n")
'''


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Models(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = Path(folder.name)
        self.store = self.work / "store"
        self.log = self.work / "log"
        package = self.work / "tiny-1.0-py3-none-any.whl"
        with zipfile.ZipFile(package, "w") as archive:
            for path, data in FILES.items():
                archive.writestr("package/" + path, data)
        self.lay_project(sha256(package.read_bytes()))
        (self.work / "stub" / "pip").mkdir(parents=True)
        (self.work / "stub" / "pip" / "__init__.py").touch()
        (self.work / "stub" / "pip" / "__main__.py").write_text(FAKE_PIP)
        self.environment = {**os.environ, "QKV_MODELS": str(self.store), "PYTHONPATH": str(self.work / "stub"),
                            "FAKE_PACKAGE": str(package), "FAKE_LOG": str(self.log), "FAKE_PIP": "copy"}

    def lay_project(self, package_checksum):
        (self.work / "scripts").mkdir()
        (self.work / "src" / "models").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "models", self.work / "scripts" / "models")
        rows = [["model", "tiny", "tiny", "1.0", package_checksum, "MIT", "tiny", "tiny/model.safetensors", "Tiny"]]
        rows += [["file", "tiny", path, "package/" + path, str(len(data)), sha256(data)]
                 for path, data in FILES.items()]
        self.table = self.work / "src" / "models" / "known_models.tsv"
        self.table.write_text("".join("\t".join(row) + "\n" for row in rows))

    def command(self, *arguments):
        return [sys.executable, str(self.work / "scripts" / "models"), *arguments]

    def run_script(self, *arguments, **environment):
        return subprocess.run(self.command(*arguments), env={**self.environment, **environment},
                              capture_output=True, text=True)

    def downloads(self):
        return self.log.read_text().split() if self.log.exists() else []

    def assert_whole(self):
        for path, data in FILES.items():
            self.assertEqual((self.store / path).read_bytes(), data)
        self.assert_no_leftovers()

    def assert_absent(self):
        self.assertFalse((self.store / "tiny").exists())
        self.assert_no_leftovers()

    def assert_no_leftovers(self):
        self.assertEqual(list(self.store.glob(".partial-*")), [])

    def assert_fails(self, run, message):
        self.assertEqual(run.returncode, 1)
        self.assertIn(message, run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)

    def test_fetches_once(self):
        for _ in range(2):
            self.assertEqual(self.run_script("tiny").returncode, 0)
            self.assert_whole()
        self.assertEqual(self.downloads(), ["tiny==1.0"])

    def test_folder_follows_the_environment(self):
        data = self.work / "data"
        run = self.run_script("tiny", QKV_MODELS="", XDG_DATA_HOME=str(data))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue((data / "qkv" / "models" / "tiny" / "config.json").exists())
        run = self.run_script("tiny", QKV_MODELS="", XDG_DATA_HOME="relative", HOME=str(self.work / "home"))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue((self.work / "home/.local/share/qkv/models/tiny/config.json").exists())

    def test_replaces_an_incomplete_model(self):
        (self.store / "tiny").mkdir(parents=True)
        (self.store / "tiny" / "config.json").write_bytes(b"{")
        self.assertEqual(self.run_script("tiny").returncode, 0)
        self.assert_whole()

    def test_verify_replaces_a_damaged_model(self):
        self.run_script("tiny")
        (self.store / "tiny" / "config.json").write_bytes(b"[]")
        self.assertEqual(self.run_script("tiny").returncode, 0)  # the sizes are right: not looked into
        self.assertEqual((self.store / "tiny" / "config.json").read_bytes(), b"[]")
        self.assertEqual(self.run_script("--verify", "tiny").returncode, 0)
        self.assert_whole()

    def test_refused_download(self):
        self.assert_fails(self.run_script("tiny", FAKE_PIP="refuse"), "No space left on device")
        self.assert_absent()

    def test_offline(self):
        self.assert_fails(self.run_script("tiny", FAKE_PIP="offline"), "tiny==1.0: 'Name or service not known'")
        self.assert_absent()

    def test_wrong_package_checksum(self):
        text = self.table.read_text().split("\t")
        text[4] = "0" * 64
        self.table.write_text("\t".join(text))
        self.assert_fails(self.run_script("tiny"), "wrong checksum, expected 0000")
        self.assert_absent()

    def test_wrong_member_checksum(self):
        self.table.write_text(self.table.read_text().replace(sha256(b"{}"), "1" * 64))
        self.assert_fails(self.run_script("tiny"), "package/tiny/config.json: wrong checksum")
        self.assert_absent()

    def start_hanging(self):
        process = subprocess.Popen(self.command("tiny"), env={**self.environment, "FAKE_PIP": "hang"},
                                   start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not list(self.store.glob(".partial-*/*.whl")):
            self.assertLess(time.monotonic(), deadline, "the download did not start")
            time.sleep(0.01)
        return process

    def test_stopped_download_leaves_nothing(self):
        process = self.start_hanging()
        os.killpg(process.pid, signal.SIGTERM)
        self.assertEqual(process.wait(), 143)
        self.assert_absent()

    def test_killed_download_is_cleared_by_the_next(self):
        process = self.start_hanging()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.assertFalse((self.store / "tiny").exists())
        self.assertEqual(self.run_script("tiny").returncode, 0)
        self.assert_whole()

    def test_unknown_name(self):
        run = self.run_script("huge")
        self.assertEqual(run.returncode, 2)
        self.assertIn("unknown model huge, expected one of tiny", run.stderr)

    def test_unwritable_folder(self):
        self.store.write_text("a file where the folder should be")
        self.assert_fails(self.run_script("tiny"), "store")


class Setup(unittest.TestCase):
    """dpkg-query answers with $INSTALLED; apt-get and sudo write down what they were asked."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bin = Path(folder.name)
        self.log = self.bin / "log"
        for tool in ("sh", "sed", "env"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.stub("dpkg-query", 'for p in $INSTALLED; do echo "installed $p"; done; echo "not-installed libfmt-dev"')
        self.stub("apt-get", f'echo "apt-get $*" >>{self.log}; exit ${{APT_STATUS:-0}}')
        self.stub("fc-cache", f'echo "fc-cache $*" >>{self.log}')
        self.stub("id", "echo $USER_ID")

    def stub(self, name, body):
        path = self.bin / name
        path.write_text("#!/bin/sh\n" + body + "\n")
        path.chmod(0o755)

    def run_script(self, *arguments, installed="", user=0, **environment):
        return subprocess.run([str(ROOT / "scripts" / "setup"), *arguments], capture_output=True, text=True,
                              env={"PATH": str(self.bin), "INSTALLED": installed, "USER_ID": str(user), **environment})

    def calls(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def wanted(self):
        run = self.run_script(user=1000)
        return run.stderr.split("--no-install-recommends ")[1].split()

    def test_nothing_missing(self):
        run = self.run_script(installed=" ".join(self.wanted()))
        self.assertEqual((run.returncode, run.stdout, run.stderr, self.calls()), (0, "", "", []))

    def test_root_installs_only_what_is_missing(self):
        installed = " ".join(name for name in self.wanted() if name not in ("libfmt-dev", "cmake"))
        run = self.run_script(installed=installed)
        self.assertEqual(run.returncode, 0, run.stderr)
        update, install, fonts = self.calls()
        self.assertTrue(update.endswith(" update"))
        self.assertTrue(install.endswith("install -y --no-install-recommends cmake libfmt-dev"), install)
        self.assertTrue(fonts.startswith("fc-cache"))

    def test_through_sudo(self):
        self.stub("sudo", f'echo sudo >>{self.log}; exec "$@"')
        run = self.run_script(user=1000)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.calls()[0], "sudo")

    def test_neither_root_nor_sudo(self):
        run = self.run_script(user=1000)
        self.assertEqual(run.returncode, 1)
        self.assertIn("apt-get install --no-install-recommends g++ cmake", run.stderr)
        self.assertEqual(self.calls(), [])

    def test_apt_fails(self):
        run = self.run_script(APT_STATUS="100")
        self.assertEqual(run.returncode, 1)
        self.assertIn("could not install", run.stderr)

    def test_no_apt(self):
        (self.bin / "apt-get").unlink()
        run = self.run_script()
        self.assertEqual(run.returncode, 1)
        self.assertIn("install what corresponds to: g++ cmake", run.stderr)

    def test_unknown_part(self):
        self.assertEqual(self.run_script("foo").returncode, 2)


if __name__ == "__main__":
    unittest.main()
