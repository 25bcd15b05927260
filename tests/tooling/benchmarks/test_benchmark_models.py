"""python -m benchmarks models: every model does a step on the CPU, kernels are classified, and results become tables, page and plot."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.autograd import DeviceType

from benchmarks.harness import machine, report
from benchmarks.models import measure as models
from benchmarks.models import report as model_report
from benchmarks.models import run as model_run
from benchmarks.models import zoo
from benchmarks.publish import layouts as layout_docs
from benchmarks.publish import models as model_page
from benchmarks.publish import pages, plots, readme
from torch_ops.trial import kernels
from torch_ops.trial.kernels import Kernel, family

from ...support.benchmark_fakes import GPU

PLAIN = {model_run.BASELINE: contextlib.nullcontext}

# ---------------------------------------------------------------- models


@pytest.mark.parametrize("model", zoo.models().values(), ids=lambda model: model.name)
def test_every_model_does_a_step(model, capsys):
    if reason := model.missing():
        pytest.skip(reason)
    for dtype, limit in (("f32", 1e-4), ("bf16", 0.5)):
        options = {"contexts": PLAIN, "seconds": 0.0, "save": lambda row: None}
        (row,) = model_run.run(model, model.task(tiny=True), "eager", [dtype], ["training"], "cpu", **options)
        entry = row["contenders"][model_run.BASELINE]
        assert row["note"] == "" and entry["status"] == "ok", row
        assert entry["output_error"] < limit and entry["gradient_error"] < limit
        assert entry.get("repeats") == (True if model.deterministic else None)
    assert not torch.are_deterministic_algorithms_enabled()


def test_tasks_repeat():
    first, second = (zoo.models()["dlrm"].task(tiny=True) for _ in range(2))
    assert all(map(torch.equal, first.inputs, second.inputs))
    assert all(map(torch.equal, first.module.parameters(), second.module.parameters()))


def test_a_missing_package_is_a_sentence(capsys):
    model = zoo.Model("x", "X", "", lambda tiny: None, package="no_such_package")
    assert model.missing() == "X needs no_such_package, which pip install 'gpuopt[models]' installs."


def test_zipf_rows_are_in_range():
    from benchmarks.models.zoo import embeddings, graphs

    rows = embeddings.zipf(7, 1000)
    assert rows.min() == 0 and rows.max() == 6
    counts = graphs.ends(100, 100_000).bincount(minlength=100).sort(descending=True).values
    assert counts[0] / counts[31] == pytest.approx(32**graphs.EXPONENT, rel=0.2)


# ---------------------------------------------------------------- measuring


class Narrow(nn.Module):
    """Computes in float32 whatever the dtype, as many norms do."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1 / 3))

    def forward(self, x):
        return x.float().softmax(-1, dtype=torch.float32).to(torch.float32) * self.weight


def test_the_reference_is_float64_throughout():
    task = zoo.Task(Narrow(), (torch.randn(3, 5),))
    output, gradients = model_run.reference(task, training=True)
    assert output.dtype == gradients[0].dtype == torch.float64
    expected = task.inputs[0].double().softmax(-1) * task.module.weight.double()
    assert torch.equal(output, expected.detach())


def test_relative_error_is_over_all_tensors():
    exact = [torch.tensor([3.0, 0.0]), torch.tensor([4.0])]
    assert model_run.relative_error([torch.tensor([3.0, 3.0]), torch.tensor([8.0])], exact) == pytest.approx(1.0)


def test_contenders_alternate_and_a_failure_keeps_the_other(capsys):
    entered = []

    @contextlib.contextmanager
    def noted():
        entered.append(True)
        yield

    @contextlib.contextmanager
    def broken():
        raise RuntimeError("no kernel\nand more")
        yield

    model = zoo.models()["word2vec"]
    for contexts in ({"PyTorch": noted, "gpuopt": noted}, {"PyTorch": noted, "gpuopt": broken}):
        saved = []
        options = {"contexts": contexts, "seconds": 0.0, "save": lambda row, saved=saved: saved.append(json.dumps(row))}
        (row,) = model_run.run(model, model.task(tiny=True), "eager", ["f32"], ["inference"], "cpu", **options)
        assert json.loads(saved[-1]) == json.loads(json.dumps(row)) and "output_error" not in saved[0]
    assert row["contenders"]["gpuopt"] == {"status": "failed", "reason": "RuntimeError: no kernel"}
    assert [row["contenders"][name]["ms"]["samples"] for name in ("PyTorch", "PyTorch again")] == [5, 5]
    assert "gpuopt failed (RuntimeError: no kernel)" in model_report.line(row)


def test_without_override_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(model_run, "contenders", lambda: (_ for _ in ()).throw(RuntimeError(model_run.NO_OVERRIDE)))
    assert models.main([]) == 2
    assert capsys.readouterr().err == f"benchmarks: {model_run.NO_OVERRIDE}\n"


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert models.main(["gcn"]) == 2
    assert capsys.readouterr().err.strip() == f"benchmarks: {models.command.NO_GPU}"


# ---------------------------------------------------------------- kernels

CONV = ((8, 64, 100), (64, 1, 3), (64,))
DENSE = ((8, 64, 100), (128, 64, 3), (128,))


@pytest.mark.parametrize(
    "name, operator, shapes, expected",
    [
        ("indexFuncLargeIndex", "aten::index_add_", (), "adding rows"),
        ("_scatter_gather_elementwise_kernel", "aten::scatter_add_", (), "adding rows"),
        ("DeviceRadixSortOnesweepKernel", "aten::_index_put_impl_", (), "adding rows"),
        ("gpuopt::rows", "gpuopt::index_add", (), "adding rows"),
        ("compute_grad_weight", "aten::embedding_dense_backward", (), "adding rows"),
        ("vectorized_gather_kernel", "aten::index_select", (), "gathering"),
        ("elementwise_kernel", "aten::mul", ((5, 4), (5, 1)), "broadcast mul"),
        ("vectorized_elementwise_kernel", "aten::mul", ((5, 4), (5, 4)), "element-wise"),
        ("vectorized_elementwise_kernel", "aten::mul", ((5, 4), ()), "element-wise"),
        ("conv_depthwise2d_forward_kernel", "aten::_conv_depthwise2d", CONV, "depthwise conv"),
        ("implicit_convolve_sgemm", "aten::cudnn_convolution", CONV, "depthwise conv"),
        ("sm90_xmma_fprop", "aten::cudnn_convolution", DENSE, "dense conv"),
        ("sm90_xmma_dgrad", "aten::convolution_backward", ((8, 64, 98), *CONV[:2]), "depthwise conv"),
        ("sm90_xmma_dgrad", "aten::convolution_backward", ((8, 128, 98), *DENSE[:2]), "dense conv"),
        ("one channel is no group", "aten::cudnn_convolution", ((8, 1, 100), (64, 1, 10)), "dense conv"),
        ("nvjet_tst_128x256", "aten::addmm", (), "matmul"),
        ("sm90_xmma_gemm", "", (), "matmul"),
        ("pytorch_flash::flash_fwd_kernel", "aten::_flash_attention_forward", (), "attention"),
        ("persist_gemm", "aten::_cudnn_rnn", (), "LSTM"),
        ("vectorized_layer_norm_kernel", "aten::native_layer_norm", (), "norm"),
        ("Memcpy DtoD", "aten::copy_", (), "copies"),
        ("CatArrayBatchedCopy", "aten::cat", (), "copies"),
        ("reduce_kernel<512, 1>", "aten::sum", (), "sums"),
        ("upsample_nearest2d_nhwc_out_frame", "aten::upsample_nearest2d", (), "upsampling"),
        ("cunn_SoftMaxForward", "aten::_softmax", (), "other"),
        ("vectorized_elementwise_kernel", "aten::add", (), "element-wise"),
        ("Memset", "aten::zero_", (), "other"),
        ("triton_poi_fused_index_put_mul_new_zeros_3", "", (), "adding rows"),
        ("triton_poi_fused_embedding_0", "", (), "gathering"),
        ("triton_red_fused_mul_sum_2", "", (), "sums"),
        ("triton_per_fused_native_layer_norm_4", "", (), "norm"),
        ("triton_poi_fused__unsafe_index_upsample_1", "", (), "upsampling"),
        ("triton_poi_fused_clone_1", "", (), "copies"),
        ("triton_poi_fused_add_relu_1", "", (), "element-wise"),
    ],
)
def test_families_of_kernels(name, operator, shapes, expected):
    assert expected in kernels.FAMILIES
    assert family(Kernel(name, operator, shapes, 1.0)) == expected


def event(name, device, correlation=0, linked=0, shapes=(), us=0.0, annotation=False):
    fields = {
        "name": name,
        "device_type": device,
        "correlation_id": correlation,
        "linked_correlation_id": linked,
        "shapes": [list(shape) for shape in shapes],
        "duration_ns": 1e3 * us,
        "is_user_annotation": annotation,
    }
    return SimpleNamespace(**{key: lambda value=value: value for key, value in fields.items()})


def test_kernels_find_their_operators():
    events = [
        event("aten::mul", DeviceType.CPU, 7, shapes=((4, 2), (4, 1))),
        event("cudaLaunchKernel", DeviceType.CPU, 40, 7),
        event("elementwise_kernel", DeviceType.CUDA, 40, 7, us=3.0),
        event("a region", DeviceType.CUDA, 41, us=100.0, annotation=True),
        event("gemm", DeviceType.CUDA, 42, us=1.0),
    ]
    found = kernels.kernels(events)
    assert found == [
        Kernel("elementwise_kernel", "aten::mul", ((4, 2), (4, 1)), 3.0),
        Kernel("gemm", "", (), 1.0),
    ]
    assert kernels.shares(found) == {"broadcast mul": 0.75, "matmul": 0.25}


# ---------------------------------------------------------------- results


def row(name="gcn", mode="eager", dtype="bf16", training=True, ms=(16.0, 8.0), again=None, **fields) -> dict:
    """A row of results with made-up numbers. A contender without a time failed. `again` is the baseline's second time."""
    model = zoo.models()[name]
    contenders = {}
    for contender, time in zip((model_run.BASELINE, model_run.OURS), ms):
        contenders[contender] = {"status": "failed", "reason": "no `kernel`"}
        if time:
            contenders[contender] = {
                "status": "ok",
                "ms": {"median": time},
                "gpu_ms": time / 2,
                "peak_bytes": 5e6,
                "shares": {"adding rows": 0.9, "copies": 0.08, "other": 0.02},
                "output_error": 1e-3,
                "gradient_error": 2e-3 if training else None,
                "repeats": True if model.deterministic else None,
            }
    if again:
        contenders[model_run.AGAIN] = {"status": "ok", "ms": {"median": again}}
    made = {"model": name, "title": model.title, "mode": mode, "dtype": dtype, "pass": model_run.PASSES[not training]}
    return made | {"note": "", "deterministic": model.deterministic, "contenders": contenders} | fields


def result(*rows: dict, left_out=(), commit="1234567890") -> dict:
    versions = {"torch": "2.11.0", "cuda": "13.0", "transformers": "5.24.0", "torch-geometric": None}
    made = report.document("models", GPU, versions, {"commit": commit, "dirty": False}, None, {})
    return made | {"rows": list(rows), "left_out": list(left_out), "date": "2026-01-02T00:00:00+00:00"}


ROWS = [
    row("dlrm", dtype="f32", note="no float64: OutOfMemoryError: it does not fit"),
    row("gcn", "compiled", ms=(10.0, 5.0)),
    row("gcn-deterministic", ms=(80.0, 8.0)),
    row("gcn", dtype="f32", ms=(18.0, None)),
    row("gcn", again=16.5),
    row("gcn", training=False, ms=(4.0, 4.0)),
]


def test_tables():
    made = model_report.parts(result(*ROWS, left_out=["word2vec is missing"]))
    assert (
        made["conditions"]
        == "Test GPU, driver None, torch 2.11.0, CUDA 13.0, transformers 5.24.0, 2026-01-02, commit 1234567."
    )
    assert made["eager"].splitlines()[2:] == [
        "| GCN | training | 16.0 -> 8.00 | 2.00 | 0.97 | 2.00 | gpuopt failed | - | - | - |",
        "| GCN | inference | 4.00 -> 4.00 | 1.00 | - | 1.00 | - | - | - | - |",
        "| GCN, deterministic | training | 80.0 -> 8.00 | 10.00 | - | 10.00 | - | - | - | - |",
        "| DLRM | training | - | - | - | - | 16.0 -> 8.00 | 2.00 | - | 2.00 |",
    ]
    assert len(made["compiled"].splitlines()) == 3
    assert "| GCN | bf16 | adding rows 90%, copies 8% |" in made["shares"]
    assert (
        "| GCN, deterministic | bf16 | 1.0e-03 -> 1.0e-03 | 2.0e-03 -> 2.0e-03 | 5 -> 5 | yes -> yes |"
        in made["exactness"]
    )
    assert made["notes"].splitlines() == [
        "- `word2vec is missing`",
        "- `DLRM, eager, training, f32: no float64: OutOfMemoryError: it does not fit`",
        "- `GCN, eager, training, f32: gpuopt failed: no 'kernel'`",
    ]


def test_the_front_page_counts_what_is_slower_beyond_the_noise():
    """Of three steps below 0.95, PyTorch differs more from itself in one."""
    slower = [row("gcn", ms=(16.0, 20.0), sizes="3 layers"), row("gin", ms=(16.0, 20.0), again=15.5)]
    noisy = [row("dlrm", ms=(16.0, 24.0), again=30.0), row("sage", ms=(16.0, 16.4))]
    text = " ".join(readme.models(result(*slower, *noisy)).split())
    assert "at worst 0.67 (DLRM, bf16 training; PyTorch to itself 1.88). 50% are below 0.95 beyond such noise." in text
    assert text.endswith("The ratio of GPU times is 0.67 or more in each step.")


def test_page_and_plot(tmp_path, monkeypatch):
    """The page is filled from a result, and keeps the text that is written by hand."""
    monkeypatch.setattr(model_page.machine, "REPOSITORY", tmp_path)
    path = tmp_path / "benchmarks" / "results" / "test-gpu" / "models.json"
    report.save(path, result(*ROWS))
    monkeypatch.setattr(report, "newest", lambda pattern: path)
    (text,) = model_page.pages().values()
    assert "16.0 -> 8.00" in text and "../benchmarks/results/test-gpu/models.png" in text
    assert "## What is gained, and what is not" in text
    (drawn,) = plots.draw(report.load(path), tmp_path, "models")
    assert drawn == tmp_path / "models.png" and drawn.read_bytes().startswith(b"\x89PNG")


def test_the_page_is_as_the_results_are():
    """If this fails, run `python -m benchmarks pages`."""
    assert pages.stale(model_page.pages()) == []


def test_merge(tmp_path, capsys):
    first, second, out = (tmp_path / f"{name}.json" for name in ("first", "second", "out"))
    report.save(first, result(row("dlrm"), row("gcn"), left_out=["a", "b"]))
    report.save(second, result(row("gcn", ms=(3.0, 1.0)), left_out=["b"]))
    assert models.main(["--merge", str(first), str(second), "--out", str(out)]) == 0
    merged = report.load(out)
    assert [(r["model"], model_report.ratio(r, "ms")) for r in merged["rows"]] == [("gcn", 3.0), ("dlrm", 2.0)]
    assert merged["left_out"] == ["a", "b"]
    report.save(second, result(commit="other"))
    assert models.main(["--merge", str(first), str(second), "--out", str(out)]) == 2
    assert "different GPUs or commits" in capsys.readouterr().err


def test_a_crash_costs_one_model(tmp_path, monkeypatch, capsys):
    """The whole command with made-up processes, on two made-up GPUs."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(machine, "gpu", lambda: GPU)
    monkeypatch.setattr(model_run, "contenders", dict)

    begun, broken = [], ["dlrm"]

    def run(command, env, **options):
        name, out = command[4], command[command.index("--out") + 1]
        assert env["CUDA_VISIBLE_DEVICES"] in "01"
        assert ("CUBLAS_WORKSPACE_CONFIG" in env) == name.endswith(zoo.DETERMINISTIC)
        begun.append(name)
        if name in broken:
            return SimpleNamespace(returncode=-11, stderr="warning\nFatal error\n")
        report.save(Path(out), {"rows": [row(name)]})
        return SimpleNamespace(returncode=models.TOO_LONG if name == "unet" else 0, stderr="")

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(models.subprocess, "run", lambda command, **options: run(command, **options))
    monkeypatch.setattr(zoo.Model, "missing", lambda self: None)
    monkeypatch.setattr(machine, "commit", lambda given: {"commit": given, "dirty": None})
    out = tmp_path / "models.json"
    names = ["dlrm", "unet", "gcn-deterministic", "encodec"]
    assert models.main([*names, "--modes", "eager", "compiled", "--limit", "5", "--out", str(out)]) == 1
    made = report.load(out)
    assert not made["complete"]
    assert {r["model"] for r in made["rows"]} == {"unet", "gcn-deterministic", "encodec"}
    assert "dlrm, eager, ended with code -11: Fatal error" in made["left_out"]
    assert "unet, eager, ended with code 124: the time limit of 5 s" in made["left_out"]
    assert any(text.startswith("EnCodec is not compiled: ") for text in made["left_out"])
    assert "16.0 -> 8.00" in capsys.readouterr().out

    begun.clear()
    kept = ["--commit", "abc", "--dtypes", "f32", "--passes", "training", "--modes", "eager", "--limit", "5"]
    assert models.main([*names, *kept, "--out", str(out)]) == 1 and len(begun) == 4
    begun.clear()
    broken.clear()
    assert models.main([*names, *kept, "--out", str(out), "--resume"]) == 0 and begun == ["dlrm"]
    made = report.load(out)
    assert made["complete"] and not made["left_out"] and len(made["rows"]) == 4
    assert models.main([*names, *kept, "--commit", "def", "--out", str(out), "--resume"]) == 1 and len(begun) == 5


def test_parts_cover_all_jobs(monkeypatch):
    monkeypatch.setattr(zoo.Model, "missing", lambda self: None)
    everything, _ = models.jobs(models.parse([]))
    halves = [models.jobs(models.parse(["--part", f"{i}/2"]))[0] for i in range(2)]
    assert sorted(halves[0] + halves[1]) == sorted(everything) and abs(len(halves[0]) - len(halves[1])) < 2


def test_layouts_are_measured_of_models_of_signals(monkeypatch):
    monkeypatch.setattr(zoo.Model, "missing", lambda self: None)
    found, left_out = models.jobs(models.parse(["--modes", "layout"]))
    assert ("wavenet", "layout") in found and ("gcn", "layout") not in found and not left_out


def test_layouts_are_compared_without_override(monkeypatch):
    from torch_ops.layout import modules, trial
    from torch_ops.layout.convolution import Times

    monkeypatch.setattr(trial, "devices", {"cpu"})
    monkeypatch.setattr(trial, "measure", lambda *problem: seen.add(problem[-1]) or Times(4.0, 1.0, 0.5, 0.5))
    model, seen = zoo.models()["wavenet"], set()
    options = {"contexts": {}, "seconds": 0.0, "save": lambda row: None}
    task = model_run.in_chosen_layouts(model.task(tiny=True), training=False)
    first = task.module.dilated[0]
    assert seen == {(False, False)} and not task.module.training
    assert type(first) is modules.Conv1d and first._layout.channels_last and not first.weight.is_contiguous()
    (row,) = model_run.run(model, model.task(tiny=True), "layout", ["f32"], ["training"], "cpu", **options)
    assert (True, True) in seen, "with gradients"
    assert list(row["contenders"]) == [model_run.BASELINE, model_run.OURS, model_run.AGAIN] and row["mode"] == "layout"
    assert row["contenders"][model_run.OURS]["output_error"] < 1e-5
    assert "WaveNet | training" in model_report.layouts(result(row))


def test_the_page_of_layouts(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "RESULTS", machine.REPOSITORY / "benchmarks" / "none")
    (text,) = layout_docs.pages().values()
    assert model_report.NOT_MEASURED in text
    path = machine.REPOSITORY / "benchmarks" / "results" / "gpu" / layout_docs.FILE
    made = result() | {"rows": []}
    monkeypatch.setattr(report, "load", lambda found: made)
    monkeypatch.setattr(report, "newest", lambda pattern: path)
    (text,) = layout_docs.pages().values()
    assert "[Every number](../benchmarks/results/gpu/layouts.json)" in text


def test_dry_run_and_list(capsys):
    assert models.main(["--dry", "word2vec", "--dtypes", "f32", "--passes", "inference"]) == 0
    assert capsys.readouterr().out.startswith("word2vec eager inference f32: PyTorch ")
    assert models.main(["--list", "fpn"]) == 0
    assert "ResNet-50" in capsys.readouterr().out
