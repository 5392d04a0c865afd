"""Writes the tiny BERT models tiny-*/ and what transformers makes of them and of MiniLM (eager, float32).

    python make.py MINILM_FOLDER        # needs torch, transformers, safetensors

minilm.json: for each text its token ids; from a seeded pick of elements the attention weights
(layer, head, query, key) and the last hidden states; the sum of the squared weights of each head.
tiny.json: for each tiny model a padded batch: ids, lengths, hidden states of the real tokens, all weights of the
longest sequence.
"""
import json
import pathlib
import shutil
import sys

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
CHICKEN = "The chicken didn{}t cross the road because it was too {}"
PARAGRAPH = (
    "Attention lets every word of a sentence look at every other word. The chicken didn't cross the road because it "
    "was too tired; the chicken didn't cross the road because it was too wide. What does \u201cit\u201d mean? Numbers "
    "such as 3.14, 1,024 and 50%, names such as Zo\u00eb and \u5f20\u4f1f, and rare words such as "
    "antidisestablishmentarianism are cut into pieces. ")


def texts():
    yield "chicken, straight", CHICKEN.format("'", "tired")
    for end in ("tired", "wide"):
        for quote in "'\u2019":
            yield f"chicken {end} {quote}", CHICKEN.format(quote, end + ".")
    yield "chicken cut off", "The chicken didn\u2019t cross the road because it"
    yield "keys", "The keys to the cabinet are on the table."
    yield "pond", "I walked along the pond, and noticed one of the trees along the bank."
    yield "mixed", "\u6211\u7231\u81ea\u7136\u8bed\u8a00 caf\u00e9 na\u00efve \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \u00c5ngstr\u00f6m \u03a9 \u4f60\u597d!"
    yield "html", "<b>if a<b && \"c\" > 'd'</b> <script>alert(1)</script> &amp; <!-- x -->"
    yield "one word", "it"


def long_text(tokenizer, tokens):
    """As many whole words of the paragraph, repeated, as give `tokens` tokens or just under."""
    words = (PARAGRAPH * 12).split()
    while len(tokenizer(" ".join(words))["input_ids"]) > tokens:
        words.pop()
    return " ".join(words)


def pick(array, count, seed):
    """Seeded picks: [[index, ...], ...] and the values there."""
    random = numpy.random.RandomState(seed)
    places = [[int(random.randint(size)) for size in array.shape] for _ in range(count)]
    return {"at": places, "values": [round(float(array[tuple(place)]), 7) for place in places]}


def run(model, ids, mask=None):
    with torch.no_grad():
        result = model(input_ids=ids, attention_mask=mask, output_attentions=True)
    return result.last_hidden_state.numpy(), torch.stack(result.attentions, 1).numpy()  # (B, L, H, T, T)


def minilm(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    cases = []
    for name, text in [*texts(), ("500 tokens", long_text(tokenizer, 500))]:
        ids = tokenizer(text, truncation=False)["input_ids"]
        hidden, weights = run(model, torch.tensor([ids]))
        cases.append({
            "name": name, "text": text, "ids": ids,
            "weights": pick(weights[0], 300, 1), "hidden": pick(hidden[0], 200, 2),
            "squares": [[round(float(s), 5) for s in layer] for layer in (weights[0].astype(float)**2).sum((2, 3))],
        })
    return cases


VOCABULARY = ("[PAD] [UNK] [CLS] [SEP] [MASK] the a keys chicken road cross it was too tired wide table on are to "
              "cabinet ##s ##ing walk pond bank , . ' d i e f").split()

TINY = {
    # Every case has something that the others lack.
    "tiny-plain": {"type": transformers.BertModel, "hidden_act": "gelu"},
    "tiny-headed": {"type": transformers.BertForMaskedLM, "hidden_act": "gelu_new", "num_hidden_layers": 3},
    "tiny-half": {"type": transformers.BertModel, "hidden_act": "relu", "type_vocab_size": 1, "hidden_size": 12,
                  "num_attention_heads": 3, "layer_norm_eps": 1e-5, "half": True, "rename": True},
}


def make_tiny(name, spec):
    spec = dict(spec)
    kind, half, rename = spec.pop("type"), spec.pop("half", False), spec.pop("rename", False)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    config = transformers.BertConfig(vocab_size=len(VOCABULARY), intermediate_size=24, max_position_embeddings=32,
                                     initializer_range=0.5, **{**sizes, **spec})
    torch.manual_seed(len(name))
    model = kind(config)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms start as zeros and ones, which would hide mistakes
            parameter.add_(torch.randn_like(parameter) * 0.1)
            if half:
                parameter.copy_(parameter.half())
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    if half:
        tensors = {key: tensor.half() for key, tensor in tensors.items()}
    if rename:  # as files converted from TensorFlow name them; and without a pooler
        tensors = {key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
                   for key, tensor in tensors.items() if not key.startswith("pooler.")}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}) + "\n")
    return model.eval()


def tiny(name, spec):
    model = make_tiny(name, spec)
    model.set_attn_implementation("eager")
    encoder = getattr(model, "bert", model)
    lengths = [9, 4, 1, 32]
    ids = numpy.random.RandomState(len(name)).randint(1, len(VOCABULARY), (len(lengths), max(lengths)))
    mask = numpy.arange(max(lengths)) < numpy.array(lengths)[:, None]
    ids[~mask] = 0
    hidden, weights = run(encoder, torch.tensor(ids), torch.tensor(mask.astype(int)))
    return {"name": name, "lengths": lengths, "ids": ids.tolist(),
            "hidden": [[round(float(v), 6) for v in hidden[b, :n].reshape(-1)] for b, n in enumerate(lengths)],
            "weights": pick(weights[3], 600, 3)}


def write(name, cases):
    golden = {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}", "cases": cases}
    text = json.dumps(golden, ensure_ascii=True, separators=(",", ":")).replace('{"name"', '\n{"name"')
    (HERE / name).write_text(text + "\n")


def main():
    write("minilm.json", minilm(sys.argv[1]))
    write("tiny.json", [tiny(name, spec) for name, spec in TINY.items()])


if __name__ == "__main__":
    main()
