"""The benchmark of convolutions: problems, operands, references, peers, and the detection of wrong results."""

import dataclasses
import itertools

import numpy
import pytest
import torch

import torch_ops
from benchmarks.harness import timer
from benchmarks.harness.peers import OURS, Setting
from benchmarks.harness.room import run_case
from benchmarks.harness.traffic import results
from benchmarks.rooms import conv1d as bench_conv1d
from benchmarks.rooms import convolutions, transposed
from benchmarks.rooms.convolutions import CUDNN, FFT, FFT_BLOCKS, Problem

from ...support.benchmark_fakes import CONV1D, CPU

F32, BF16, F16, F64 = torch.float32, torch.bfloat16, torch.float16, torch.float64
PROBLEMS = [
    Problem(3, 1, 50, 5, 1, padding=2),
    Problem(2, 6, 40, 4, 6, groups=6, padding=3, causal=True),
    Problem(2, 6, 40, 3, 6, groups=6, dilation=4, stride=3),
    Problem(2, 6, 31, 4, 9, groups=3, padding=2, stride=2, dilation=2),
    Problem(1, 1, 80, 10, 16, stride=5),
]


def statuses(case, call, peers=()):
    row = run_case(dataclasses.replace(case, peers=None), call, peers, CPU, [])
    return {name: entry["status"] for name, entry in row["contenders"].items()}


def convolving(*dtypes, shape=(300,), taps=9, mode="same", **options):
    return bench_conv1d._convolve_cases("convolve", shape, taps, mode, *dtypes, **options)


# ---------------------------------------------------------------- problems


def test_the_sample_is_of_the_shapes_that_are_claimed():
    sample = convolutions.sample(150)
    assert sample == convolutions.sample(150) != convolutions.sample(150, seed=1) and len(set(sample)) == 150
    for problem in sample:
        in_group, out_length = problem.channels // problem.groups, problem.out_length
        assert 1 <= in_group <= 8 and problem.channels % problem.groups == problem.out_channels % problem.groups == 0
        assert 1 <= problem.taps <= 64 and 1 <= problem.length <= 1 << 24 and out_length >= 1
        assert 1 <= problem.stride <= 8 and 1 <= problem.dilation <= 16
        for values in (problem.channels * problem.length, problem.out_channels * out_length):
            assert problem.batch * values <= convolutions.MOST_VALUES
    few = convolutions.sample(150, 1, convolutions.FEW_VALUES)
    for op, (suffix, problems) in itertools.product(bench_conv1d.BOTH, (("sample", sample), ("sample-small", few))):
        cases = [case for case in CONV1D.values() if case.op == f"{op}-{suffix}"]
        assert [case.name for case in cases] == [problem.name for problem in problems]
        assert {case.dtype for case in cases} == {"f32", "bf16", "f16"} and all(case.peers == () for case in cases)


@pytest.mark.parametrize("layout", convolutions.LAYOUTS)
def test_operands_lie_as_their_case_says(layout):
    problem = Problem(2, 6, 40, 4, 6, padding=3, groups=6)
    g, x, weight, *_ = convolutions.operands(problem, layout, BF16, False, True, "cpu", 0)
    assert weight.is_contiguous() and weight.shape == (6, 1, 4) and (g.shape, x.shape) == ((2, 6, 43), (2, 6, 40))
    for tensor in (g, x):
        n, c, length = tensor.shape
        strides = {
            "": (c * length, length, 1),
            "CL": (c * length, 1, c),
            "misaligned": (c * length, length, 1),
            "cropped": (c * (length + 16), length + 16, 1),
            "every second": (2 * c * length, 2 * length, 2),
        }
        assert tensor.stride() == strides[layout]
        assert tensor.storage_offset() == {"misaligned": 1, "cropped": 8}.get(layout, 0)


def test_copies_for_cudnn_say_that_their_channels_are_last():
    for problem in PROBLEMS:
        *tensors, _, _, _, _, g, x, weight = convolutions.operands(problem, "", F32, True, True, "cpu", 0)
        for tensor, copy in zip(tensors, (g, x, weight)):
            assert torch.equal(tensor, copy) and tensor.data_ptr() != copy.data_ptr()
            image = copy[:, :, None]
            assert image.stride(1) == 1 and image.is_contiguous(memory_format=torch.channels_last)


# ---------------------------------------------------------------- right and wrong


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_references_are_atens_in_float64(problem):
    x, weight, *geometry = convolutions.operands(problem, "", F64, False, False, "cpu", 0)
    torch.testing.assert_close(convolutions.reference(x, weight, *geometry), convolutions.conv1d(x, weight, *geometry))
    g, *operands = convolutions.operands(problem, "", F64, False, True, "cpu", 1)
    found = convolutions.reference_gradients(g, *operands)
    for ours, theirs in zip(found, convolutions.conv1d_backward(g, *operands), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    "problem",
    [
        transposed.Transposed(2, 6, 9, 6, 4, 2, 1, 1, groups=6),
        transposed.Transposed(1, 4, 7, 6, 3, 3, 2, 2, 2, groups=2),
        transposed.Transposed(3, 5, 8, 2, 7),
    ],
    ids=lambda problem: problem.name,
)
def test_transposed_references_are_atens_in_float64(problem):
    for op in (transposed.FORWARD, transposed.BACKWARD):
        args, call = problem.case(op, F64).build("cpu", 0), transposed.calls()[op]
        wanted = results(call.aten(*args))
        for function in (call.reference, call.ours):
            for found, theirs in zip(results(function(*args)), wanted, strict=True):
                torch.testing.assert_close(found, theirs)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_right_convolutions_pass_beside_their_peers(problem):
    calls = bench_conv1d._calls()
    for case in bench_conv1d._cases(problem, F32, BF16, F64):
        assert statuses(case, calls[case.call], (CUDNN,)) == dict.fromkeys(("gpuopt", "ATen", CUDNN.name), "ok")
    for layout in convolutions.LAYOUTS:
        for case in bench_conv1d._cases(problem, F32, F16, layout=layout, peers=()):
            assert statuses(case, calls[case.call]) == {"gpuopt": "ok", "ATen": "ok"}, case.title


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_wrong_convolutions_are_found(dtype):
    """The wrong results: a tap is missing, the output is cut on the wrong side, or one gradient is missing."""
    calls = bench_conv1d._calls()
    forward, backward = bench_conv1d._cases(PROBLEMS[1], dtype, peers=())

    def shorter(x, weight, *rest):
        return torch_ops.causal_conv1d(x, weight[:, 0].index_fill(1, torch.tensor(0), 0))

    def not_causal(x, weight, *rest):
        return convolutions.conv1d(x, weight, 1, (3, 3), 1, 6)[..., 3:]

    for ours in (shorter, not_causal):
        call = dataclasses.replace(calls[forward.call], ours=ours)
        assert statuses(forward, call) == {"gpuopt": "wrong", "ATen": "ok"}
    for wrong in (0, 1):
        call = calls[backward.call]

        def ours(*args, wrong=wrong, right=call.ours):
            return tuple(value * (1.01 + 0.1 * (position == wrong)) for position, value in enumerate(right(*args)))

        assert statuses(backward, dataclasses.replace(call, ours=ours)) == {"gpuopt": "wrong", "ATen": "ok"}
        call = dataclasses.replace(call, ours=lambda *args, right=call.ours: right(*args)[:1])
        assert statuses(backward, call) == {"gpuopt": "failed", "ATen": "ok"}


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("taps", [8, 200])
def test_right_convolve_passes_beside_its_peers_and_is_numpys(taps, mode):
    call = bench_conv1d._calls()["convolve"]
    peers = (bench_conv1d.DIRECT, FFT, FFT_BLOCKS)
    for case in convolving(F32, BF16, F16, F64, taps=taps, mode=mode):
        found = statuses(case, call, peers)
        assert found == dict.fromkeys(("gpuopt", "ATen", *(peer.name for peer in peers)), "ok"), case.title
    a, v, _ = case.build("cpu", 0)
    numpys = torch.from_numpy(numpy.convolve(a.numpy(), v.numpy(), mode))
    torch.testing.assert_close(call.reference(a, v, mode), numpys)
    for function in (convolutions.convolve, convolutions.fft_convolve):
        torch.testing.assert_close(function(torch.stack([a, 2 * a]), v, mode), torch.stack([numpys, 2 * numpys]))


# ---------------------------------------------------------------- peers


def test_every_case_has_the_peers_that_it_should_have():
    for case in CONV1D.values():
        peers = bench_conv1d.ROOM.peers if case.peers is None else case.peers
        names = [peer.name for peer in peers]
        if case.op in (transposed.FORWARD, transposed.BACKWARD):
            assert names == []
        elif case.headline and "CL" not in case.name:
            compiled = ["Inductor"] if case.op == bench_conv1d.FORWARD else []
            assert names == (["FFT", "FFT blocks"] if case.op == "convolve" else ["cuDNN channels-last", *compiled])
        # Only peers that need channels-last copies get them.
        if case.op in bench_conv1d.BOTH:
            tensors = [arg for arg in case.build("meta", 0) if isinstance(arg, torch.Tensor)]
            assert len(tensors) == (3 if case.op == bench_conv1d.BACKWARD else 2) * (2 if CUDNN in peers else 1)


SMALL = [
    *(case for problem in PROBLEMS for case in bench_conv1d._cases(problem, F32, BF16)),
    *(case for problem in PROBLEMS for case in bench_conv1d._cases(problem, F32, F16, layout="CL", peers=())),
    *convolving(F32, BF16, shape=(5000,), taps=31, peers=(bench_conv1d.DIRECT, FFT, FFT_BLOCKS)),
    *(bench_conv1d._act_case(PROBLEMS[1], "silu", dtype) for dtype in (F32, BF16)),
    *(bench_conv1d._update_case(3, 40, 4, dtype) for dtype in (F32, BF16)),
]


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.title)
def test_a_small_convolution_runs_with_all_peers(case):
    setting = Setting(timer.DeviceTimer(budget_s=0.005), "cuda", tune=False)
    call = bench_conv1d._calls()[case.call]
    row = run_case(case, call, bench_conv1d.ROOM.peers, setting, [])
    assert {"gpuopt", "ATen"} <= set(row["contenders"])
    for name, entry in row["contenders"].items():
        # cuDNN has no kernels for some channels-last problems.
        assert entry["status"] == "ok" or name == CUDNN.name, (name, entry)
        if entry["status"] == "ok":
            assert 0.2 < entry["us"]["median"] < 1000
    assert row["contenders"][OURS.name]["status"] == "ok"
    for out, exact in zip(results(call.ours(*case.build("cuda", 0))), results(call.reference(*case.build("cuda", 0)))):
        assert out.shape == exact.shape
