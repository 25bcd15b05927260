"""The benchmark of partitioned graphs: the graph, the model and its fit, tables, the plot and the page. The ranks themselves run in
tests/rooms/triangle_count/test_distributed.py."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from benchmarks.harness import host, machine, report
from benchmarks.partitioned import measure, rank
from benchmarks.partitioned import report as partitioned
from benchmarks.partitioned.model import PREDICTED, Load, Model, fit, not_negative
from benchmarks.publish import partitioned as page
from benchmarks.publish import show
from torch_ops.distributed._deal import Deal

EDGES, VERTICES = 10**8, 10**7
TRUE = Model(work=2.0, call=1e-4, byte=1e-10, message=1e-4, start=0.01)


def row(ranks: int, model: Model = TRUE, backend: str = "nccl", device: str = "cuda") -> dict:
    """What a host would measure whose ranks are as the model says."""
    load = Load(ranks, EDGES, VERTICES)
    steps = model.seconds(load) - model.start
    of_rank = {"partition_s": 3.0, "save_s": 0.5, "load_s": 0.25, "file_bytes": 2e8, "named": VERTICES / ranks**0.5}
    of_rank |= {
        "count_s": model.seconds(load),
        "steps_s": steps,
        "held_bytes": load.memory,
        "count_peak": 1,
        "partition_peak": 1,
    }
    of_rank |= {"counting_s": model.counting(load), "communication_s": model.communication(load)}
    of_rank |= {"sent_bytes": load.bytes_for_each_edge * EDGES / ranks}
    common = {"device": device, "backend": backend, "ranks": ranks, "buckets": load.deal.buckets}
    common |= {"edges": EDGES, "vertices": VERTICES, "triangles": 12345, "single": {"orient_s": 0.5, "count_s": 1.75}}
    return common | {"each": [of_rank] * ranks}


def result(*rows: dict) -> dict:
    made = report.document(
        "partitioned", {"name": "Test GPU"}, {}, {"commit": "0" * 40, "dirty": False}, None, {"scale": 24}
    )
    return made | {"rows": list(rows), "complete": True}


def test_the_graph_is_the_same_for_every_number_of_ranks():
    cpu = torch.device("cpu")
    whole = torch.cat(rank.slices(9, 16, 0, 1, cpu), 1)
    dealt = torch.cat([each for part in range(3) for each in rank.slices(9, 16, part, 3, cpu)], 1)
    assert whole.shape == (2, 16 << 9) and whole.min() >= 0 and whole.max() < 1 << 9

    def ordered(ends):
        return (ends[0].long() * 512 + ends[1]).sort().values

    assert torch.equal(ordered(whole), ordered(dealt))
    # 0.57 and 0.19 of the entries have a source in the lower half, and so in each half of that.
    assert (whole[0] < 256).float().mean() == pytest.approx(0.76, abs=0.02)
    assert (whole[1] < 256).float().mean() == pytest.approx(0.76, abs=0.02)


def test_bytes_of_the_model_are_those_of_the_deal():
    for ranks in (1, 2, 4, 9):
        load = Load(ranks, EDGES, VERTICES)
        deal = Deal(load.deal.buckets, ranks)
        received = [
            sum(len(deal.received(rank, step)) for step in range(deal.buckets)) * load.block_bytes
            for rank in range(ranks)
        ]
        assert load.received == pytest.approx(max(received))
        assert load.bytes_for_each_edge == pytest.approx(sum(received) / EDGES)


def test_fit_finds_the_model_that_made_the_times():
    found = fit([row(ranks) for ranks in (1, 2, 4)])
    for field in dataclasses.fields(Model):
        assert getattr(found, field.name) == pytest.approx(getattr(TRUE, field.name), rel=1e-6), field.name
    load = Load(64, EDGES, VERTICES)
    assert found.seconds(load) == pytest.approx(TRUE.seconds(load))
    assert found.seconds(load, bandwidth=1e8) > found.seconds(load)


def test_factors_are_not_negative():
    assert not_negative([[1.0, 2.0, 4.0], [4.0, 2.0, 1.0]], [1.0, 2.0, 4.0]) == pytest.approx([1.0, 0.0], abs=1e-9)
    assert min(not_negative([[1.0, 2.0, 4.0], [3.0, 2.0, 1.0]], [1.0, 2.4, 5.5])) == 0.0


def test_one_rank_has_no_communication():
    found = fit([row(1)])
    assert (found.byte, found.message) == (0.0, 0.0) and found.communication(Load(1, EDGES, VERTICES)) == 0.0


def test_tables():
    slow = dataclasses.replace(TRUE, byte=1e-8)
    made = result(*(row(n) for n in (4, 1, 2)), *(row(n, slow, "gloo") for n in (1, 2)))
    text = partitioned.text(made)
    assert "Measured on Test GPU" in text
    assert "`torch_ops.triangle_count` on one device (GPUs, NCCL): 500 ms to orient, 1.75 s to count.\n" in text
    assert "\n| GPUs, NCCL | 1 | 1 | 3 s | 500 ms | 250 ms | 200 MB | 10,000,000 | 0% |" in text
    assert "\n| GPUs, NCCL | 4 | 4 | 3 s | 500 ms | 250 ms | 200 MB | 5,000,000 | 50% |" in text
    for title in ("GPUs, NCCL", "GPUs, gloo through the CPUs' memory"):
        for ranks in PREDICTED:
            assert f"\n| {title} | {ranks} | {Load(ranks, EDGES, VERTICES).deal.buckets} | " in text
    # A step of four is not hidden.
    (of_four,) = (row for row in partitioned.series(made)["GPUs, NCCL"] if row["ranks"] == 4)
    assert partitioned.hidden(of_four) == pytest.approx(0.75)


def test_show_and_plot(tmp_path, capsys):
    path = tmp_path / "partitioned.json"
    report.save(path, result(*(row(n) for n in (1, 2, 4))))
    assert show.main([str(path), "--plots", str(tmp_path)]) == 0
    assert "GPUs, NCCL" in capsys.readouterr().out
    assert (tmp_path / "partitioned.png").stat().st_size > 10_000


def test_the_page_is_of_the_newest_results(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "RESULTS", tmp_path)
    before = page.pages()[page.PAGE]
    assert before.count("Not measured yet.") == 2
    report.save(tmp_path / "test-gpu" / "partitioned.json", result(*(row(n) for n in (1, 2))))
    report.save(tmp_path / "cpu" / "partitioned.json", result(row(1, backend="gloo", device="cpu")))
    after = page.pages()[page.PAGE]
    assert "| GPUs, NCCL | 1024 |" in after and "| CPUs, gloo | 1 |" in after and "Not measured yet." not in after
    assert "<!-- plot partitioned.png of test-gpu/partitioned.json: " in after


def test_without_a_gpu_the_command_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert measure.main([]) == 2
    assert "--cpu measures processes on the CPU" in capsys.readouterr().err


def test_ranks_without_a_core_are_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "rows_of", lambda _, ranks, backend, kind, __: [row(ranks, backend=backend, device=kind)])
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert measure.main(["--cpu", "--out", str(tmp_path / "x.json")]) == 0
    found = report.load(tmp_path / "x.json")
    assert found["left_out"] == ["4 ranks, gloo: this host has 3 cores"] and found["complete"]
    assert [row["ranks"] for row in found["rows"]] == [1, 2] and found["settings"]["scale"] == 16


def test_different_counts_are_a_failure(monkeypatch, tmp_path, capsys):
    rows = iter([row(1, device="cpu", backend="gloo"), row(2, device="cpu", backend="gloo") | {"triangles": 7}])
    monkeypatch.setattr(host, "rows_of", lambda *_: [next(rows)])
    assert measure.main(["--cpu", "--ranks", "1", "2", "--out", str(tmp_path / "x.json")]) == 2
    assert "ranks count different triangles: [7, 12345]" in capsys.readouterr().err
    assert not report.load(tmp_path / "x.json")["complete"]
