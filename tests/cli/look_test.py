"""Right calls of `qkv look`: what is read, chosen and printed."""

import json
import math
import os
import struct
import subprocess
import unittest

import harness
import tiny_model

TEXT = "The chicken did cross the road because it was too tired"
TOKENS = ["[CLS]", "the", "chicken", "did", "cross", "the", "road", "because", "it", "was", "too", "tired", "[SEP]"]


class TextTest(harness.CommandTest):
    def test_argument_file_pipe_and_standard_input_are_the_same_text(self):
        wanted = self.json(TEXT)
        self.assertEqual(wanted["tokens"], TOKENS)
        self.assertEqual(wanted["ids"], [tiny_model.VOCABULARY.index(token) for token in TOKENS])
        path = self.file("text.txt", TEXT + "\n")
        for arguments, options in (
                (["--file", path], {}), (["--file", "text.txt"], {}), (["-"], {"input": TEXT.encode()}),
                (["-"], {"input": TEXT.encode() + b"\r\n"}), (["--file", "-"], {"input": TEXT.encode()}),
                (["--file", "/dev/stdin"], {"input": TEXT.encode()}), (["--", TEXT], {})):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.json(*arguments, **options), wanted)

    def test_texts_that_look_like_something_else(self):
        for text, tokens in (("++", ["+", "+"]), ("look", ["[UNK]"]), ("models", ["[UNK]"]), ("{}", ["{", "}"]),
                             ("[a,b]", ["[", "a", ",", "b", "]"]), ("12", ["12"]), ("=", ["="])):
            with self.subTest(text=text):
                self.assertEqual(self.json(text)["tokens"][1:-1], tokens)
        for text, tokens in (("-a", ["-", "a"]), ("--", ["-", "-"]), ("--json", ["-", "-", "[UNK]"])):
            with self.subTest(text=text):
                self.assertEqual(self.json("--", text)["tokens"][1:-1], tokens)

    def test_a_long_text_is_cut_where_asked_and_keeps_its_end_token(self):
        text = "the road " * 30
        self.fail_with(self.look(text), 2, r"at most 48 tokens, got 62")
        answer = self.look("--json", "--truncate", text)
        self.assertEqual((answer.returncode, answer.stderr), (0, b"the text was cut from 62 tokens to 48\n"))
        tokens = json.loads(answer.stdout)["tokens"]
        self.assertEqual(tokens, ["[CLS]"] + ["the", "road"] * 23 + ["[SEP]"])
        self.fail_with(self.look("--truncate", "--token", "horse", text), 2, "horse")
        self.fail_with(self.look("--allow-long", text), 2, r"it has no more positions; --truncate cuts it\), .*got 62")
        fitting = "the " * 46
        self.assertEqual(self.json("--truncate", fitting), self.json(fitting))

    def test_models_are_found_in_QKV_MODELS(self):
        for folder in (self.path("nowhere"), "/proc/none"):
            answer = self.call("look", "--model", "minilm", TEXT, environment={"QKV_MODELS": folder})
            self.fail_with(answer, 2, r"minilm: .*make models")


class JsonTest(harness.CommandTest):
    def check_rows(self, answer):
        for layer in answer["weights"]:
            for head in layer:
                self.assertEqual(len(head), len(answer["query_ids"]))
                for row in head:
                    self.assertEqual(len(row), len(answer["tokens"]))
                    self.assertTrue(all(0 <= weight <= 1 for weight in row))
                    self.assertAlmostEqual(math.fsum(row), 1, delta=1e-5)

    def test_shape(self):
        answer = self.json(TEXT)
        self.assertEqual(list(answer), ["model", "tokens", "ids", "layers", "heads", "layer_ids", "head_ids",
                                        "query_ids", "weights"])
        self.assertEqual((answer["model"], answer["layers"], answer["heads"]), (self.model, 3, 2))
        self.assertEqual(answer["layer_ids"], [0, 1, 2])
        self.assertEqual(answer["head_ids"], [0, 1])
        self.assertEqual(answer["query_ids"], list(range(13)))
        self.assertEqual([len(layer) for layer in answer["weights"]], [2, 2, 2])
        self.check_rows(answer)

    def test_choices_are_parts_of_the_whole(self):
        whole = self.json(TEXT)
        for arguments, layers, heads, queries in (
                (["--layer", "1"], [1], [0, 1], range(13)), (["--layer", "2,0"], [0, 2], [0, 1], range(13)),
                (["--layer", "0-2,1-2"], [0, 1, 2], [0, 1], range(13)), (["--head", "1"], [0, 1, 2], [1], range(13)),
                (["--layer", "2", "--head", "0-0", "--token", "it"], [2], [0], [8]),
                (["--token", "THE"], [0, 1, 2], [0, 1], [1, 5]), (["--layer=1,1", "--token=0"], [1], [0, 1], [0])):
            with self.subTest(arguments=arguments):
                part = self.json(TEXT, *arguments)
                self.assertEqual((part["layer_ids"], part["head_ids"], part["query_ids"]), (layers, heads, list(queries)))
                self.assertEqual((part["layers"], part["heads"], part["tokens"]), (3, 2, TOKENS))
                self.check_rows(part)
                for i, layer in enumerate(layers):
                    for j, head in enumerate(heads):
                        for k, query in enumerate(queries):
                            for got, wanted in zip(part["weights"][i][j][k], whole["weights"][layer][head][query]):
                                self.assertAlmostEqual(got, wanted, delta=2e-6)

    def test_top_lists_the_strongest_keys(self):
        whole = self.json(TEXT, "--token", "it")
        for count in (1, 3, 13, 10 ** 18):
            top = self.json(TEXT, "--token", "it", "--top", str(count))
            self.assertEqual(list(top)[-1], "top")
            for layer in range(3):
                for head in range(2):
                    row = whole["weights"][layer][head][0]
                    wanted = sorted(range(13), key=lambda key: (-row[key], key))[:count]
                    got = top["top"][layer][head][0]
                    self.assertEqual(len(got), min(count, 13))
                    for (key, weight), wanted_key in zip(got, wanted):
                        self.assertAlmostEqual(weight, row[key], delta=2e-6)
                        self.assertAlmostEqual(weight, row[wanted_key], delta=2e-6)

    def test_numbers_read_back_as_the_same_float(self):
        numbers = []
        json.loads(self.succeed(self.look("--json", TEXT)), parse_float=numbers.append)
        self.assertGreater(len(numbers), 900)
        for text in numbers:
            single = struct.unpack("f", struct.pack("f", float(text)))[0]
            self.assertAlmostEqual(single, float(text), delta=abs(single) * 6e-8)
            self.assertLessEqual(len(text.split("e")[0].strip("0.").replace(".", "")), 9, text)

    def test_a_capture_with_pictures_prints_the_same_numbers(self):
        answer = self.look("--json", TEXT, "--token", "it", "--output", self.path("beside.html"))
        self.assertEqual(answer.returncode, 0, answer.stderr)
        part, wanted = json.loads(answer.stdout), self.json(TEXT, "--token", "it")
        self.assertEqual(part["query_ids"], [8])
        self.assertEqual([len(head) for layer in part["weights"] for head in layer], [1] * 6)
        for got_layer, wanted_layer in zip(part["weights"], wanted["weights"]):
            for got_head, wanted_head in zip(got_layer, wanted_layer):
                for got, want in zip(got_head[0], wanted_head[0]):
                    self.assertAlmostEqual(got, want, delta=2e-6)

    def test_the_same_call_gives_the_same_bytes(self):
        self.assertEqual(self.look("--json", TEXT).stdout, self.look("--json", TEXT).stdout)
        self.assertEqual(self.look(TEXT).stdout, self.look(TEXT, "--threads", "1").stdout)

    def test_too_many_weights_name_the_filters(self):
        path = tiny_model.write(self.path("long"), tiny_model.config(layers=1, heads=1, positions=4096))
        text = self.file("long.txt", "the " * 4094)
        call = ["look", "--json", "--model", path, "--file", text]
        self.fail_with(self.call(*call), 2, r"--json: too many weights.*--layer, --head, --token or --top.*at most "
                                            r"16000000, got 16777216")
        answer = json.loads(self.succeed(self.call(*call, "--token", "7", "--top", "2")))
        self.assertEqual(len(answer["top"][0][0][0]), 2)


class TokenTest(harness.CommandTest):
    def queries(self, text, token):
        answer = self.json(text, "--token", token, "--layer", "0", "--head", "0", "--top", "1")
        return [answer["tokens"][query] for query in answer["query_ids"]], answer["query_ids"]

    def test_words_pieces_and_indexes(self):
        for text, token, pieces, places in (
                (TEXT, "chicken", ["chicken"], [2]), (TEXT, "The", ["the"], [1]), (TEXT, "the", ["the"], [5]),
                (TEXT, "THE", ["the", "the"], [1, 5]), (TEXT, "=the", ["the"], [5]), (TEXT, "8", ["it"], [8]),
                (TEXT, "0", ["[CLS]"], [0]), (TEXT, "[SEP]", ["[SEP]"], [12]),
                (TEXT, "the road", ["the", "road"], [5, 6]), (TEXT, " it ", ["it"], [8]),
                ("12 keys 12", "=12", ["12", "12"], [1, 4]), ("12 keys 12", "1", ["12"], [1]),
                ("keys walking", "keys", ["key", "##s"], [1, 2]), ("keys walking", "##s", ["##s"], [2]),
                ("keys walking", "key", ["key"], [1]), ("keys walking", "ing", ["##ing"], [4]),
                ("unbelievable", "Unbelievable", ["un", "##believ", "##able"], [1, 2, 3]),
                ("wid\u0301e T\u00cfRED", "t\u00efred", ["tired"], [2]),
                ("it ?! it", "?!", ["?", "!"], [2, 3]), ("a = b", "=", ["="], [2]), ("a = b", "==", ["="], [2])):
            with self.subTest(text=text, token=token):
                self.assertEqual(self.queries(text, token), (pieces, places))

    def test_every_place_of_a_word_is_shown(self):
        text = self.succeed(self.look("it was the road it was", "--token", "it"))
        self.assertEqual(self.queries("it was the road it was", "it"), (["it", "it"], [1, 5]))
        self.assertIn("it", text)


class TerminalTest(harness.CommandTest):
    def test_the_real_model_on_the_chicken_sentence(self):
        sentence = "The chicken didn't cross the road because it was too tired"
        text = self.succeed(self.call("look", sentence, "--token", "it"))
        self.assertEqual(text.splitlines()[0], "it \u2192 chicken 0.71   layer 5 head 11")
        self.assertIn("layer 3 head 1: chicken 0.68", text)
        answer = self.call("look", sentence, "--token", "it", "--output", self.path("beside.svg"))
        self.assertEqual(answer.stdout.decode(), text)   # pictures beside it change nothing

    def test_plain_text_when_piped(self):
        text = self.succeed(self.look(TEXT, "--token", "it"))
        self.assertNotIn("\x1b", text)
        self.assertIn("chicken", text)
        self.assertRegex(text, r"layer \d head \d")

    def test_colour_obeys_the_environment(self):
        for environment, colored in (({}, False), ({"CLICOLOR_FORCE": "1"}, True), ({"FORCE_COLOR": "1"}, True),
                                     ({"CLICOLOR_FORCE": "0"}, False), ({"FORCE_COLOR": "3", "NO_COLOR": "1"}, False),
                                     ({"FORCE_COLOR": "1", "NO_COLOR": ""}, True)):
            with self.subTest(environment=environment):
                text = self.succeed(self.look(TEXT, "--token", "it", environment=environment))
                self.assertEqual("\x1b[" in text, colored)

    def test_a_terminal_has_colour_and_its_own_width(self):
        for environment, colored in (({"TERM": "xterm-256color"}, True), ({"TERM": "dumb"}, False),
                                     ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False)):
            with self.subTest(environment=environment):
                text = self.in_terminal(60, TEXT, "--token", "it", environment=environment)
                self.assertEqual("\x1b[" in text, colored)
                if not colored:
                    self.assertLessEqual(max(map(len, text.splitlines())), 60)

    def in_terminal(self, columns, *arguments, environment):
        import fcntl
        import termios
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        answer = self.look(*arguments, stdout=theirs, environment=environment)
        os.close(theirs)
        self.assertEqual((answer.returncode, answer.stderr), (0, b""))
        text = b""
        try:
            while block := os.read(ours, 65536):
                text += block
        except OSError:  # how Linux says that the other side is closed
            pass
        os.close(ours)
        return text.decode().replace("\r\n", "\n")

    def test_strange_widths(self):
        for columns in ("", "0", "-5", "1", "wide", "99999999999999999999"):
            with self.subTest(columns=columns):
                self.assertIn("chicken", self.succeed(self.look(TEXT, environment={"COLUMNS": columns})))

    def test_html_and_control_characters_stay_text(self):
        text = self.succeed(self.look("</script> \x1b[31m a<b it", "--token", "it"))
        self.assertNotIn("\x1b", text)


class ModelsTest(harness.CommandTest):
    def test_the_list_names_licence_checksum_and_place(self):
        text = self.succeed(self.call("models", environment={"QKV_MODELS": self.path("none")}))
        self.assertIn("minilm (default)", text)
        self.assertRegex(text, r"state +not installed; .*make models")
        self.assertRegex(text, r"licence +\S+")
        self.assertRegex(text, r"sha256 +[0-9a-f]{64}")
        self.assertIn(self.path("none", "minilm"), text)

    def test_json(self):
        models = json.loads(self.succeed(self.call("models", "--json", environment={"QKV_MODELS": "/none"})))
        self.assertEqual([model["name"] for model in models if model["default"]], ["minilm"])
        for model in models:
            self.assertEqual(model["installed"], model["ships"])
            self.assertEqual(len(model["sha256"]), 64)
            self.assertTrue(model["licence"] and (model["ships"] or model["path"].startswith("/none/")))

    def test_tiny_ships_with_the_command(self):
        text = self.succeed(self.call("models", environment={"QKV_MODELS": "/none"}))
        self.assertRegex(text, r"(?s)tiny\n.*state +ships with qkv\n")


class ShippedModelTest(harness.CommandTest):
    """Where no model is named and none installed: the one that ships, with a line that says so."""

    NOTE = r"^no other model is installed: this is tiny, .*`make models` gets (minilm|smollm2)$"

    def call_alone(self, *arguments, **environment):
        environment = environment or {"QKV_MODELS": self.path("none")}
        answer = self.call(*arguments, environment=environment)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return answer.stdout.decode(), answer.stderr.decode().splitlines()

    def test_look(self):
        for environment in ({"QKV_MODELS": self.path("none")}, {"XDG_DATA_HOME": self.path("empty")},
                            {"HOME": self.path("empty")}):
            answer, notes = self.call_alone("look", "And God said, Let there be light", "--json", **environment)
            self.assertEqual(json.loads(answer)["model"], "tiny")
            self.assertEqual(len(notes), 1, notes)
            self.assertRegex(notes[0], self.NOTE)

    def test_generate(self):
        answer, notes = self.call_alone("generate", "And God said", "--max-tokens", "12")
        self.assertTrue(answer.strip())
        self.assertEqual(len(notes), 2, notes)
        self.assertRegex(notes[0], self.NOTE)

    def test_who_names_it_needs_no_note(self):
        answer, notes = self.call_alone("look", "In the beginning", "--json", "--model", "tiny")
        self.assertEqual((json.loads(answer)["model"], notes), ("tiny", []))

    def test_an_installed_model_wins(self):
        minilm = os.path.expanduser("~/.local/share/qkv/models/minilm")
        if not os.path.exists(minilm):
            self.skipTest("minilm is not installed")
        os.makedirs(self.path("installed"), exist_ok=True)
        os.symlink(minilm, self.path("installed", "minilm"))
        answer, notes = self.call_alone("look", "The keys", "--json", QKV_MODELS=self.path("installed"))
        self.assertEqual((json.loads(answer)["model"], notes), ("minilm", []))


class InspectTest(harness.CommandTest):
    def test_every_tensor_is_listed(self):
        text = self.succeed(self.call("inspect", os.path.join(self.model, "model.safetensors")))
        for name, shape in tiny_model.shapes(tiny_model.config()).items():
            line = [line for line in text.splitlines() if name in line.split()]
            self.assertEqual(len(line), 1, name)
            for number in shape:
                self.assertIn(str(number), line[0])


if __name__ == "__main__":
    unittest.main()
