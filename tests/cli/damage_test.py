"""Model directories that are not what they should be."""

import json
import os
import pathlib
import shutil
import struct
import unittest

import harness
import tiny_model


DECODERS = pathlib.Path(__file__).parents[1] / "golden" / "models" / "causal"


def header_and_body(data):
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + length]), data[8 + length:]


def joined(header, body):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


class DamageTest(harness.CommandTest):
    def damaged(self, name, **files):
        """A copy of the model with some files replaced, or left out where they are None."""
        folder = self.path(name)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.model, folder)
        for file, data in files.items():
            path = os.path.join(folder, file.replace("__", "."))
            os.remove(path)
            if data is not None:
                with open(path, "wb") as stream:
                    stream.write(data if isinstance(data, bytes) else data.encode())
        return folder

    def refuse(self, folder, pattern, status=3):
        self.fail_with(self.call("look", "the road", "--model", folder), status, pattern)

    def weights(self):
        with open(os.path.join(self.model, "model.safetensors"), "rb") as file:
            return file.read()

    def test_truncated_weights(self):
        data = self.weights()
        for size in (0, 1, 7, 8, 9, 100, len(data) // 2, len(data) - 1):
            with self.subTest(size=size):
                self.refuse(self.damaged("cut", model__safetensors=data[:size]), r"model\.safetensors")

    def test_lying_headers(self):
        header, body = header_and_body(self.weights())
        name = "encoder.layer.1.output.dense.weight"
        for length in (2 ** 64 - 1, 2 ** 63, 2 ** 40, 0, 3):
            with self.subTest(length=length):
                data = struct.pack("<Q", length) + self.weights()[8:]
                self.refuse(self.damaged("lying", model__safetensors=data), r"model\.safetensors")
        for change in ({"dtype": "F99"}, {"shape": [16, 33]}, {"shape": [-1, 512]}, {"shape": [2 ** 62, 2 ** 62]},
                       {"data_offsets": [0, 2048]}, {"data_offsets": [2 ** 63, 2 ** 63 + 2048]},
                       {"data_offsets": [10, 4]}, {"data_offsets": [1]}, {"data_offsets": "all"}, {"shape": None}):
            with self.subTest(change=change):
                lying = {**header, name: {**header[name], **change}}
                self.refuse(self.damaged("lying", model__safetensors=joined(lying, body)), r"model\.safetensors")

    def test_tensors_missing_or_of_another_shape(self):
        contents = tiny_model.tensors(tiny_model.config())
        name = "encoder.layer.2.attention.self.key.weight"
        missing = {key: value for key, value in contents.items() if key != name}
        self.refuse(self.damaged("missing", model__safetensors=tiny_model.safetensors(missing)), name)
        turned = {**contents, name: ([8, 32], contents[name][1])}
        self.refuse(self.damaged("turned", model__safetensors=tiny_model.safetensors(turned)), name)
        more_layers = json.dumps({**tiny_model.config(), "num_hidden_layers": 4})
        self.refuse(self.damaged("more", config__json=more_layers), r"encoder\.layer\.3")
        fewer_layers = json.dumps({**tiny_model.config(), "num_hidden_layers": 1})
        self.refuse(self.damaged("fewer", config__json=fewer_layers),
                    r"encoder\.layer\.1\..*: more layers than the configuration gives, expected 1, got 3")

    def test_parameters_that_are_no_numbers_are_damage(self):
        contents = tiny_model.tensors(tiny_model.config())
        broken = {name: (shape, struct.pack("<f", float("nan")) * (len(data) // 4))
                  for name, (shape, data) in contents.items()}
        folder = self.damaged("nan", model__safetensors=tiny_model.safetensors(broken))
        for command in (["look"], ["look", "--json"], ["look", "--top", "1", "--json"], ["look", "--token", "road"],
                        ["explain"], ["encode"], ["encode", "a road", "--tokens", "road"]):
            with self.subTest(command=command):
                answer = self.call(*command, "the road", "--model", folder)
                self.fail_with(answer, 3, r"nan: the model's numbers are not finite", command[0])
                self.assertEqual(answer.stdout, b"")

    def test_a_decoder_of_no_numbers_writes_nothing(self):
        folder = self.path("nan-decoder")
        shutil.copytree(DECODERS / "gpt2", folder)
        weights = os.path.join(folder, "model.safetensors")
        with open(weights, "rb") as stream:
            header, body = header_and_body(stream.read())
        with open(weights, "wb") as stream:
            stream.write(joined(header, b"\xff" * len(body)))
        for command in (["generate"], ["look", "--generate", "2"], ["explain"]):
            with self.subTest(command=command):
                answer = self.call(*command, "the road", "--model", folder)
                self.fail_with(answer, 3, r"nan-decoder: the model's numbers are not finite", command[0])
                self.assertEqual(answer.stdout, b"")

    def test_files_missing(self):
        self.refuse(self.damaged("bare", config__json=None), r"config\.json")
        self.refuse(self.damaged("bare", model__safetensors=None), r"model\.safetensors")
        self.refuse(self.damaged("bare", vocab__txt=None, tokenizer_config__json=None), r"tokenizer\.json|vocab\.txt")
        os.mkdir(self.path("nothing"))
        self.refuse(self.path("nothing"), r"nothing")

    def test_a_link_that_leads_nowhere_is_not_passed_over(self):
        for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "config.json", "model.safetensors"):
            with self.subTest(file=file):
                folder = self.damaged("link", **{file.replace(".", "__"): None} if file != "tokenizer.json" else {})
                os.symlink("nowhere", os.path.join(folder, file))
                self.refuse(folder, file)

    def test_files_far_too_large(self):
        for file in ("config.json", "vocab.txt", "tokenizer_config.json", "model.safetensors"):
            with self.subTest(file=file):
                folder = self.damaged("large", **{file.replace(".", "__"): b""})
                os.truncate(os.path.join(folder, file), 1 << 34)  # sparse: it takes no room
                self.refuse(folder, file)

    def test_a_pickle_is_refused_by_name(self):
        folder = self.damaged("pickle", model__safetensors=None)
        with open(os.path.join(folder, "pytorch_model.bin"), "wb") as file:
            file.write(b"\x80\x02.")
        self.refuse(folder, r"pytorch_model\.bin")

    def test_configs_that_are_none(self):
        for text in ("", "{", "[]", "null", "not JSON", "{" * 100000, b"\xff\xfe", '{"model_type": 3}',
                     '{"model_type": "bert"}'):
            with self.subTest(text=text[:20]):
                self.refuse(self.damaged("config", config__json=text), r"config\.json")

    def test_configs_that_contradict(self):
        for key, value in (("hidden_size", 17), ("num_attention_heads", 3), ("num_attention_heads", 0),
                           ("num_hidden_layers", -1), ("vocab_size", 10 ** 18), ("hidden_act", "frobnicate"),
                           ("max_position_embeddings", 0), ("hidden_size", "wide"), ("model_type", "unheard-of")):
            with self.subTest(key=key, value=value):
                folder = self.damaged("contradiction", config__json=json.dumps({**tiny_model.config(), key: value}))
                answer = self.call("look", "the road", "--model", folder)
                self.assertIn(answer.returncode, (2, 3))
                self.fail_with(answer, answer.returncode, r".")

    def test_vocabularies_that_do_not_fit(self):
        pieces = [piece + "\n" for piece in tiny_model.VOCABULARY]
        for text in ("", "\n\n", "".join(pieces[5:]), "".join(pieces) + "extra\n" * 3, b"\xff\xfe\n"):
            with self.subTest(text=text[:20]):
                answer = self.call("look", "extra road", "--model", self.damaged("vocabulary", vocab__txt=text))
                self.assertIn(answer.returncode, (0, 2, 3))
                if answer.returncode != 0:
                    self.fail_with(answer, answer.returncode, r".")

    def test_inspect_refuses_what_is_damaged(self):
        data = self.weights()
        for name, content in (("cut.safetensors", data[:500]), ("none.safetensors", b""), ("text.safetensors", b"hello there"),
                              ("long.safetensors", struct.pack("<Q", 2 ** 64 - 1) + data[8:])):
            with self.subTest(name=name):
                self.fail_with(self.call("inspect", self.file(name, content)), 3, name, command="inspect")
        self.fail_with(self.call("inspect", self.path("none")), 3, r"none", command="inspect")


if __name__ == "__main__":
    unittest.main()
