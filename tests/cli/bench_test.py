"""qkv bench: its answers, never its speed."""

import json
import unittest

import harness

WRONG = [
    (["extra"], r'unexpected argument "extra" \(see qkv bench --help\)'),
    (["--case", "no-such"], r'--case: no such case, expected a part of a name in qkv bench --list, got "no-such"'),
    (["--shape", "1,2,3"], r'--shape: bad shape, expected B,Hq,Hkv,T,D such as 1,32,8,2048,128.*got "1,2,3"'),
    (["--shape", "1,3,2,8,8"], r"--shape: bad shape.*Hq a multiple of Hkv"),
    (["--shape", "0,1,1,8,8"], r"--shape: bad shape"),
    (["--shape", "1,1,1,8,99999999999"], r"--shape: bad shape"),
    (["--shape", "1,1,1,8,8", "--queries", "9"], r'--queries: bad number, expected a whole number from 1 to 8, got "9"'),
    (["--shape", "1,1,1,8,8", "--dtype", "f8"], r'--dtype: unknown type, expected f32, bf16 or f16, got "f8"'),
    (["--queries", "1"], r"--queries: describes a case of your own: give its --shape"),
    (["--dtype", "f32"], r"--dtype: describes a case of your own"),
    (["--causal"], r"--causal: describes a case of your own"),
    (["--rounds", "0"], r"--rounds: bad number"),
    (["--threads", "many"], r"--threads: bad number"),
]


class BenchTest(harness.CommandTest):
    def test_wrong_calls_are_refused_in_one_line(self):
        for arguments, pattern in WRONG:
            with self.subTest(arguments=arguments):
                self.fail_with(self.call("bench", *arguments), 2, pattern, "bench")

    def test_cases_are_listed(self):
        cases = json.loads(self.succeed(self.call("bench", "--list", "--json")))
        text = self.succeed(self.call("bench", "--list"))
        self.assertEqual([line.split()[0] for line in text.splitlines()], [case["name"] for case in cases])
        case = next(case for case in cases if case["name"] == "bf16-causal-grouped")
        self.assertEqual({key: case[key] for key in ("kind", "dtype", "batch", "q_heads", "kv_heads", "queries", "keys",
                                                     "d", "causal", "limit", "only_when_named")},
                         {"kind": "attention", "dtype": "bfloat16", "batch": 1, "q_heads": 32, "kv_heads": 8,
                          "queries": 2048, "keys": 2048, "d": 128, "causal": True, "limit": "bfloat16",
                          "only_when_named": False})

    def test_a_case_of_ones_own_as_json(self):
        answer = json.loads(self.succeed(self.call(
            "bench", "--shape", "2,4,2,40,16", "--causal", "--dtype", "bf16", "--rounds", "3", "--phases", "--json",
            "--threads", "2")))
        self.assertEqual(answer["machine"]["threads"], 2)
        self.assertEqual([peaks["threads"] for peaks in answer["peaks"]], [1, 2])
        for peaks in answer["peaks"]:
            self.assertGreater(peaks["float32"], 0)
            self.assertGreater(peaks["memory"], 0)
        [case] = answer["cases"]
        self.assertEqual((case["name"], case["dtype"], case["causal"]), ("bf16-causal", "bfloat16", True))
        self.assertEqual(case["work"], 4 * 2 * 4 * 16 * 40 * 41 / 2)
        self.assertEqual(len(case["all_ms"]), 3)
        self.assertGreater(case["ms"], 0)
        self.assertGreater(case["phases_ms"]["softmax"], 0)

    def test_a_table_with_phases(self):
        text = self.succeed(self.call("bench", "--shape", "1,2,1,64,16", "--queries", "1", "--rounds", "1", "--phases",
                                      "--threads", "1"))
        self.assertRegex(text, r"\nPeak +1 thread\nfloat32 +[\d.]+ GF/s\n")
        self.assertRegex(text, r"\nf32 +\(1, 2, 1, 64, 16\) +[\d.]+ us +[\d.]+ GB/s  \d+ % of memory\n")
        self.assertRegex(text, r"\n  softmax +[\d.]+ us +[\d.]+ %  [\d.]+ ns a score\n")


if __name__ == "__main__":
    unittest.main()
