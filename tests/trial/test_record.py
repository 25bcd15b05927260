"""Calls are recorded without their data, and made again from the record."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torch_ops.trial import replay as module
from torch_ops.trial.record import Recorder, load
from torch_ops.trial.replay import replay

from ..support.overriding import nothing_is_left, override  # noqa: F401
from .support import Cpu, trial

ROOT = Path(__file__).parents[2]


def recorded(path, function):
    with Recorder() as recorder:
        function()
    recorder.save(path)
    return load(path)


@pytest.fixture(autouse=True)
def small_copies(monkeypatch):
    monkeypatch.setattr(module, "_COPIED_BYTES", 1 << 10)


def replayed(record):
    return replay(record, override("cpu"), Cpu(), lambda text: None)


def model_step():
    words, signal, image = nn.Embedding(50, 8), nn.Conv1d(8, 8, 3, groups=8), nn.BatchNorm2d(4)
    index = torch.tensor([[3, 40, 7], [3, 3, 9]])

    def step():
        y = signal(words(index).mT)
        z = image(F.interpolate(y.reshape(2, 4, 2, 1), scale_factor=2))
        (z * z[..., :1]).sum(1).mean().backward()
        y.detach().mT.contiguous().index_add(1, torch.tensor([0, 0]), torch.ones(2, 2, 8))

    return step


def test_a_record_has_no_data(tmp_path):
    x = torch.full((4, 6), 12345.678).t()
    record = recorded(tmp_path / "a.json", lambda: [x.sum(0, dtype=torch.float64) for _ in range(3)])
    (call,) = record["calls"]
    tensor = {"shape": [6, 4], "stride": [1, 6], "dtype": "float32", "on_host": True}
    assert call == {
        "operator": "sum", "call": ["sum", "dim_IntList"], "args": [tensor, [0]], "kwargs": {"dtype": {"torch": "float64"}}, "count": 3
    }  # fmt: skip
    assert "12345" not in (tmp_path / "a.json").read_text()


@pytest.mark.torch_version
def test_a_model_is_replayed(tmp_path):
    record = recorded(tmp_path / "a.json", model_step())
    found = replayed(record)
    assert {"embedding_dense_backward", "index_select", "convolution", "convolution_backward", "sum", "mul", "index_add",
            "native_batch_norm", "native_batch_norm_backward", "upsample_nearest2d"} <= {row.operator for row in found.rows}  # fmt: skip
    assert [row for row in found.rows if row.outcome.startswith(("failed", "not replaced"))] == []
    assert all(row.pytorch_us == row.override_us == 10.0 and row.limit_us > 0 for row in found.rows)
    text = str(found)
    assert "sum" in text and "(50, 8)" not in text.splitlines()[0] and len(text.splitlines()) == len(found.rows) + 2


def test_indices_stay_in_their_range(tmp_path):
    offsets = torch.tensor([0, 2, 2, 5])
    calls = [
        lambda: torch.ones(100, 3).index_select(0, torch.tensor([98, 99])),
        lambda: torch.segment_reduce(torch.ones(5, 3), "sum", offsets=offsets),
        lambda: torch.ones(3, 4).index_add(0, torch.tensor([2, 2]), torch.ones(1, 4).expand(2, 4)),
    ]
    record = recorded(tmp_path / "a.json", lambda: [call() for call in calls])
    assert [call["args"][2].get("range") for call in record["calls"] if call["operator"] != "segment_reduce"] == [
        [98, 99],
        [2, 2],
    ]
    assert {row.outcome for row in replayed(record).rows} == {"taken"}


def test_what_is_left_out(tmp_path):
    matrix, x = torch.eye(4).to_sparse_csr(), torch.ones(4, 2)
    record = recorded(tmp_path / "a.json", lambda: (matrix @ x, x.sum(0)))
    assert record["left_out"] == 1 and [call["operator"] for call in record["calls"]] == ["sum"]
    assert "1 calls were not recorded" in str(replayed(record))


def test_a_call_that_fails(tmp_path):
    record = recorded(tmp_path / "a.json", lambda: torch.ones(4, 2).sum(0))
    record["calls"][0]["call"] = ["sum", "a_newer_overload"]
    (row,) = replayed(record).rows
    assert row.outcome.startswith("failed: ") and row.pytorch_us is None and str(replayed(record))


def test_a_trial_records(tmp_path):
    path = tmp_path / "calls.json"
    trial(model_step(), record=path)
    record = load(path)
    assert record["device"] == "the CPU" and record["versions"]["torch"] == torch.__version__
    assert {call["operator"] for call in record["calls"]} >= {"sum", "convolution"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 99}'])
def test_other_files(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"must be a record of version 1: expected one of --record, got .*a.json"):
        load(path)


def test_replay_without_a_gpu(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    path = tmp_path / "a.json"
    command = [sys.executable, "-m", "torch_ops.trial", "replay", str(path)]
    path.write_text("{}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "must be a record" in done.stderr and "Traceback" not in done.stderr
    path.write_text(json.dumps({"version": 1, "calls": [], "left_out": 0}))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "") and done.stdout.startswith("Nothing was measured: ")
