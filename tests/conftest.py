"""Markers, parallel runs, skipping of GPU tests, and a summary of the skipped tests and the slowest files."""

from __future__ import annotations

import os
from collections import Counter

import pytest
import torch

MARKERS = {
    "gpu": "needs a CUDA device and a library built with CUDA",
    "large": "tensors of more than 2^31 elements; needs the GPU to itself",
    "gib(n)": "skipped where less than n GiB of GPU memory are free; needs the GPU to itself",
    "alone": "measures time; needs the GPU to itself",
    "torch_version": "depends on the version of torch: registration, Meta kernels, autograd, functorch, compilation, and how the "
    "library is found. Values, plans and emulated kernels are the same for every version (make test-torch)",
    "sanitize": "a small set that reaches every kernel path, for compute-sanitizer (make sanitize)",
}
# Files of more than 30 s. They start first, so that all processes end together.
LONG = tuple(
    f"tests/{name}.py"
    for name in ("contract/test_compile", "emulation/conv1d/test_conv1d_paths", "contract/test_values", "contract/test_written_values",
                 "tooling/test_examples_cpp", "emulation/scan/test_scan_recurrence", "contract/test_autograd", "tooling/benchmarks/test_fuzz",
                 "plan/conv1d/test_conv1d_plan")
)  # fmt: skip
ALONE = ("alone", "gib", "large")
MOST_WORKERS = 4


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Runs one process per core, at most MOST_WORKERS. The command line overrides this (-n0 runs all tests in this process).

    All tests of a file run in one process, so that fixtures and compiled functions are made once. Files start in the order of
    collection (loadscopereorder is off).
    """
    option = config.option
    parallel = config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput")
    if parallel and option.numprocesses is None and not (option.collectonly or option.usepdb):
        option.numprocesses = min(len(os.sched_getaffinity(0)), MOST_WORKERS)
        option.dist, option.loadscopereorder = "loadfile", False


def pytest_configure(config):
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    # Nearly all tensors are small, so waking threads costs more time than it saves, especially on a busy machine.
    torch.set_num_threads(1)
    # Tests compare gpuopt's convolutions with ATen's, and by default cuDNN rounds float32 operands to 10 bits (TF32). Tests also
    # require the same bits at every call, which cuDNN only promises with its deterministic flag. torch.testing forbids later
    # changes of these flags except by cudnn.flags().
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True


def why_no_gpu() -> str | None:
    if not torch.cuda.is_available():
        return "no CUDA device"
    import torch_ops  # noqa: F401  (under pytest-xdist the reporting process loads no tests)

    if not torch._C._dispatch_has_kernel_for_dispatch_key("gpuopt::mul.Tensor", "CUDA"):
        return "the library was built without CUDA"
    return None


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
    reason = why_no_gpu()
    for item in items:
        if not item.get_closest_marker("gpu"):
            continue
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"GPU test: {reason}"))
        elif "PYTEST_XDIST_WORKER" in os.environ and any(item.get_closest_marker(name) for name in ALONE):
            item.add_marker(pytest.mark.skip(reason=f"needs the GPU to itself: pytest -n0 -m '{' or '.join(ALONE)}'"))


def pytest_terminal_summary(terminalreporter):
    skipped = [r for r in terminalreporter.stats.get("skipped", []) if "gpu" in getattr(r, "keywords", ())]
    reason = why_no_gpu()
    if skipped and reason is not None:
        terminalreporter.write_line(
            f"{len(skipped)} GPU tests did not run ({reason}). On a machine with one: make test", yellow=True
        )
    reports = [r for of_outcome in terminalreporter.stats.values() for r in of_outcome if hasattr(r, "user_properties")]
    compared = sum(value for report in reports for name, value in report.user_properties if name == "compared")
    if compared:
        terminalreporter.write_line(f"{compared} calls of PyTorch's OpInfo samples were compared under the override")
    seconds = Counter()
    for report in (r for reports in terminalreporter.stats.values() for r in reports if hasattr(r, "duration")):
        seconds[report.nodeid.partition("::")[0]] += report.duration
    if not seconds:
        return
    terminalreporter.section(f"slowest files ({sum(seconds.values()):.0f} s in all processes together)")
    for file, of_file in seconds.most_common(10):
        terminalreporter.write_line(f"{of_file:7.1f} s  {file}")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def fresh_dynamo():
    """Compiled functions are forgotten before and after the test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def _enough_memory(request):
    """Skips a test marked @gib(n) if less than n GiB of GPU memory are free. Empties torch's cache after the test."""
    marker = request.node.get_closest_marker("gib")
    if marker is None:
        yield
        return
    gib = marker.args[0]
    free, _ = torch.cuda.mem_get_info()
    free += torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    if free < gib * 2**30 * 1.1:
        pytest.skip(f"needs {gib} GiB of GPU memory, {free / 2**30:.0f} are free")
    yield
    torch.cuda.empty_cache()
