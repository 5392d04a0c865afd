"""Writes sentences.json: what sentence-transformers makes of a few texts with MiniLM.

    python make_sentences.py MINILM_FOLDER        # needs sentence-transformers
"""
import json
import pathlib
import sys

import sentence_transformers

TEXTS = [
    "A man rides a horse.", "Someone is on horseback.", "The soup is cold",
    "The chicken didn\u2019t cross the road because it was too tired.", "it",
    "\u6211\u7231\u81ea\u7136\u8bed\u8a00 caf\u00e9 \U0001f414", "words beyond the two hundred and fifty-sixth do not count " * 40,
]


def main():
    model = sentence_transformers.SentenceTransformer(sys.argv[1], device="cpu")
    vectors = model.encode(TEXTS)
    cases = [{"text": text, "vector": [round(float(value), 6) for value in vector]}
             for text, vector in zip(TEXTS, vectors)]
    golden = {"made_with": f"sentence-transformers {sentence_transformers.__version__}", "cases": cases}
    text = json.dumps(golden, ensure_ascii=True, separators=(",", ":")).replace('{"text"', '\n{"text"')
    (pathlib.Path(__file__).parent / "sentences.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
