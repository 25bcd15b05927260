"""The benchmark of selective scans: references in pieces, the peer's calls, and rows without ATen."""

import sys
import types

import pytest
import torch
from torch.nn import functional

from benchmarks.harness.operands import F32
from benchmarks.harness.room import run_case
from benchmarks.random import report as sweep
from benchmarks.rooms import selective_scan as bench_selective_scan

from ...support.benchmark_fakes import CPU, synthetic

OPS = torch.ops.gpuopt
CALLS = bench_selective_scan.ROOM.calls()


@pytest.mark.parametrize("last", [False, True])
def test_references_in_pieces(last, monkeypatch):
    """Some channels at a time give the operator's float64 results, and all at once for Meta tensors."""
    monkeypatch.setattr(bench_selective_scan, "CHUNK", 2 * 30 * 16 * 3)
    scan = bench_selective_scan.Scan(2, 20, 30, last=last)
    dout, *operands = scan.build(torch.float64, True, "cpu", 0)
    out, _ = OPS.selective_scan(*operands, True)
    torch.testing.assert_close(bench_selective_scan.reference(*operands), out)
    found = OPS._selective_scan_backward(dout, None, *operands, True)
    for got, want in zip(found, bench_selective_scan.backward_reference(dout, *operands), strict=True):
        torch.testing.assert_close(got, want)
    assert (
        len(list(bench_selective_scan._chunks(dout, 16))) == 7
        and len(list(bench_selective_scan._chunks(dout.to("meta"), 16))) == 1
    )


def _extension() -> types.ModuleType:
    """A stand-in for mamba_ssm's extension: its arguments and results, computed by gpuopt. It takes rows only."""
    module = types.ModuleType("selective_scan_cuda")

    def check(*tensors):
        assert all(t.stride(-1) == 1 for t in tensors)

    def fwd(u, delta, A, B, C, D, z, bias, softplus):
        check(u, delta, B, C, z)
        out, last = OPS.selective_scan(u, delta, A, B, C, D, None, bias, softplus)
        return out, last, out * functional.silu(z)

    def bwd(u, delta, A, B, C, D, z, bias, dout, x, out, dz, softplus, recompute):
        check(u, delta, B, C, z, dout, out)
        du, ddelta, dA, dB, dC, dD, dz, dbias = OPS._selective_scan_backward(
            dout, None, u, delta, A, B, C, D, z, bias, softplus
        )
        return du, ddelta, dA, dB, dC, dD, dbias, dz

    module.fwd, module.bwd = fwd, bwd
    return module


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_the_peer_stands_in_for_aten(last, backward, monkeypatch):
    case = bench_selective_scan.Scan(2, 12, 10, last=last).case(F32, backward)
    call = CALLS[case.call]
    missing = run_case(case, call, bench_selective_scan.ROOM.peers, CPU, synthetic([])["ceilings"])["contenders"]
    assert {name: entry["status"] for name, entry in missing.items()} == {"gpuopt": "ok", "mamba_ssm": "missing"}
    monkeypatch.setitem(sys.modules, "selective_scan_cuda", _extension())
    row = run_case(case, call, bench_selective_scan.ROOM.peers, CPU, synthetic([])["ceilings"])
    entry = row["contenders"]["mamba_ssm"]
    assert entry["status"] == "ok" and entry["error"] < 1e-5, entry
    assert ("copies" in entry["detail"]) == last
    assert sweep.aten_ratio(row) == pytest.approx(1.1)
