"""Checks the prose of the repository: python -m tools.words [paths].

Looks at Markdown, and at the comments and docstrings of Python, C++ and CUDA sources. It reports words that the field does not use,
sentences of more than 40 words in Markdown, and pages that have grown too long. Code in Markdown is left out. In sources it also
reports identifiers with a word that says nothing of what they name.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tools import layout

ROOT = Path(__file__).resolve().parent.parent
MOST_WORDS = 40  # in a sentence
MOST_LINES = {"README.md": 120} | {f"csrc/{folder}/README.md": 150 for folder in (*layout.rooms(), *layout.SHARED)}
FOLDERS = ("csrc", "torch_ops", "benchmarks", "tests", "tools", "docs", "examples", ".")
# Written by programs, or lists of this file's own words.
LEFT_OUT = ("docs/_build", "docs/speed.md", "benchmarks/results", "tools/words.py")

WORDS = [
    (r"under way", "in flight"),
    (r"multiprocessors?(?! \(SMs?\))", "SM, after the first mention"),
    (r"packs?", "vector"),
    (r"(a|each|every|per|next|this|of) turns?", "iteration"),
    (r"(?<!in[ -])(?<!take )(?<!takes )places?", "position, index, output element"),
    (r"fans?", "one-to-many channels; expand"),
    (r"few(er)? (values|taps|tiles|outputs|products|places)", "small problem, short filter: say what it is"),
    (r"products (of|for) (an|each|every|one) output", "multiply-adds per output"),
    (r"pays|paid", "is faster"),
    (r"prefers?|serves?", "supports, chosen"),
    (r"sooner", "faster"),
    (r"but for", "except"),
    (r"of which", "a sentence of its own"),
    (r"those (that|of|which|with|in|for)", "the noun"),
    (r"than what|it is what|what (took|takes|take)|as it is", "a plain clause"),
    (r"the ones? before", "its name"),
    (r"isn't kept|is not kept|not kept", "no history"),
]
# Only in files whose path matches the first part.
WORDS_OF = [(r"^(?!.*ladder).*conv1d", r"(?<!ladder )(?<!Ladder )steps?", "stride")]

# Words of identifiers.
NAMES = {"own": "what it is: a row, a plan, the size of a rank"}
NAMES_IN = ("csrc", "torch_ops", "benchmarks")
# Their identifiers still have such words.
NAMES_LEFT = (
    "csrc/index_add/", "csrc/index_sort/", "csrc/reduce/", "csrc/scan/", "csrc/selective_scan/",
    "csrc/transpose/", "benchmarks/random/limits.py",
)  # fmt: skip


def _python(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            statement = node.body[0]
            for i, line in enumerate(statement.value.value.split("\n")):
                yield statement.lineno + i, re.sub(r"``[^`]*``|`[^`]*`", "`code`", line)


def _native(text: str) -> Iterator[tuple[int, str]]:
    for i, line in enumerate(text.split("\n"), 1):
        _, slashes, comment = line.partition("//")
        if slashes:
            yield i, re.sub(r"`[^`]*`", "`code`", comment)


def _markdown(text: str) -> Iterator[tuple[int, str]]:
    fenced = False
    for i, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield i, re.sub(r"`[^`]*`", "`code`", re.sub(r"\]\([^)]*\)", "]", line))


READERS = {".py": _python, ".md": _markdown} | dict.fromkeys((".h", ".cuh", ".cu", ".cpp"), _native)


def _python_names(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def _native_names(text: str) -> Iterator[tuple[int, str]]:
    for i, line in enumerate(text.split("\n"), 1):
        code = re.sub(r'"(\\.|[^"\\])*"|/\*.*?\*/', " ", line).partition("//")[0]
        for name in re.findall(r"\b[A-Za-z_]\w*", code):
            yield i, name


def names(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """The identifiers of a source whose words are checked, with their lines."""
    name = str(path.relative_to(ROOT))
    if path.suffix == ".md" or not name.startswith(NAMES_IN) or name.startswith(NAMES_LEFT):
        return
    yield from (_python_names if path.suffix == ".py" else _native_names)(text)


def words_of(identifier: str) -> set[str]:
    """kOwnRows and own_rows are made of the words own, rows."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)}


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """The sentences of a page with the lines they begin on. Tables, headings and items of lists end a sentence."""
    start, words = 0, []
    for i, line in [*_markdown(text), (0, "")]:
        apart = (
            not line.strip() or line.lstrip().startswith(("|", "#", "- ", "* ", ">")) or re.match(r"\s*\d+\. ", line)
        )
        if apart and words:
            yield start, " ".join(words)
            words = []
        if line.lstrip().startswith(("|", "#")):
            continue
        for word in line.split():
            if not words:
                start = i
            words.append(word)
            if re.search(r"[.!?:][\")*_]*$", word) and not re.search(r"\b(e\.g|i\.e|vs|al)\.$", word):
                yield start, " ".join(words)
                words = []


def faults(path: Path) -> list[str]:
    name = str(path.relative_to(ROOT))
    text = path.read_text()
    rules = WORDS + [(word, say) for files, word, say in WORDS_OF if re.search(files, name)]
    found = []
    for line, prose in READERS[path.suffix](text):
        for word, say in rules:
            for match in re.finditer(rf"\b({word})\b", prose, re.IGNORECASE):
                found.append((line, f'"{match[0]}": {say}'))
    for line, identifier in names(path, text):
        found += [(line, f'"{identifier}": {NAMES[word]}') for word in words_of(identifier) & NAMES.keys()]
    if path.suffix == ".md":
        for line, sentence in sentences(text):
            if len(sentence.split()) > MOST_WORDS:
                found.append((line, f"a sentence of {len(sentence.split())} words: {sentence[:60]}..."))
        lines = text.count("\n")
        for page, most in MOST_LINES.items():
            if name == page and lines > most:
                found.append((lines, f"{lines} lines, {most} at most"))
    return [f"{name}:{line}: {fault}" for line, fault in sorted(found)]


def pages(arguments: list[str]) -> list[Path]:
    found: list[Path] = []
    for argument in arguments or FOLDERS:
        path = ROOT / argument
        found += [path] if path.is_file() else sorted(path.glob("*.*" if argument == "." else "**/*.*"))
    return [p for p in found if p.suffix in READERS and not str(p.relative_to(ROOT)).startswith(LEFT_OUT)]


def main(arguments: list[str]) -> int:
    found = [fault for page in pages(arguments) for fault in faults(page)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
