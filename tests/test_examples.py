"""The demos' own machinery, and the mathematics of white balance."""

import io
import sys
import types

import pytest
import torch
from rich.console import Console

from examples import __main__ as command
from examples import _report, white_balance


def tinted():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(3, 16, 24, generator=generator) * torch.tensor([0.9, 0.5, 0.3]).view(3, 1, 1)


def test_srgb_there_and_back():
    values = torch.linspace(0, 1, 256)
    torch.testing.assert_close(white_balance.to_srgb(white_balance.to_linear(values)), values, atol=1e-5, rtol=0)
    assert white_balance.to_linear(torch.tensor(0.5)).item() == pytest.approx(0.2140, abs=1e-4)


def test_photographs_ship_with_scikit_learn():
    for name in white_balance.PHOTOGRAPHS:
        image = white_balance.load(name, "cpu")
        assert image.shape == (3, 427, 640) and image.dtype == torch.float32
        assert 0 <= image.min() and image.max() <= 1 and image.std() > 0.05


def test_gray_world_makes_the_means_equal():
    balanced = tinted() * white_balance.gray_world(tinted())
    torch.testing.assert_close(balanced.mean((1, 2)), tinted().mean().expand(3))


def test_training_finds_the_gray_world_gain():
    model = white_balance.WhiteBalance()
    losses = white_balance.train(model, tinted())
    assert losses[-1] < 1e-6 * losses[0]
    torch.testing.assert_close(model.gain.detach(), white_balance.gray_world(tinted()), rtol=1e-3, atol=1e-3)


@pytest.fixture
def a_report(tmp_path):
    return _report.Report("cpu", Console(width=120, file=io.StringIO()), tmp_path)


def test_a_row_holds_error_and_times_but_no_speedup_on_the_cpu(a_report):
    x, gain = tinted().half(), torch.full((3, 1, 1), 1.25).half()
    out = a_report.compare("mul", torch.mul, torch.mul, torch.mul, x, gain)
    torch.testing.assert_close(out, x * gain)
    (row,) = a_report.rows
    assert (row.op, row.shape, row.dtype) == ("mul", "(3, 16, 24) * (3, 1, 1)", "f16")
    assert 1e-5 < row.error < 1e-3 and row.torch_us > 0 and row.gpuopt_us > 0
    a_report.console.print(a_report.table())
    text = a_report.console.file.getvalue()
    assert "same kernel" in text and "call time" in text


@pytest.mark.gpu
def test_a_row_on_the_gpu_has_a_ratio(tmp_path):
    report = _report.Report("cuda", Console(width=120, file=io.StringIO()), tmp_path)
    report.compare("mul", torch.mul, torch.mul, torch.mul, tinted().cuda(), torch.full((3, 1, 1), 1.25, device="cuda"))
    report.console.print(report.table())
    assert (
        "device time" in report.console.file.getvalue() and 0.5 < report.rows[0].torch_us / report.rows[0].gpuopt_us < 2
    )


def add_demo(monkeypatch, run):
    monkeypatch.setattr(command, "demos", lambda: ["fake"])
    monkeypatch.setitem(sys.modules, "examples.fake", types.SimpleNamespace(TITLE="a fake demo", run=run))


def test_a_demo_that_fails_is_loud(monkeypatch, capsys):
    def run(report):
        raise RuntimeError("the compiler is missing")

    add_demo(monkeypatch, run)
    assert command.main([]) == 1
    said = capsys.readouterr()
    assert "the compiler is missing" in said.out and "the demo fake FAILED" in said.err


def test_without_a_gpu_the_demo_says_that_its_kernels_did_not_run(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    add_demo(monkeypatch, lambda report: report.note(f"on {report.device}"))
    assert command.main([]) == 0
    said = capsys.readouterr().out
    assert "the GPU kernels of gpuopt were NOT run" in said and "on cpu" in said and "a fake demo" in said


def test_demos_are_found_by_being_files():
    assert (
        command.demos()
        and "white_balance" in command.demos()
        and not any(name.startswith("_") for name in command.demos())
    )
    with pytest.raises(SystemExit) as stopped:
        command.main(["nope"])
    assert stopped.value.code == 2
