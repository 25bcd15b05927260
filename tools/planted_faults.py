"""Plants known mistakes in the sources, one at a time, and checks that the tests catch each of them.

    python -m tools.planted_faults --list
    python -m tools.planted_faults            every fault
    python -m tools.planted_faults reduce nan  faults with one of these words in their names

tests/tooling/planted_faults.toml is the list. A fault replaces text in one file, which is always restored afterwards.
Each fault names whole test files that should catch it, so that deleting tests inside a file shows.
Tests run on the CPU: the emulation compiles the kernels, and the library is rebuilt only for faults in its bindings.
A fault is caught if a test fails or the test process dies. It is not caught if the code no longer compiles or no test ran.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools import layout

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "tooling" / "planted_faults.toml"
TIMEOUT = 1800  # seconds for the tests of one fault


@dataclass(frozen=True)
class Fault:
    """A replacement of `old` by `new` in `file`, where `old` occurs once.

    `kind` says in a few words what is wrong. `only` is an expression for pytest's -k: it selects the tests of one operator from
    files that test all operators.
    """

    name: str
    room: str
    kind: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    only: str = ""

    @property
    def path(self) -> Path:
        return ROOT / self.file

    @property
    def is_built(self) -> bool:
        """Whether the file is a source of the bindings, so that the library must be rebuilt."""
        return self.path.suffix == ".cpp" or (self.path.suffix == ".h" and bool(layout.torch_includes(self.path)))

    def problems(self) -> list[str]:
        """The reasons why the fault can't be planted or its tests can't run."""
        if not self.path.is_file():
            return [f"{self.name}: {self.file} does not exist"]
        count = self.path.read_text().count(self.old)
        found = [] if count == 1 else [f"{self.name}: its text occurs {count} times in {self.file}, not once"]
        return found + [f"{self.name}: {test} does not exist" for test in self.tests if not (ROOT / test).exists()]


@dataclass(frozen=True)
class Outcome:
    caught: bool
    by: str  # the first test that failed, or the reason why none did


def read_list() -> list[Fault]:
    import tomllib  # needs Python 3.11

    faults = [Fault(**{**f, "tests": tuple(f["tests"])}) for f in tomllib.loads(LIST.read_text())["fault"]]
    assert len({fault.name for fault in faults}) == len(faults), "two faults have one name"
    return faults


@contextlib.contextmanager
def planted(fault: Fault) -> Iterator[None]:
    text, times = fault.path.read_text(), fault.path.stat()
    try:
        fault.path.write_text(text.replace(fault.old, fault.new))
        yield
    finally:
        fault.path.write_text(text)
        if not fault.is_built:  # no object was compiled from the fault, so a later build may see the old time
            os.utime(fault.path, ns=(times.st_atime_ns, times.st_mtime_ns))


def build() -> bool:
    done = subprocess.run([sys.executable, "-m", "tools.native_build"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout[-3000:], done.stderr[-3000:], sep="\n", file=sys.stderr)
    return done.returncode == 0


def run_tests(fault: Fault) -> Outcome:
    command = [sys.executable, "-m", "pytest", "-n0", "-x", "-q", "-p", "no:cacheprovider", *fault.tests]
    command += ["-k", fault.only] if fault.only else []
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return Outcome(False, f"the tests did not end in {TIMEOUT} s")
    return outcome_of(done.returncode, done.stdout, done.stderr)


def outcome_of(returncode: int, stdout: str, stderr: str) -> Outcome:
    failed = re.findall(r"^FAILED (.+?)(?: - .*)?$", stdout, re.MULTILINE)
    if returncode == 1 and failed:
        return Outcome(True, failed[0])
    lines = [line.strip() for line in [*stdout.splitlines(), *stderr.splitlines()] if line.strip()]
    broken = re.search(r"^ERROR .*", stdout, re.MULTILINE)
    if returncode in (0, 2, 3, 4, 5) or broken:
        return Outcome(False, broken.group() if broken else lines[-1] if lines else f"pytest ended with {returncode}")
    # The process died. The fault handler's traceback begins with the innermost call.
    where = re.search(r'File "(?:[^"]*/)?(tests/[^"]+)", line \d+ in (test_\w+)', stderr)
    test = f"{where.group(1)}::{where.group(2)}" if where else "a test"
    said = [line for line in lines if re.search("emulator:|runtime error|Fatal Python error", line)]
    return Outcome(True, f"{test}, which died: {said[0] if said else returncode}")


def check(fault: Fault) -> Outcome:
    with planted(fault):
        if fault.is_built and not build():
            return Outcome(False, "it does not compile")
        return run_tests(fault)


def uncommitted(faults: list[Fault]) -> str:
    command = ["git", "status", "--porcelain", "--", *sorted({fault.file for fault in faults})]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.planted_faults", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="faults whose names contain one of these; default: all")
    parser.add_argument("--list", action="store_true", help="only say which faults there are")
    arguments = parser.parse_args()
    faults = [f for f in read_list() if not arguments.names or any(name in f.name for name in arguments.names)]
    if not faults:
        parser.error("no fault has such a name")
    if arguments.list:
        for fault in faults:
            print(f"{fault.name:34} {fault.room:12} {fault.kind}")
        return 0
    problems = [problem for fault in faults for problem in fault.problems()]
    if changed := uncommitted(faults):
        problems.append(f"these files have uncommitted changes, which a fault could destroy:\n{changed}")
    if problems:
        sys.exit("planted_faults: " + "\n".join(problems))

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit restores the file, an unhandled signal does not
    # Faults in bindings come last and in a row, so that one build undoes a fault and compiles the next one.
    faults.sort(key=lambda fault: fault.is_built)
    missed = []
    try:
        for fault in faults:
            start = time.monotonic()
            outcome = check(fault)
            verdict = "caught by" if outcome.caught else "MISSED:"
            print(f"{fault.name:34} {time.monotonic() - start:5.0f} s  {verdict} {outcome.by}", flush=True)
            missed += [] if outcome.caught else [fault.name]
    finally:
        if any(fault.is_built for fault in faults):
            build()
    print(f"{len(faults) - len(missed)} of {len(faults)} faults were caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
