"""Rules that the sources follow, and the compilers' output from the build of this library."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tools import layout, native_build, test_build, toolchain
from tools.native_build import ROOT

from ..rooms.test_overlap import ROOMS

CUDA_SOURCES = [  # with kernels
    path
    for path in sorted(layout.CSRC.rglob("*.cu"))
    if "__global__" in path.read_text() or any(included.endswith(".cuh") for included in layout.includes(path))
]
TORCH_FREE = [
    path
    for path in sorted(layout.CSRC.rglob("*"))
    if path.suffix in {".cu", ".cuh"} or (path.suffix == ".h" and path.is_relative_to(layout.CSRC / "common"))
]


def name(path: Path) -> str:
    return str(path.relative_to(layout.CSRC))


@pytest.fixture(scope="module")
def config():
    """The configuration of this machine's build. Skips if nothing was built here, as with an installed wheel."""
    try:
        found = native_build.configure()
    except toolchain.BuildError as error:
        pytest.skip(str(error))
    if found.nvcc is None:
        pytest.skip("nvcc is not installed, so no CUDA source was compiled")
    if not (found.build_dir / found.library).exists():
        pytest.skip("the library was not built on this machine")
    assert native_build.up_to_date(found), "the library is older than its sources: run make build"
    return found


@pytest.mark.parametrize("path", TORCH_FREE, ids=name)
def test_device_code_and_common_never_see_torch(path):
    assert layout.torch_includes(path) == ()


OVERLAPPING = (
    "conv1d", "dot", "elementwise", "graph_attention", "index_add", "index_select", "index_sort", "norm", "pad", "reduce", "rows", "scan", "scatter",
    "segment", "selective_scan", "spmm", "transpose", "upsample",
)  # fmt: skip


@pytest.mark.parametrize("room", OVERLAPPING)
def test_kernels_wait_for_the_previous_grid(room):
    """Every kernel of these rooms calls grid_dependency_wait. Their launches overlap the previous grid (programmatic dependent
    launch), and a kernel that does not wait would race with it. Launches of ladders do not overlap."""
    kernels = 0
    for path in (layout.CSRC / room).rglob("*.cu*"):
        if test_build.is_ladder(path, room):
            continue
        text = path.read_text()
        assert text.count("__global__") == text.count("  grid_dependency_wait();\n"), path.name
        kernels += text.count("__global__")
    assert kernels > 0


def test_overlapping_launches_are_tested():
    assert {room.split(",")[0] for room in ROOMS} == set(OVERLAPPING) - {"graph_attention", *layout.ENGINES}


def test_torch_free_headers_compile_alone(config):
    with native_build.sole_builder(config):
        native_build.run_ninja(config.build_dir, "headers")
    compiled = {path.relative_to(config.build_dir / "headers") for path in config.build_dir.glob("headers/**/*.o")}
    for header in layout.torch_free_headers():
        assert Path(f"{name(header)}.o") in compiled


def test_every_folder_is_a_room_or_shared():
    """Only a README.md directly in a folder makes it a room, so one without it would escape the rules of rooms."""
    assert sorted(path.name for path in layout.CSRC.iterdir()) == sorted((*layout.rooms(), *layout.SHARED))
    assert not list(layout.CSRC.glob("*/*/**/README.md"))


# Folders with more than 20 files, and how many they may have.
LARGE_FOLDERS = {
    "csrc/binding": 26,
    "csrc/common": 33,
    "csrc/conv1d/forward": 33,
    "csrc/override": 25,
    "tests/cases": 24,
    "tests/contract": 21,
    "torch_ops": 34,
}


def test_folders_have_few_files():
    """Files directly in a folder, without ``__init__.py`` and ``README.md``: at most 15 in a room, and at most 20 elsewhere."""
    folders = Counter(
        path.relative_to(ROOT).parent.as_posix()
        for path in tracked_files()
        if path.is_relative_to(ROOT) and path.name not in ("__init__.py", "README.md")
    )
    limits = {f"csrc/{room}": 15 for room in layout.rooms()} | LARGE_FOLDERS
    checked = {
        folder: files for folder, files in folders.items() if folder.split("/")[0] in ("csrc", "tests", "torch_ops")
    }
    assert {folder: files for folder, files in checked.items() if files > limits.get(folder, 20)} == {}


def ptxas_report(config, source: Path) -> str:
    return (config.kernel_dir / "obj" / f"{name(source)}.o.log").read_text()


def kernels_with_local_memory(report: str) -> list[str]:
    """Kernels for sm_90 that spill registers or use local memory, according to ptxas -v."""
    found = []
    for entry in report.split("ptxas info    : Compiling entry function ")[1:]:
        kernel, arch = re.match(r"'([^']+)' for '([^']+)'", entry).groups()
        if not arch.startswith("sm_90"):
            continue
        for frame in re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", entry):
            if any(int(size) for size in frame):
                found.append(f"{kernel}: {' / '.join(frame)} bytes of stack / spill stores / spill loads")
    return found


@pytest.mark.parametrize("source", CUDA_SOURCES, ids=name)
def test_kernels_keep_everything_in_registers(config, source):
    if not any(arch.startswith("9.0") for arch in config.archs):
        pytest.skip(
            f"the library is built for {', '.join(config.archs)}; TORCH_CUDA_ARCH_LIST=9.0 make test checks this"
        )
    report = ptxas_report(config, source)
    assert "ptxas info" in report
    assert ("Compiling entry function" in report) == ("bytes stack frame" in report)
    assert kernels_with_local_memory(report) == []


def test_local_memory_is_noticed():
    report = (
        "ptxas info    : Compiling entry function 'quiet' for 'sm_90'\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Compiling entry function 'spills' for 'sm_90'\n"
        "    8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n"
        "ptxas info    : Compiling entry function 'other' for 'sm_80'\n"
        "    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    )
    assert [line.partition(":")[0] for line in kernels_with_local_memory(report)] == ["spills"]


def test_compilers_gave_no_warnings(config):
    assert native_build.warnings(config) == []


def tracked_files() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / line for line in done.stdout.splitlines() if (ROOT / line).is_file()]


def occurrences(pattern: re.Pattern) -> Counter:
    """What a pattern finds in each file of the repository that is text."""
    found: Counter = Counter()
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found.update(f"{path.relative_to(ROOT)}: {match}" for match in pattern.findall(text))
    return found


def test_no_file_names_a_position_on_somebodys_machine():
    assert not occurrences(re.compile(r"(?<![\w./])/(?:home|root|work|Users)/\w+"))


def test_no_file_has_a_conflict_of_a_merge():
    assert not occurrences(re.compile(r"^(?:<{7}|>{7}) .*", re.MULTILINE))
