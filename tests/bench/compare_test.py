"""bench/compare without its peers: that its sources compile, and what it makes of times and results.

usage: compare_test.py PROJECT
"""
import importlib.machinery
import importlib.util
import pathlib
import py_compile
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
BENCH = ROOT / "bench"
SCRIPTS = [BENCH / "compare", BENCH / "growth", BENCH / "look"]
sys.path.insert(0, str(BENCH))

from side_by_side import race, report  # noqa: E402

CASE = {"name": "f32-full-1k", "kind": "attention", "dtype": "float32", "batch": 1, "q_heads": 12, "kv_heads": 12,
        "queries": 1024, "keys": 1024, "d": 64, "causal": False, "limit": "float32", "operations": 2e9, "bytes": 1e6}
PEAKS = {"float32": 100e9, "bfloat16_dot": 200e9, "bfloat16_tiles": 0, "memory": 10e9}


def script(name):
    loader = importlib.machinery.SourceFileLoader(name, str(BENCH / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Fake(race.Contestant):
    def __init__(self, program, way, ms, role="peer"):
        super().__init__(program, way, lambda: None, lambda: None, role)
        self.cost, self.turns, self.difference, self.trial = ms, 0, 0.0, ms

    def time(self, calls):
        self.turns += 1
        return [self.cost] * calls


class Compare(unittest.TestCase):
    def test_sources_compile(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in [*SCRIPTS, *BENCH.glob("side_by_side/*.py")]:
                py_compile.compile(str(file), cfile=str(pathlib.Path(folder) / "out.pyc"), doraise=True)

    def test_help_needs_no_peers(self):
        for name in ("compare", "growth"):
            answer = subprocess.run([sys.executable, "-B", str(BENCH / name), "--help"], capture_output=True, text=True)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertIn(f"bench/{name}", answer.stdout)

    def test_of_a_program_the_fastest_way_counts(self):
        ways = [Fake("A", "slow", 3), Fake("B", "only", 2), Fake("A", "fast", 1)]
        self.assertEqual([(one.program, one.way) for one in race.fastest_ways(ways)], [("A", "fast"), ("B", "only")])

    def test_everyone_has_its_turn_in_each_round(self):
        pause, race.PAUSE = race.PAUSE, 0
        try:
            sides = [Fake("A", "", 100), Fake("B", "", 1000)]
            race.take_turns(sides, 3)
        finally:
            race.PAUSE = pause
        self.assertEqual([one.turns for one in sides], [3, 3])
        self.assertEqual([len(one.ms) for one in sides], [9, 3])  # turns last about as long

    def test_figures(self):
        sides = [Fake("qkv", "attention", 40, "ours"), Fake("A", "one", 60), Fake("B", "two", 50),
                 Fake("ours too", "plain", 10, "context")]
        for one in sides:
            one.ms = [one.cost]
        figure = report.figures(CASE, sides, [], PEAKS)
        self.assertAlmostEqual(figure["share"], 0.5)
        self.assertEqual((figure["best_peer"], figure["ratio"]), ("B", 1.25))
        self.assertEqual(report.row(figure), "| f32-full-1k | (1, 12, 12, 1024, 64) | 40.0 ms | 50 % of float32 | B, two "
                                             "| 50.0 ms | 1.25× | A 60.0 ms, ours too 10.0 ms |")
        memory = report.figures({**CASE, "limit": "memory", "bytes": 2e8}, sides[:1], [], PEAKS)
        self.assertAlmostEqual(memory["share"], 0.5)
        self.assertIsNone(memory["ratio"])

    def test_the_best_instruction_is_bfloat16s_peak(self):
        self.assertEqual(report.peak({**CASE, "limit": "bfloat16"}, PEAKS), 200e9)
        self.assertEqual(report.peak({**CASE, "limit": "bfloat16"}, {**PEAKS, "bfloat16_tiles": 300e9}), 300e9)

    def test_cases_are_chosen_by_parts_of_their_names(self):
        choose = script("compare").choose
        cases = [{**CASE, "only_when_named": False}, {**CASE, "name": "grid-1", "only_when_named": True}]
        self.assertEqual(choose(cases, None), cases[:1])
        self.assertEqual(choose(cases, ["grid"]), cases[1:])
        with self.assertRaises(SystemExit):
            choose(cases, ["f32", "no-such"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
