"""Set-up and build: finding compilers and torch, messages if something is missing, and the built files."""

from __future__ import annotations

import json
import os
import re
import resource
import runpy
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tools import bootstrap, layout, native_build, test_build, toolchain
from tools.native_build import ROOT
from tools.toolchain import BuildError
from torch_ops import _library


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def toolkit(root: Path, version: str) -> Path:
    """Makes a folder that is found as a CUDA toolkit of this version, and returns its root."""
    script(root / "bin" / "nvcc", f'echo "Cuda compilation tools, release {version[:4]}, V{version}"')
    (root / "include").mkdir(parents=True)
    (root / "include" / "cuda_runtime_api.h").touch()
    return root


@pytest.fixture
def some_torch(tmp_path):
    def make(version: str = "2.11.0+cu130", cuda: str | None = "13.0") -> Path:
        root = tmp_path / "site-packages" / "torch"
        root.mkdir(parents=True, exist_ok=True)
        value = f"'{cuda}'" if cuda else "None"
        (root / "version.py").write_text(f"__version__ = '{version}'\ncuda: Optional[str] = {value}\n")
        return root

    return make


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """An environment without variables for compiler, toolkit and architecture, with only the system's basic tools on PATH."""
    for name in ("CUDA_HOME", "CUDA_PATH", "CXX", "GPUOPT_CPU_ONLY", "TORCH_CUDA_ARCH_LIST", "MAX_JOBS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(basic_tools(tmp_path / "basic-tools")))


def basic_tools(folder: Path) -> Path:
    folder.mkdir()
    for name in ("sh", "env", "cat", "grep", "echo"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


# Finding compilers and torch


def test_torch_is_read_without_importing_it(some_torch):
    found = toolchain.read_torch(some_torch())
    assert (found.version, found.release, found.minor, found.cuda_major) == ("2.11.0+cu130", "2.11.0", "2.11", "13")
    assert toolchain.read_torch(some_torch("2.15.0a0+git1", None)).cuda is None
    code = "import sys; from tools import native_build; native_build.configure(); sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "GPUOPT_CPU_ONLY": "1"}  # nvcc may be missing beside an installed wheel
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment).returncode == 0
    assert toolchain.find_torch().version == torch.__version__


@pytest.mark.parametrize("version", ["2.9.1", "1.13.0", "2.10.0+cu126"])
def test_older_torch_is_refused(some_torch, version):
    with pytest.raises(BuildError, match=re.escape("torch 2.11 or newer, and the one in")):
        toolchain.read_torch(some_torch(version))


@pytest.mark.parametrize(
    "text, archs",
    [
        ("", ()),
        ("9.0", ("9.0",)),
        ("8.0;9.0", ("8.0", "9.0")),
        (" 8.0 9.0+PTX ", ("8.0", "9.0+PTX")),
        ("9.0a,10.0f,12.0", ("9.0a", "10.0f", "12.0")),
        ("9.0;9.0", ("9.0",)),
    ],
)
def test_architecture_list(text, archs):
    assert toolchain.parse_archs(text) == archs


@pytest.mark.parametrize("text", ["Hopper", "sm_90", "9", "9.0;native", "90", "9.0+ptx"])
def test_architecture_list_that_is_none(text):
    with pytest.raises(BuildError, match="is not a compute capability like 9.0"):
        toolchain.parse_archs(text)


def test_architectures_are_the_list_else_the_gpus_else_the_default(bare, monkeypatch, tmp_path):
    nvcc = toolchain.Nvcc(toolkit(tmp_path / "cuda", "12.6.85") / "bin" / "nvcc", "12.6.85")
    script(nvcc.path, "echo sm_75; echo sm_80; echo sm_86; echo sm_90")
    assert toolchain.choose_archs(nvcc) == ("9.0",)
    assert toolchain.choose_archs(nvcc, toolchain.RELEASE_ARCHS) == ("7.5", "8.0", "8.6", "9.0")
    smi = script(tmp_path / "driver" / "nvidia-smi", "echo 10.0; echo 8.6; echo 8.6")
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    assert toolchain.choose_archs(nvcc, toolchain.RELEASE_ARCHS) == ("8.6", "10.0")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5")
    assert toolchain.choose_archs(nvcc, toolchain.RELEASE_ARCHS) == ("7.5",)
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST")
    script(smi, "echo 'NVIDIA-SMI has failed'; exit 9")
    assert toolchain.choose_archs(nvcc) == ("9.0",)


@pytest.mark.parametrize(
    "archs, may",
    [
        ("9.0", True),
        ("7.5 8.0 9.0 12.0+PTX", True),
        ("8.0+PTX", False),
        ("8.0+PTX 9.0", False),
        ("8.6+PTX 9.0+PTX", True),
    ],
)
def test_old_ptx_does_not_overlap_launches(archs, may):
    assert toolchain.may_overlap_launches(toolchain.parse_archs(archs)) == may


def test_gencode(tmp_path):
    root = toolkit(tmp_path / "cuda", "13.0.88")
    script(
        root / "bin" / "nvcc",
        'case $1 in --list-gpu-code) echo sm_80; echo sm_90; echo sm_120;; *) echo "V13.0.88";; esac',
    )
    nvcc = toolchain.read_nvcc(root / "bin" / "nvcc")
    assert toolchain.gencode(("9.0a", "12.0+PTX"), nvcc) == [
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_120,code=sm_120",
        "-gencode=arch=compute_120,code=compute_120",
    ]
    with pytest.raises(BuildError, match=r"nvcc 13.0.88 .* does not compile for compute capability 7.0"):
        toolchain.gencode(("7.0",), nvcc)


def test_files_for_one_architecture_are_compiled_for_it_alone(config):
    only, other = Path("csrc/room/kernel_sm90a.cu"), Path("csrc/room/kernel.cu")
    assert native_build.archs_of(only, ("8.0", "9.0")) == native_build.archs_of(only, ("9.0+PTX",)) == ("9.0a",)
    assert (
        native_build.archs_of(only, ("8.0", "12.0")) == native_build.archs_of(other, ("8.0", "12.0")) == ("8.0", "12.0")
    )
    if config.nvcc is not None:
        text = native_build.kernels_text(replace(config, archs=("8.0", "9.0")))
        for line in text.splitlines():
            if line.startswith("build obj/"):
                assert ("_sm90a.cu.o: nvcc_sm90a " in line) == ("_sm90a.cu " in line), line
        (command,) = re.findall(r"rule nvcc_sm90a\n  command = (.*)", text)
        assert re.findall("-gencode=([^ ]+)", command) == ["arch=compute_90a,code=sm_90a"]


def test_nvcc_is_cuda_homes_else_paths_else_pypis(bare, monkeypatch, tmp_path, some_torch):
    found = toolchain.read_torch(some_torch())
    assert toolchain.find_nvcc(found) is None
    wheels = toolkit(found.root.parent / "nvidia" / "cu13", "13.0.1")
    assert toolchain.find_nvcc(found).root == wheels
    system = toolkit(tmp_path / "system", "13.1.2")
    monkeypatch.setenv("PATH", f"{system / 'bin'}:{os.environ['PATH']}")
    assert toolchain.find_nvcc(found).root == system
    home = toolkit(tmp_path / "home", "13.2.3")
    monkeypatch.setenv("CUDA_HOME", str(home))
    assert toolchain.find_nvcc(found).version == "13.2.3"
    assert toolchain.find_nvcc(toolchain.read_torch(some_torch("2.11.0+cpu", None))) is None


def test_nvcc_behind_a_script_on_path(bare, monkeypatch, tmp_path, some_torch):
    real = toolkit(tmp_path / "cuda", "13.0.88")
    text = f'case $1 in --dryrun) echo "#\\$ TOP={real}/bin/.." >&2;; *) exec {real}/bin/nvcc "$@";; esac'
    front = script(tmp_path / "front" / "nvcc", text)
    monkeypatch.setenv("PATH", f"{front.parent}:{os.environ['PATH']}")
    assert toolchain.find_nvcc(toolchain.read_torch(some_torch())).root == real


def test_nvcc_of_another_cuda_major(bare, monkeypatch, tmp_path, some_torch):
    found = toolchain.read_torch(some_torch())
    other = toolkit(tmp_path / "other", "12.8.93")
    monkeypatch.setenv("PATH", f"{other / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(BuildError, match=r"built with CUDA 13.0, but nvcc on PATH .* is CUDA 12.8.93"):
        toolchain.find_nvcc(found)
    wheels = toolkit(found.root.parent / "nvidia" / "cu13", "13.0.1")
    assert toolchain.find_nvcc(found).root == wheels
    monkeypatch.setenv("CUDA_HOME", str(other))
    with pytest.raises(BuildError, match=r"nvcc in CUDA_HOME .* is CUDA 12.8.93"):
        toolchain.find_nvcc(found)


# Messages if something is missing

BUILDS = {"make": ["-m", "tools.native_build"], "setup.py": ["setup.py", "build_ext", "--inplace"]}


def expect_sentence(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode not in (0, None)
    lines = [line for line in done.stderr.splitlines() if line and not line.startswith("make: ***")]
    assert len(lines) == 1 and lines[0].startswith("gpuopt: "), done.stderr
    for word in words:
        assert word in lines[0]


def run_build(kind: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, *BUILDS[kind]]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)


@pytest.fixture
def new_setuptools():
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip("setup.py needs setuptools 77 or newer")


@pytest.fixture(params=BUILDS)
def build(request):
    if request.param == "setup.py":
        request.getfixturevalue("new_setuptools")
    return request.param


def test_without_a_compiler(build, bare):
    expect_sentence(run_build(build), "No C++ compiler", "g++ was not found", "install g++")


def test_with_a_compiler_that_is_not_there(build):
    expect_sentence(run_build(build, CXX="no-such-g++"), "CXX=no-such-g++ is not there")


def test_with_a_compiler_that_is_too_old(build, tmp_path):
    old = script(tmp_path / "g++-9", "echo 9.4.0")
    expect_sentence(run_build(build, CXX=str(old)), "9.4.0", "g++ 11 or newer")


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(script(tmp_path / "compiler" / "g++", "echo 12.2.0")))


def test_with_nvcc_of_another_major(build, compiler, tmp_path):
    if torch.version.cuda is None:
        pytest.skip("this torch is CPU-only")
    home = toolkit(tmp_path / "cuda", "99.1.2")
    expect_sentence(run_build(build, CUDA_HOME=str(home)), f"built with CUDA {torch.version.cuda}", "99.1.2")


def test_without_nvcc(build, bare, compiler, some_torch):
    """The library for the CPU must be asked for: its operators run, but the override doesn't."""
    (some_torch() / "__init__.py").touch()
    done = run_build(build, PYTHONPATH=str(some_torch().parent))
    expect_sentence(done, "needs nvcc for CUDA 13", 'pip install "cuda-toolkit[nvcc,', "==13.0.*", "GPUOPT_CPU_ONLY=1")


def test_a_library_for_the_cpu_is_asked_for_or_all_that_torch_allows(bare, monkeypatch, some_torch):
    assert toolchain.choose_nvcc(toolchain.read_torch(some_torch("2.11.0+cpu", None))) is None
    found = toolchain.read_torch(some_torch())
    monkeypatch.setenv("GPUOPT_CPU_ONLY", "1")
    assert toolchain.choose_nvcc(found) is None
    monkeypatch.setenv("GPUOPT_CPU_ONLY", "0")
    with pytest.raises(BuildError, match="needs nvcc"):
        toolchain.choose_nvcc(found)


def test_pip_compiles_for_every_gpu_where_none_is_seen(new_setuptools, monkeypatch):
    """An install in a container or on a login node is for unknown GPUs."""
    setup, built = {}, {}
    monkeypatch.setattr("setuptools.setup", lambda **given: setup.update(given))
    monkeypatch.setattr(native_build, "build", lambda folder, without_gpu: built.update({folder: without_gpu}))
    runpy.run_path(str(ROOT / "setup.py"))
    command = setup["cmdclass"]["build_ext"](setup["distclass"]())
    command.inplace = True
    command.run()
    assert built == {native_build.INSTALLED: toolchain.RELEASE_ARCHS}


def test_with_a_list_of_architectures_that_is_none(build, compiler, tmp_path):
    if torch.version.cuda is None:
        pytest.skip("this torch is CPU-only")
    home = toolkit(tmp_path / "cuda", f"{torch.version.cuda}.1")
    done = run_build(build, CUDA_HOME=str(home), TORCH_CUDA_ARCH_LIST="Hopper")
    expect_sentence(done, "TORCH_CUDA_ARCH_LIST='Hopper'", "is not a compute capability")


def test_without_torch(build, tmp_path):
    # -S leaves out site-packages. Only setuptools is made available again.
    for path in Path(torch.__file__).parent.parent.iterdir():
        if path.name.startswith(("setuptools", "_distutils_hack")):
            (tmp_path / path.name).symlink_to(path)
    expect_sentence(run_build(build, "-S", PYTHONPATH=str(tmp_path)), "torch is not installed", "--no-build-isolation")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_with_an_environment_that_lacks_packages():
    command = ["make", "--no-print-directory", f"PYTHON={sys.executable} -S", "test"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    expect_sentence(done, "lacks torch", "pytest", "leave out PYTHON=")


@pytest.mark.parametrize(
    "arguments, names",
    [
        ([], "plan/dot emulation/dot"),
        (["-k", "mul", "-n0"], "plan/dot emulation/dot"),
        (["tests"], "plan/dot emulation/dot"),
        (["tests/plan", "-x"], "plan/dot"),
        (["tests/plan/dot/test_dot_plan.py", "tests/rooms"], ""),
        (["tests/plan/dot/test_dot_plan.py::test_x[1]", "tests/emulation/"], "emulation/dot"),
    ],
)
def test_libraries_of_tests_that_are_not_named_are_not_built(monkeypatch, arguments, names):
    """A test that loads a library builds it. All of them take minutes."""
    monkeypatch.setattr(test_build, "libraries", lambda: ["plan/dot", "emulation/dot"])
    assert test_build.needed(arguments) == names.split()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_says_which_tests_run():
    said = run("make", "-n", "test", "ARGS=tests/plan", f"PYTHON={sys.executable}", folder=ROOT)
    assert "-m tools.test_build tests/plan\n" in said and "-m pytest tests/plan\n" in said


# Setting up the environment


class Pip:
    """A substitute for pip that counts installs and fails as often as requested."""

    def __init__(self, monkeypatch):
        self.installs, self.failures, self.made, self.nvcc = 0, 0, 0, []

        def install(folder, torch_version):
            self.installs += 1
            self.failures -= 1
            return self.failures < 0

        def make(folder):
            self.made += 1
            script(bootstrap.python_of(folder), "echo yes")

        def install_nvcc(folder, found):
            return self.nvcc.pop(0)

        monkeypatch.setattr(toolchain, "find_host_compiler", lambda: None)
        monkeypatch.setattr(bootstrap, "install_packages", install)
        monkeypatch.setattr(bootstrap, "make_venv", make)
        monkeypatch.setattr(bootstrap, "install_nvcc", install_nvcc)


@pytest.fixture
def pip(monkeypatch):
    return Pip(monkeypatch)


def test_set_up_is_done_once_and_heals(pip, tmp_path, monkeypatch):
    folder = tmp_path / "env"
    bootstrap.set_up(folder, "2.11.0")
    bootstrap.set_up(folder, "2.11.0")
    assert (pip.made, pip.installs) == (1, 1)

    bootstrap.set_up(folder, "2.12.0")  # other versions: the environment is completed
    assert (pip.made, pip.installs) == (1, 2)

    bootstrap.stamp_of(folder).unlink()  # as after an interruption
    bootstrap.set_up(folder, "2.12.0")
    assert (pip.made, pip.installs) == (1, 3)

    bootstrap.stamp_of(folder).write_text("{ half a stamp")
    pip.failures = 1  # completing the environment fails, so it is made anew
    bootstrap.set_up(folder, "2.12.0")
    assert (pip.made, pip.installs) == (2, 5)

    bootstrap.python_of(folder).unlink()  # the Python of the environment is gone
    bootstrap.set_up(folder, "2.12.0")
    assert (pip.made, pip.installs) == (3, 6)

    bootstrap.stamp_of(folder).unlink()
    pip.failures = 2
    with pytest.raises(BuildError, match="Setting up env failed"):
        bootstrap.set_up(folder, "2.12.0")
    assert not bootstrap.stamp_of(folder).exists()


def test_nvcc_is_installed_once_and_heals(pip, bare, tmp_path, some_torch, monkeypatch):
    found = toolchain.read_torch(some_torch())
    monkeypatch.setattr(bootstrap, "torch_of", lambda folder: found)
    folder = tmp_path / "env"
    folder.mkdir()
    stamp = bootstrap.stamp_of(folder)

    stamp.write_text(json.dumps({"inputs": "x", "nvcc": "unfinished"}))  # as after an interruption
    wheels = toolkit(found.root.parent / "nvidia" / "cu13", "13.0.1")
    pip.nvcc = ["installed"]
    bootstrap.provide_nvcc(folder, bootstrap.read_stamp(folder))
    assert pip.nvcc == []
    bootstrap.provide_nvcc(folder, bootstrap.read_stamp(folder))

    shutil.rmtree(wheels)
    stamp.write_text(json.dumps({"inputs": "x"}))
    pip.nvcc = ["pip could not install nvcc"]
    bootstrap.provide_nvcc(folder, bootstrap.read_stamp(folder))
    bootstrap.provide_nvcc(folder, bootstrap.read_stamp(folder))  # is not installed again

    stamp.write_text(json.dumps({"inputs": "x"}))
    other = toolkit(tmp_path / "other", "12.8.93")
    monkeypatch.setenv("PATH", f"{other / 'bin'}:{os.environ['PATH']}")
    pip.nvcc = ["installed"]  # replaces one on PATH with another major version
    bootstrap.provide_nvcc(folder, bootstrap.read_stamp(folder))
    assert pip.nvcc == []
    monkeypatch.setenv("CUDA_HOME", str(other))
    with pytest.raises(BuildError, match="nvcc in CUDA_HOME"):
        bootstrap.provide_nvcc(folder, {"inputs": "x"})


def test_every_requirement_is_pinned():
    lines = [line for line in bootstrap.REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    assert lines and all(re.fullmatch(r"[a-z-]+(\[[a-z]+\])?==[\d.]+(; .*)?", line) for line in lines)
    pins = dict(line.partition(";")[0].split("==") for line in lines)
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    for repository, package in (("ruff-pre-commit", "ruff"), ("mirrors-clang-format", "clang-format")):
        assert f"{repository}\n    rev: v{pins[package]}\n" in hooks


# The built files


@pytest.fixture(scope="module")
def config():
    """The configuration of this machine's build. Skips if the library was not built here, as with an installed wheel."""
    try:
        found = native_build.configure()
    except BuildError as error:
        pytest.skip(str(error))
    if not (found.build_dir / found.library).exists():
        pytest.skip("the library was not built on this machine")
    return found


def test_library_is_a_plain_one():
    if shutil.which("nm") is None or shutil.which("readelf") is None:
        pytest.skip("nm and readelf (binutils) are not installed")
    library = str(_library.library_path())
    names = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    assert re.search(r"\bU\b.*c10", names)
    assert not re.findall(r" _?Py[A-Z]\w+", names)
    # Only torch's inline functions are visible symbols, so two versions of gpuopt in one process do not mix.
    defined = [line.split()[-1] for line in names.splitlines() if " U " not in line]
    assert not [name for name in defined if re.match(r"_Z\w*6gpuopt", name)]
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "libtorch_cpu.so" in needed
    assert "libpython" not in needed and "libtorch_python" not in needed
    # The search path is only $ORIGIN, for the library of kernels beside this one. torch is loaded already and needs no path.
    assert "RPATH" not in needed and set(re.findall(r"RUNPATH\).*\[(.*)\]", needed)) <= {"$ORIGIN"}


def test_kernels_know_nothing_of_torch():
    kernels = _library.FOLDER / _library.KERNELS
    if not kernels.exists() or shutil.which("nm") is None:
        pytest.skip("a library for the CPU has no kernels, or nm is not installed")
    names = subprocess.run(["nm", "-D", kernels], capture_output=True, text=True, check=True).stdout
    assert not re.findall(r"\S*(?:2at|3c10|5torch)\d\w+", names)
    # Only launchers are visible symbols. The linked CUDA runtime is hidden.
    shown = re.findall(r"^\w+ [^Uw] (\S+)", names, re.MULTILINE)
    assert shown and all("6gpuopt" in name for name in shown)


def seconds_of_children() -> float:
    """CPU time of all finished child processes. Unlike wall time, it does not depend on other tests running at the same time."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_build_with_nothing_to_do(config):
    native_build.build()
    before = _library.library_path().stat().st_mtime_ns
    started = seconds_of_children()
    done = subprocess.run(
        [sys.executable, "-m", "tools.native_build"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    seconds = seconds_of_children() - started
    first = f"gpuopt: building for torch {config.torch.version}: {native_build.describe(config)}"
    assert done.stdout.splitlines()[0] == first and ", ".join(config.archs) in first
    assert "no work to do" in done.stdout
    assert _library.library_path().stat().st_mtime_ns == before
    assert seconds < 2, "an up-to-date build must not be felt"


def test_an_output_that_lost_its_sources_is_built_anew(tmp_path):
    """A compiler that once leaves no list of the headers that it read: ninja would never see that they change."""
    (tmp_path / "build.ninja").write_text(
        "rule compile\n  command = cat $in header >$out; [ -e lost ] || echo $out: $in header >$out.d\n"
        "  depfile = $out.d\n  deps = gcc\nbuild out: compile source\n"
    )
    for name in ("source", "header", "lost"):
        (tmp_path / name).write_text(name)
    native_build.run_ninja(tmp_path)
    assert native_build.without_sources(tmp_path) == [tmp_path / "out"]
    (tmp_path / "lost").unlink()
    for text in ("changed", "again"):
        (tmp_path / "header").write_text(text)
        os.utime(tmp_path / "header", (time.time() + 5, time.time() + 5))
        native_build.run_ninja(tmp_path)
        assert (tmp_path / "out").read_text() == f"source{text}"
    assert native_build.without_sources(tmp_path) == []


def test_two_builds_at_once_take_iterations(config):
    command = [sys.executable, "-m", "tools.native_build"]
    with native_build.sole_builder(config):
        second = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert "waiting for another build" in second.stdout.readline()
        assert second.poll() is None
    assert "no work to do" in second.communicate(timeout=60)[0]


def test_builds_for_every_torch_share_their_kernels(config):
    if config.nvcc is None:
        pytest.skip("nvcc is not installed, so there are no kernels")
    elsewhere = replace(config, nvcc=replace(config.nvcc, path=Path("elsewhere/nvcc")))
    assert native_build.nvcc_command(elsewhere) == native_build.nvcc_command(config)
    newer = replace(
        config, torch=replace(config.torch, version="2.99.0"), build_dir=config.build_dir.with_name("newer")
    )
    assert newer.kernel_dir == config.kernel_dir != newer.build_dir
    others = [replace(config, archs=("8.0",)), replace(config, nvcc=replace(config.nvcc, version="13.9.1"))]
    assert len({config.kernel_dir, *(other.kernel_dir for other in others)}) == 3
    text = native_build.ninja_text(config)
    assert "rule nvcc" not in text and f"{config.kernel_dir.name}/{native_build.KERNELS}" in text


def test_facts_lie_beside_the_libraries(config):
    for built, facts in config.facts.items():
        known = json.loads((_library.FOLDER / built.name).with_suffix(".json").read_text())
        assert facts.items() <= known.items() <= {**_library.facts(), "built": known["built"]}.items()


def test_a_build_for_the_cpu_compiles_no_file_for_the_gpu(bare, compiler, monkeypatch):
    monkeypatch.setenv("GPUOPT_CPU_ONLY", "1")
    cpu = native_build.configure()
    assert cpu.build_dir.name.endswith("-cpu") and [facts["cuda"] for facts in cpu.facts.values()] == [None]
    text = native_build.ninja_text(cpu)
    assert "cuda" not in text.replace(str(ROOT), "") and "rule nvcc" not in text


@pytest.mark.parametrize("cuda", [True, False])
def test_every_binding_is_compiled_once(cuda):
    compiled = re.findall(r'#include "(.*)"\n', "".join(native_build.binding_units(cuda).values()))
    wanted = [path for path in layout.CSRC.rglob("*.cpp") if cuda or not path.stem.endswith("_cuda")]
    assert sorted(compiled) == sorted(str(path.relative_to(layout.CSRC)) for path in wanted)


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_wheel_works_outside_the_source_tree(config, new_setuptools, tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    archs = " ".join(config.archs)
    run(
        *(*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path, "."),
        folder=ROOT,
        TORCH_CUDA_ARCH_LIST=archs,
    )
    (wheel,) = tmp_path.glob("gpuopt-*.whl")
    assert re.search(r"-py3-none-linux_\w+\.whl$", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    libraries = {name for name in names if name.endswith(".so")}
    assert libraries == {f"torch_ops/lib/{built.name}" for built in config.facts}
    assert {str(Path(name).with_suffix(".json")) for name in libraries} <= set(names)
    # The package has the sources of the bindings, which torch_ops.build needs, but not the kernels.
    assert {f"torch_ops/csrc/{path.relative_to(layout.CSRC)}" for path in layout.CSRC.rglob("*.cpp")} <= set(names)
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "torch_ops").rglob("*.py")} <= set(names)
    assert "torch_ops/tools/native_build.py" in names and not [name for name in names if name.endswith((".cu", ".cuh"))]
    assert "torch_ops/py.typed" in names and [name for name in names if name.endswith("/LICENSE")]
    assert not [name for name in names if name.startswith(("tools/", "tests/", "csrc/", "gpuopt.py"))]
    assert f"Requires-Dist: torch=={config.torch.minor}.*" in metadata

    site = tmp_path / "site"
    run(*pip, "install", "--no-deps", "--no-index", "--target", site, wheel, folder=tmp_path)
    code = "import torch, torch_ops; print(torch_ops.__file__, torch_ops.mul(torch.full((2,), 3.0), 2).tolist())"
    said = run(sys.executable, "-c", code, folder=tmp_path, PYTHONPATH=str(site))
    assert said.strip().endswith(f"{site / 'torch_ops' / '__init__.py'} [6.0, 6.0]")


def test_source_distribution_is_complete(new_setuptools, tmp_path):
    run(sys.executable, "setup.py", "-q", "sdist", "-d", tmp_path, folder=ROOT)
    (archive,) = tmp_path.glob("gpuopt-*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    wanted = {path.relative_to(ROOT) for path in layout.headers() + sorted(layout.CSRC.rglob("*.c*")) if path.is_file()}
    wanted |= {
        Path("tools/native_build.py"),
        Path("tools/requirements.txt"),
        Path("torch_ops/py.typed"),
        Path("LICENSE"),
    }
    assert {str(path) for path in wanted} <= names
    assert not [name for name in names if name.endswith(".so")]
