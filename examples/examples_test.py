"""The documentation shows each example's source and its output as they are.

usage: examples_test.py PROJECT name=PROGRAM ...
In a page, a C++ block holds the source without its first comment line, and the text block after it the output.
"""
import pathlib
import subprocess
import sys


def shown_blocks(page):
    """Fenced blocks of a Markdown page as (language, text)."""
    blocks, language, lines = [], None, []
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            if language is None:
                language, lines = line[3:], []
            else:
                blocks.append((language, "\n".join(lines)))
                language = None
        elif language is not None:
            lines.append(line)
    return blocks


def check(project, name, program):
    source = (project / "examples" / f"{name}.cc").read_text(encoding="utf-8").splitlines()
    while source[0].startswith("//"):
        source.pop(0)
    wanted = ("cpp", "\n".join(source))
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout.rstrip("\n")
    pages = [project / "README.md", *(project / "docs").rglob("*.md")]
    for page in pages:
        blocks = shown_blocks(page)
        if wanted in blocks:
            shown = blocks[blocks.index(wanted) + 1]
            if shown != ("text", output):
                return f"{page.name} shows {shown[1]!r} for examples/{name}.cc, which prints {output!r}"
            return None
    return f"no page shows examples/{name}.cc as it is"


def main():
    project = pathlib.Path(sys.argv[1])
    faults = [check(project, *pair.split("=", 1)) for pair in sys.argv[2:]]
    faults = [fault for fault in faults if fault]
    print("\n".join(faults) or f"{len(sys.argv) - 2} examples are shown as they are")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
