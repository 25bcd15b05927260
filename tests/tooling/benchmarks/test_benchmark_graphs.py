"""The benchmarks of graphs and segments: random graphs, the traffic that is counted, peers, and results of every call."""

import dataclasses

import pytest
import torch

from benchmarks.harness import report
from benchmarks.harness.operands import BF16, F32
from benchmarks.harness.room import run_case
from benchmarks.harness.traffic import results
from benchmarks.rooms import bags as bench_bags
from benchmarks.rooms import segment as bench_segment
from benchmarks.rooms import spmm as bench_spmm
from benchmarks.rooms.graphs import ARXIV, LONGEST, Graph, structure, uniform

from ...support.benchmark_fakes import CPU, synthetic
from ...support.params import each_device

SMALL = Graph("small", 300, 2000, 0.7, 200)
CROWDED = Graph("more entries than cells", 20, 900, 0.6, 12)
CALLS = bench_spmm.ROOM.calls() | bench_segment.ROOM.calls()
OF_BAGS = ("embedding_bag", "embedding_bag step")
OF_MATRICES = [call for call in bench_spmm.ROOM.calls() if call not in OF_BAGS]

# ---------------------------------------------------------------- graphs


@pytest.mark.parametrize("graph", [SMALL, Graph("one row", 1, 7), Graph("one entry", 5, 1), uniform(SMALL)])
def test_a_matrix_and_its_transpose(graph):
    a = structure(graph, "cpu", 0, transpose=True)
    rows, columns = graph.shape
    dense = torch.zeros(rows, columns)
    dense.index_put_((a.row.long(), a.index.long()), torch.ones(graph.entries), accumulate=True)
    degrees = a.ptr.diff()
    assert torch.equal(degrees, dense.sum(1).int())
    assert torch.equal(a.row.long(), torch.arange(rows).repeat_interleave(degrees))
    assert torch.equal(a.t_ptr.diff(), dense.sum(0).int())
    assert torch.equal(a.t_index, a.row[a.t_entry]) and (a.index[a.t_entry].diff() >= 0).all()
    meta = structure(graph, "meta", 0, transpose=True)
    assert [t.shape for t in meta[:6]] == [t.shape for t in a[:6]]
    other = structure(graph, "cpu", 1, transpose=True)
    assert torch.equal(other.index, a.index) and other.index.data_ptr() != a.index.data_ptr()


def test_graphs_are_as_skewed_as_their_data_sets():
    """The longest rows of the data sets, found in a part of the entries."""
    for graph, longest in LONGEST.items():
        part = dataclasses.replace(graph, entries=min(graph.entries, 1_000_000))
        expected = longest * part.entries / graph.entries
        assert int(structure(part, "cpu", 0).ptr.diff().max()) == pytest.approx(expected, rel=0.35, abs=60), graph.name


def test_rows_of_dense_operands_count_as_often_as_they_are_read():
    found = structure(ARXIV, "cpu", 0)
    assert ARXIV.touched(ARXIV.rows) == pytest.approx(found.index.unique().numel(), rel=0.01)
    assert ARXIV.gathered_bytes(512) == 512 * ARXIV.entries  # 87 MB
    assert ARXIV.gathered_bytes(128) == 128 * ARXIV.touched(ARXIV.rows)
    read, written = bench_spmm.Product("spmm", ARXIV, 128).moved(F32)
    assert written == 4 * 128 * 169343
    assert read == 4 * (169344 + ARXIV.entries) + 512 * ARXIV.entries


# ---------------------------------------------------------------- results

PRODUCTS = [
    bench_spmm.Product(call, SMALL, 12, reduce, values, heads, layout)
    for call in OF_MATRICES
    for reduce in ("sum", "mean", "max")
    for values, heads in ((False, 0), (True, 0), (True, 3))
    for layout in ("", "misaligned", "pitched", "transposed")
    if (call.startswith("spmm") or (reduce, values) == ("sum", True))
    and (heads or "attention" not in call)
    and (reduce != "max" or not call.endswith("step"))  # gradients of equal maxima are defined differently
]
SEGMENTS = [
    bench_segment.Segments(call, dataclasses.replace(SMALL, columns=0, index=index), width, reduce, layout)
    for call in bench_segment.ROOM.calls()
    for reduce in (("sum", "mean", "max") if "reduce" in call else ("",))
    for index, width, layout in ((torch.int32, 12, "pitched"), (torch.int64, 1, "misaligned"))
    if reduce != "max" or not call.endswith("step")
]


@pytest.mark.parametrize("what", PRODUCTS + SEGMENTS, ids=lambda what: f"{what.call} {what.name}")
def test_right_results_pass(what):
    for dtype in (F32, BF16):
        case = what.case(what.call, dtype)
        call = CALLS[case.call]
        peers = (bench_spmm.GATHER,) if case.call.startswith(("spmm", "sddmm")) else ()
        row = run_case(case, call, peers, CPU, [])
        assert [entry["status"] for entry in row["contenders"].values()] == ["ok"] * (2 + len(peers)), row
        read, written = what.moved(dtype)
        assert read > 0 and written > 0


@each_device
@pytest.mark.parametrize("graph", [SMALL, CROWDED], ids=lambda graph: graph.name)
@pytest.mark.parametrize("call", [call for call in CALLS if call not in OF_BAGS])
def test_peers_compute_every_matrix(call, graph, device):
    """torch.sparse refuses matrices with more entries than cells, and merges entries of a cell in gradients."""
    if call in bench_segment.ROOM.calls():
        graph = dataclasses.replace(graph, columns=0)
        problems = [bench_segment.Segments(call, graph, 12, "mean" if "reduce" in call else "")]
    else:
        heads = 3 if "attention" in call else 0
        problems = [
            bench_spmm.Product(call, graph, 12, values=v, heads=heads)
            for v in ((False, True) if "spmm" in call else (False,))
        ]
        problems += [dataclasses.replace(what, reduce="mean") for what in problems if "spmm" in call]
    for what in problems:
        case = what.case(call, F32)
        row = run_case(case, CALLS[call], (), dataclasses.replace(CPU, device=device), [])
        assert [entry["status"] for entry in row["contenders"].values()] == ["ok", "ok"], row


@pytest.mark.parametrize("values", [False, True])
def test_bags(values):
    for is_step in (False, True):
        what = bench_bags.Bags((50, 12), 9, 4, values=values, is_step=is_step)
        case = what.case(F32, headline=False)
        row = run_case(case, CALLS[case.call], (), CPU, [])
        assert [entry["status"] for entry in row["contenders"].values()] == ["ok", "ok"], row


def test_references_are_not_a_peers(monkeypatch):
    """Only operators of dense tensors compute them, on every device."""
    monkeypatch.setattr(bench_spmm, "_sparse", None)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    for what in PRODUCTS:
        found = CALLS[what.call].reference(*what.build(F32, "cpu", 0))
        assert all(part.dtype == torch.float64 for part in results(found))


def test_wrong_results_are_found():
    case = bench_spmm.Product("spmm", SMALL, 12).case("spmm", F32)

    def of_other_columns(*args):
        a, rest = bench_spmm.split(args)
        return bench_spmm.spmm(*a._replace(index=a.index.roll(1)), *rest)

    row = run_case(case, dataclasses.replace(CALLS["spmm"], ours=of_other_columns), (), CPU, [])
    assert row["contenders"]["gpuopt"]["status"] == "wrong"


def test_references_in_parts(monkeypatch):
    monkeypatch.setattr(bench_spmm, "CHUNK", 3 * SMALL.entries)
    products = [("spmm", "max"), ("spmm", "mean"), ("spmm step", "sum"), ("sddmm", "sum")]
    for call, reduce in products:
        args = bench_spmm.Product(call, SMALL, 7, reduce, call != "sddmm").build(torch.float64, "cpu", 0)
        torch.testing.assert_close(CALLS[call].reference(*args), CALLS[call].aten(*args))


def test_peers_say_why_they_cannot(monkeypatch):
    monkeypatch.setattr(bench_spmm, "MOST_GATHERED", 1)
    case = bench_spmm.Product("spmm", SMALL, 12).case("spmm", F32)
    row = run_case(case, CALLS["spmm"], (*bench_spmm.CUSPARSE, bench_spmm.GATHER), CPU, synthetic([])["ceilings"])
    missing = {name: entry.get("reason") for name, entry in row["contenders"].items() if entry["status"] == "missing"}
    assert missing == {
        "cuSPARSE ALG2": "it needs a GPU",
        "cuSPARSE ALG3": "it needs a GPU",
        "index_select + index_add": "it makes tensors of 0 GiB",
    }


def test_a_brief_report_has_a_line_for_each_case(capsys):
    cases = [case for case in bench_spmm.ROOM.cases if case.op == "spmm-sum" and case.headline][:3]
    report.brief(synthetic(cases, bench_spmm.ROOM))
    head, *lines, summary, other, left_out, failed = capsys.readouterr().out.splitlines()
    assert [line.startswith(case.title) for line, case in zip(lines, cases)] == [True] * 3 and "ATen" in lines[0]
    assert summary.startswith("spmm-sum f32: ratio median ") and other.startswith("spmm-sum bf16: ")
    assert left_out == failed == ""


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_cusparse_with_descriptors_that_are_made_once(dtype):
    for values in (False, True):
        case = bench_spmm.Product("spmm", SMALL, 16, values=values).case("spmm", dtype)
        setting = dataclasses.replace(CPU, device="cuda")
        for peer in bench_spmm.CUSPARSE:
            run, _ = peer.prepare(CALLS["spmm"], case, setting)
            for seed in (0, 1, 0):
                args = case.build("cuda", seed)
                expected = CALLS["spmm"].reference(*args)
                torch.testing.assert_close(
                    run(*args).double(), expected, atol=0.3 if dtype == BF16 else 1e-3, rtol=0.05
                )
