"""torch_ops.trial and its command: what they measure, what they refuse, and what they say without a GPU."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import torch_ops
from torch_ops._override import active
from torch_ops.trial import script
from torch_ops.trial.compare import Difference
from torch_ops.trial.function import NO_GPU

from ..cuda_graph.support import recording
from ..support.overriding import nothing_is_left, override  # noqa: F401
from .support import Cpu, trial

ROOT = Path(__file__).parents[2]


def test_what_a_report_has():
    model, x = nn.Linear(8, 4), torch.randn(16, 8)

    def step():
        model.zero_grad()
        y = model(x)
        (y * y[:, :1]).sum(1).square().mean().backward()
        return {"y": y, "sum": y.sum().item()}

    found = trial(step)
    assert set(found.ways) == {"PyTorch", "override", "PyTorch again"}
    assert found.seconds > 0 and found.steps >= 1 and found.ways["override"].clock.rounds >= 5
    assert all(way.clock.median > 0 and way.peak_bytes == 2**20 for way in found.ways.values())
    rows = {row.name: row for row in found.operators}
    assert rows["sum"].taken >= 2 and rows["sum"].pytorch_ms > 0
    assert found.ways["PyTorch"].gpu_ms == pytest.approx(sum(found.ways["PyTorch"].families.values()))
    assert found.results["override"].relative < 1e-6 and found.gradients["override"].relative < 1e-6
    assert found.device == "the CPU" and found.notes == []
    assert str(found) and json.loads(found.json())


def test_differences_name_the_tensor():
    x, weight = torch.ones(4), torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight])

    def step():
        optimizer.zero_grad()
        factor = 3.0 if active() else 2.0
        (factor * weight).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return x, factor * x, "text"

    found = trial(step, ops="sum")
    assert found.results["override"] == Difference(pytest.approx(2 / 20**0.5), "result 1")
    assert found.gradients["override"] == Difference(pytest.approx(0.5), "parameter")
    assert found.results["PyTorch again"] == found.gradients["PyTorch again"] == Difference(0.0, "")


def test_no_results_and_no_gradients():
    x = torch.randn(4, 4)
    found = trial(lambda: None if x.sum() is None else None)
    assert found.notes == ["The step has no results to compare.", "The step has no gradients to compare."]
    assert found.results == found.gradients == {}


def test_options_of_the_override():
    x = torch.randn(64, 64)
    found = trial(lambda: (x.sum(0), x.mean(0)), ops="mean")
    assert [row.name for row in found.operators] == ["mean"]


def test_counts_of_the_user_stay():
    x = torch.randn(4, 4)
    torch_ops.override_report(reset=True)
    with override("cpu", "sum"):
        x.sum(0)
    assert [row.taken for row in trial(lambda: x.sum(0)).operators] == [1]
    assert torch_ops.override_report(reset=True).calls["sum"]["taken"] > 2


@pytest.mark.parametrize("recorded", [True, False])
def test_graphs(recorded):
    model, x = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)), torch.randn(16, 8)
    kind, calls = type(model), []
    if not recorded:
        model[1].register_forward_hook(lambda module, args, result: calls.append(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model[0].weight.clone()

    def step():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    with recording("cpu") as backend:
        found = trial(step, with_graphs=True)
    assert list(found.ways) == ["PyTorch", "override", "override, graphs", "PyTorch again"]
    assert bool(backend.recordings) is recorded
    assert any("recorded nothing" in note for note in found.notes) is not recorded
    assert "With CUDA graphs of the modules, too, it takes" in str(found)
    assert found.results["override, graphs"].relative < 1e-6 and found.gradients["override, graphs"].relative < 1e-6
    assert type(model) is kind and torch.equal(model[0].weight, before) and not attributes_of_graphs(model)


def attributes_of_graphs(model):
    return [name for module in model.modules() for name in vars(module) if name.startswith("_gpuopt")]


def test_graphs_of_the_user_stay():
    model, x = torch_ops.cuda_graph(nn.Sequential(nn.Linear(8, 4))), torch.randn(16, 8)
    with recording("cpu"):
        found = trial(lambda: model(x), with_graphs=True)
        assert attributes_of_graphs(model)
    torch_ops.cuda_graph(model, reverse=True)
    assert "torch_ops.cuda_graph recorded nothing: no module was found that it could record." in found.notes


def test_a_failing_profiler_is_noted(monkeypatch):
    @contextlib.contextmanager
    def profiled(self):
        raise RuntimeError("another profiler is running")
        yield

    monkeypatch.setattr(Cpu, "profiled", profiled)
    found = trial(lambda: torch.ones(4, 4).sum(0))
    assert found.ratio and found.gpu_ratio is None and found.operators[0].saved_ms is None
    assert "There is no GPU time: the profiler failed (another profiler is running)." in found.notes
    assert str(found)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ((5,), TypeError, "step must be a function without arguments: expected a callable, got int"),
        ((nn.Linear(2, 2),), TypeError, "got the module Linear"),
        ((print, "sum"), TypeError, "override must be an override: expected torch_ops.override, got str"),
        ((print, None, "fast"), TypeError, "seconds must be a number: expected float, got str"),
        ((print, None, 1.0, 1), TypeError, "cuda_graph must be a flag: expected bool, got int"),
        ((print, None, 0), ValueError, "seconds must be positive: expected more than 0, got 0"),
    ],
)
def test_errors(arguments, error, message):
    names = ("override", "seconds", "cuda_graph")
    with pytest.raises(error, match=message):
        torch_ops.trial(arguments[0], **dict(zip(names, arguments[1:])))


def test_an_enabled_override():
    with override("cpu", "sum"), pytest.raises(RuntimeError, match=r"expected none that is enabled, got one of sum"):
        trial(lambda: None)


def test_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    called = []
    found = torch_ops.trial(lambda: called.append(1))
    assert str(found) == f"Nothing was measured: {NO_GPU}" and called == []


# ---------------------------------------------------------------- scripts

SCRIPT = """
import sys
import torch

model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
assert __name__ == "__main__"
for number in range(int(sys.argv[1])):
    optimizer.zero_grad()
    try:
        model(torch.randn(16, 8)).sum(1).square().mean().backward()
        optimizer.step()
    except Exception:
        raise SystemExit(9)
"""


def of_script(folder, steps, text=SCRIPT, made="100", record=None):
    path = folder / "train.py"
    path.write_text(text)
    return script.measure_script(path, [made], steps, override("cpu"), Cpu(), lambda text: None, record)


def test_a_script(tmp_path):
    before = list(sys.argv), list(sys.path)
    found = of_script(tmp_path, 4, made=str(script.needed(4)))
    assert (sys.argv, sys.path) == before
    assert found.ways["override"].clock.rounds == 4 and found.steps == 1
    assert {row.name: row.taken for row in found.operators}["sum"] >= 1
    assert found.gpu_ratio and "Results" not in str(found)
    assert any("no state was put back" in note for note in found.notes)


def test_a_script_is_recorded(tmp_path):
    path = tmp_path / "calls.json"
    assert of_script(tmp_path, 2, made=str(script.needed(2, records=True)), record=path).ratio
    assert [call["operator"] for call in json.loads(path.read_text())["calls"]].count("sum") >= 1


def test_a_script_that_is_too_short(tmp_path):
    made = script.needed(4) - 1
    with pytest.raises(script.TooShort, match=rf"train.py made {made} training steps .* needs {made + 1}"):
        of_script(tmp_path, 4, made=str(made))


def test_a_script_that_fails(tmp_path):
    with pytest.raises(ZeroDivisionError):
        of_script(tmp_path, 4, SCRIPT + "\n1 / 0\n", made="9")


def test_a_script_with_two_optimizers(tmp_path):
    """A step is one of both."""
    second = SCRIPT.replace("    except", "        other.step()\n    except")
    second = second.replace("assert", "other = torch.optim.SGD(model.parameters(), lr=0.1)\nassert")
    assert of_script(tmp_path, 3, second, made=str(script.needed(3))).ways["PyTorch"].clock.rounds == 4


def test_the_command_without_a_gpu(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    (tmp_path / "train.py").write_text("raise SystemExit('it ran')")
    words = [sys.executable, "-m", "torch_ops.trial", str(tmp_path / "train.py"), "--json", str(tmp_path / "a.json")]
    done = subprocess.run([*words, "--", "--epochs", "3"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, f"Nothing was measured: {NO_GPU}\n", "")
    assert json.loads((tmp_path / "a.json").read_text())["reason"] == NO_GPU
