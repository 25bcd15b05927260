"""What a trial says: as text, as JSON and as a picture, also where nothing is gained."""

from __future__ import annotations

import dataclasses
import json

import pytest

from torch_ops.trial.clock import Clock, noise, summary
from torch_ops.trial.compare import Difference
from torch_ops.trial.conclusion import conclusion
from torch_ops.trial.measured import Way
from torch_ops.trial.operators import Operator
from torch_ops.trial.report import Report


def way(ms, gpu_ms=None, rounds=9, **options):
    families = {"matmul": 0.75 * gpu_ms, "sums": 0.25 * gpu_ms} if gpu_ms else {}
    return Way(Clock(ms, ms, ms, rounds), gpu_ms, families, 2**30, **options)


def report(before, after, again=None, operators=None, **options):
    """A report of three ways (wall clock, GPU time)."""
    again = again or before
    ways = {"PyTorch": way(*before), "override": way(*after), "PyTorch again": way(*again)}
    found = noise(ways["PyTorch"].clock, ways["PyTorch again"].clock, ways["override"].clock)
    rows = [Operator("sum", 2, {"size": 1}, 2.0, 1.0, 0.5)] if operators is None else operators
    return Report("a GPU", {"torch": "2"}, ways=ways, noise=found, steps=3, operators=rows, seconds=1.5, **options)


def test_text():
    differences = {"override": Difference(1e-7, "weight"), "PyTorch again": Difference(0.0, "")}
    text = str(report((8.0, 7.0), (4.0, 3.5), results=differences, gradients=differences, notes=["A note."]))
    assert text == "\n".join(
        [
            "a GPU, torch 2; 9 rounds of 3 steps in 1.5 s",
            "",
            "The override gains: a step takes 8 ms with PyTorch's kernels and 4 ms with the override, 2.00 times as fast."
            " By chance they differ by 1%.",
            "Replaced operators have 29% of PyTorch's GPU time. There the override saved 1 ms. The rest stays as it is.",
            "Declined calls of these operators take 0.5 ms of GPU time.",
            "With the override, the GPU waits for the host in 12% of the time."
            " trial(step, cuda_graph=True) says whether CUDA graphs help.",
            "",
            "                                  PyTorch  override  PyTorch again",
            "wall clock, ms                          8         4              8",
            "GPU time, ms                            7       3.5              7",
            "GPU waits for the host, ms              1       0.5              1",
            "host waits for the GPU                  0         0              0",
            "peak memory, MiB                     1024      1024           1024",
            "difference of results (weight)              1.0e-07        0.0e+00",
            "difference of gradients (weight)            1.0e-07        0.0e+00",
            "",
            "replaced operator  taken  declined  PyTorch, ms  override, ms  saved  declined calls, ms  declined because",
            "sum                    2         1            2             1      1                 0.5  size 1",
            "",
            "GPU time of  PyTorch, ms  override, ms  share",
            "matmul              5.25          2.62    75%",
            "sums                1.75         0.875    25%",
            "",
            "A note.",
        ]
    )


@pytest.mark.parametrize(
    "found, sentences",
    [
        (report((8.0, 7.0), (7.95, 6.95)), ["The override gains nothing: a step"]),
        (report((8.0, 7.0), (7.0, 6.9), again=(6.5, 7.0)), ["The override gains nothing: a step", "differ by 23%"]),
        (report((8.0, 7.0), (9.0, 7.0)), ["The override loses: a step", "1.12 times as long"]),
        (report((8.0, 2.0), (8.0, 1.0)), ["gains nothing", "The kernels take 50% less time, but"]),
        (report((8.0, 2.0), (8.0, 2.0)), ["gains nothing", "the GPU waits for the host in 75% of the time."]),
        (report((8.0, 2.0), (8.0, 3.0)), ["The kernels take 1.50 times as long"]),
        (report((8.0, 7.0), (8.0, 7.0), operators=[]), ["The step calls no operator that the override replaces."]),
        (report((8.0, 7.0), (8.0, 7.0), operators=[Operator("sum", 0, {"size": 3}, 1.0, 1.0, 1.0)]),
         ["No call was taken.", "the override saved nothing", "Declined calls of these operators take 1 ms"]),
        (report((8.0,), (4.0,), operators=[Operator("sum", 2)]), ["The override gains: a step"]),
    ],
)  # fmt: skip
def test_conclusions(found, sentences):
    text = "\n".join(conclusion(found))
    assert all(sentence in text for sentence in sentences), text
    assert str(found).count(text) == 1


def test_json():
    found = report((8.0, 7.0), (4.0, 3.5), results={"override": Difference(float("inf"), "result 0")})
    read = json.loads(found.json())
    assert read["ratio"] == 2.0 == read["gpu_ratio"]
    assert read["ways"]["override"]["clock"]["median"] == 4.0
    assert read["results"]["override"]["relative"] is None
    assert read["operators"][0]["declined"] == {"size": 1}
    assert read["conclusion"] == conclusion(found)
    assert set(read) == {field.name for field in dataclasses.fields(found)} | {"ratio", "gpu_ratio", "conclusion"}


@pytest.mark.parametrize("times", [((8.0, 7.0), (4.0, 3.5)), ((8.0,), (4.0,))], ids=["profiler", "no profiler"])
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_picture(tmp_path, suffix, times):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"trial.{suffix}"
    report(*times).plot(path)
    assert path.stat().st_size > 1000


def test_nothing_measured(tmp_path):
    empty = Report(reason="torch sees no GPU.")
    assert str(empty) == "Nothing was measured: torch sees no GPU."
    assert empty.ratio is None and json.loads(empty.json())["reason"] == "torch sees no GPU."
    with pytest.raises(ValueError, match="expected a report with some, got none: torch sees no GPU."):
        empty.plot(tmp_path / "trial.png")


def test_noise():
    steady, other = Clock(10.0, 10.0, 10.0, 25), Clock(10.5, 10.5, 10.5, 25)
    assert noise(steady, steady, steady) == 0.01
    assert noise(steady, other, steady) == pytest.approx(1 - 10.0 / 10.5)
    spread = summary([9.0, 10.0, 11.0, 10.0, 10.0])
    assert spread.median == 10.0 and spread.rounds == 5 and noise(spread, spread, spread) == 0.01
    spread = summary([5.0, 10.0, 15.0, 8.0, 12.0])
    assert noise(steady, steady, spread) == pytest.approx(2 * 1.253 * 4 / 1.349 / 5**0.5 / 10)
