"""Says how much older a result is than the kernels and plans that it measured.

A result records its commit, and rows that were measured later record their own. It is old if the code of its rooms, or of
csrc/common, has changed from that commit to HEAD. Comments, includes and the names of files are no code, so moving a file makes no
result old. Files that include torch are bindings and do not count. Ladders count for results of ladders only.
"""

import functools
import hashlib
import re
import subprocess
from pathlib import Path

from benchmarks.harness import machine
from benchmarks.publish.published import LADDERS, command_for
from benchmarks.random import problems

# The rooms of csrc that a result measures, if it is not the one that it is named after. Models and the override: all of them.
ROOMS = {
    "drop_ins": ("conv1d", "selective_scan"),
    "index_add": ("index_add", "index_sort"),
    "spmm": ("spmm", "segment", "rows", "graph_attention", "index_sort"),
    "partitioned": ("triangle_count",),
    "distributed": (
        "conv1d",
        "dot",
        "elementwise",
        "index_add",
        "index_sort",
        "reduce",
        "rows",
        "scan",
        "segment",
        "selective_scan",
        "spmm",
        "upsample",
    ),
    "segment": ("segment", "rows", "spmm", "index_select", "index_add", "index_sort"),
}
NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*#\s*include[^\n]*", re.MULTILINE | re.DOTALL)
BINDING = re.compile(r'#include ["<](ATen|torch|c10|([\w/]*/)?binding)/')
# A page has this line for each old file. Comparisons of pages ignore it, because every later commit may change it.
LINE = re.compile(r"\n\nOld: [^\n]*")


class Old(ValueError):
    """Results are older than their kernels; the message names them."""


def _git(*arguments: str, stdin: str = "") -> str | None:
    """What git prints, each byte as one character."""
    command = ["git", "-C", str(machine.REPOSITORY), *arguments]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, check=True, encoding="latin-1")
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


# For each blob a hash of its code, or None for a binding.
_CODES: dict[str, str | None] = {}


def _read(blobs: set[str]) -> None:
    """Adds blobs to _CODES."""
    text = _git("cat-file", "--batch", stdin="\n".join(blobs)) or ""
    while text:
        header, _, text = text.partition("\n")
        blob, _, size = header.split()
        content, text = text[: int(size)], text[int(size) + 1 :]
        code = "".join(NO_CODE.sub("", content).split()).encode()
        _CODES[blob] = None if BINDING.search(content) else hashlib.sha1(code).hexdigest()


@functools.cache
def _kernels(root: Path, commit: str) -> dict[str, str]:
    """The paths of kernels and plans below csrc at a commit, with hashes of their code. Empty if git does not know the commit."""
    listed = [line.split() for line in (_git("ls-tree", "-r", commit, "--", "csrc") or "").splitlines()]
    files = {path: blob for _, _, blob, path in listed if path.endswith((".cu", ".cuh", ".h"))}
    _read(set(files.values()) - _CODES.keys())
    return {path: _CODES[blob] for path, blob in files.items() if _CODES[blob]}


def room_of(path: str) -> str:
    """The room of a file below csrc."""
    return path.split("/")[1]


@functools.cache
def _family_room(family: str) -> str:
    ((room, _),) = problems.problems(family, 1, 0)
    return room


def _rooms(result: dict, row: dict, ladder: bool) -> tuple[str, ...] | None:
    """The rooms that a row measures; None for all of them."""
    room = result["room"]
    if ladder:
        return (LADDERS[room],)
    if room == "sweep":
        room = _family_room(row["op"])
    return None if room in ("models", "override") else ROOMS.get(room, (room,))


def _changes(commit: str, rooms: tuple[str, ...] | None, path: Path) -> tuple[int, str] | None:
    """How many commits have changed the rooms since, with a sentence; None if there are none."""
    head = (_git("rev-parse", "--short=7", "HEAD") or "").strip()
    now, then = (_kernels(machine.REPOSITORY, name) for name in (head, commit))
    if not now:
        return 1, "the sources are no git checkout, so nothing tells its age"
    if not then:
        return 1, "git does not know this commit, so nothing tells its age"

    def counts(file: str) -> bool:
        if "ladder" in file and path.parent.name != "ladder":
            return False
        # The evidence of a choice is measured before the costs are fitted to it.
        if path.suffix == ".jsonl" and Path(file).name.startswith("costs_"):
            return False
        room = room_of(file)
        return room != "binding" if rooms is None else room in ("common", *rooms)

    known = set(then.values())
    changed = [file for file, code in now.items() if code not in known and counts(file)]
    if not changed:
        return None
    # A file that was moved has the commits of its new name only. There is at least one.
    count = max(1, int(_git("rev-list", "--count", f"{commit}..HEAD", "--", *changed) or 0))
    folders = sorted({f"csrc/{room_of(path)}" for path in changed})
    return count, f"{count} commit{'s' * (count > 1)} up to {head} changed {', '.join(folders)}"


def sentence(result: dict, path: Path) -> str:
    """The commit of a result and what has changed since, or "" if it is as new as its kernels. Of several commits, the worst."""
    source = result.get("source", result)
    if source.get("dirty"):
        return "measured with uncommitted changes"
    found = []
    ladder = path.parent.name == "ladder"
    rows = result.get("rows") or [{}]
    for commit, rooms in {(row.get("commit", source["commit"]), _rooms(result, row, ladder)) for row in rows}:
        if commit is None:
            return "measured at an unknown commit"
        if changes := _changes(commit, rooms, path):
            found.append((changes[0], f"measured at {commit[:7]}; {changes[1]}"))
    return max(found, default=(0, ""))[1]


def _short(path: Path) -> Path:
    return path.relative_to(machine.REPOSITORY) if path.is_relative_to(machine.REPOSITORY) else path


def check(results: dict[Path, dict], told: bool | None) -> None:
    """Raises Old if results are old. If it was told so, it adds "old" to these, the line of a page. None: nobody asks."""
    if told is None:
        return
    found = {path: text for path, result in results.items() if (text := sentence(result, path))}
    if found and not told:
        lines = [f"{_short(path)}: {text}; {command_for(path, results[path]['room'])}" for path, text in found.items()]
        raise Old(
            "\n".join(["results are older than their kernels:", *lines, "--old writes the page and says so in it"])
        )
    for path, text in found.items():
        results[path]["old"] = f"\n\nOld: {path.name} was {text}."
