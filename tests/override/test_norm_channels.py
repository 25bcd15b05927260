"""Group, instance and batch norm under torch_ops.override: results, statistics and gradients are ATen's, and so are errors.

On the CPU, ATen has no kernel of cudnn_batch_norm, so that its calls are compared with native_batch_norm's.
"""

from __future__ import annotations

import contextlib
import itertools

import pytest
import torch
from torch.nn import functional as F

from ..support.compare import Failures, different_metadata, raised_by
from ..support.overriding import counted, error_of, made, nothing_is_left, override  # noqa: F401
from ..support.params import each_device

pytestmark = pytest.mark.torch_version

aten = torch.ops.aten

HALVES = (torch.float16, torch.bfloat16)
EPS = 1e-5
GROUP, BATCH, CUDNN = "native_group_norm", "native_batch_norm", "cudnn_batch_norm"
OPS = (GROUP, f"{GROUP}_backward", BATCH, f"{BATCH}_backward", CUDNN)


def group_norm(x, weight, bias):
    return F.group_norm(x, 2, weight, bias, EPS)


def batch_norm(x, weight, bias):
    return F.batch_norm(x, None, None, weight, bias, True, 0.1, EPS)


def instance_norm(x, weight, bias):
    return F.instance_norm(x, None, None, weight, bias, True, 0.1, EPS)


NORMS = {"group_norm": group_norm, "batch_norm": batch_norm, "instance_norm": instance_norm}


def inputs(device, dtype):
    """(name, input): the layouts that are taken."""
    for shape in ((5, 4, 7), (1, 6, 9), (3, 4, 5, 6), (2, 6, 1, 17), (2, 4, 3, 2, 5), (2, 2, 70, 70)):
        yield str(shape), made(device, dtype, *shape)
    yield "an offset", made(device, dtype, 3 * 4 * 5 * 6 + 1)[1:].view(3, 4, 5, 6)
    yield "a matrix", made(device, dtype, 9, 6)
    yield "channels last", made(device, dtype, 3, 4, 5, 6).to(memory_format=torch.channels_last)


def parameters_of(x, dtype, given):
    made_ones = [made(x.device, dtype, x.shape[1]) + k for k in (1, 0)]
    return made_ones if given else [None, None]


def taken_by(norm, x, weight):
    """The calls that a norm and its gradients make. A batch norm reaches cuDNN on CUDA alone."""
    if norm == "group_norm":
        return {GROUP: {"taken": 1}, f"{GROUP}_backward": {"taken": 1}}
    by_cudnn = x.is_cuda and weight is not None and x.dim() > 2 and x.dtype != torch.bfloat16
    if by_cudnn and weight.dtype == torch.float32:
        return {CUDNN: {"taken": 2}}
    return {BATCH: {"taken": 1}, f"{BATCH}_backward": {"taken": 1}}


def results_of(norm, x, parameters):
    """The result, and the gradients of all operands."""
    leaves = [t if t is None else t.detach().requires_grad_() for t in (x, *parameters)]
    result = norm(*leaves)
    grad = made(x.device, result.dtype, *x.shape).as_strided_(x.shape, x.stride())
    return [result.detach(), *torch.autograd.grad(result, [leaf for leaf in leaves if leaf is not None], grad)]


def reaches_a_fault_of_cudnn(form, x, of_weight):
    """cuDNN, which the results are compared with, accesses float16 between two words and ends the context (torch 2.11)."""
    return form == "an offset" and x.is_cuda and x.dtype == torch.float16 and of_weight == torch.float32


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_results_and_gradients(name, dtype, device):
    failures, norm = Failures(), NORMS[name]
    kinds = [(False, dtype), (True, dtype), *([(True, torch.float32)] if dtype in HALVES else [])]
    for (form, x), (given, of_weight) in itertools.product(inputs(device, dtype), kinds):
        # ATen copies channels-last inputs of group norms on CUDA, and has other kernels for them on the CPU. Its CUDA kernels of
        # group norm refuse weights of another dtype. A sample of one position has no instance norm.
        is_group = name == "group_norm"
        if is_group and (device == "cpu" and form == "channels last" or of_weight != dtype or x.dim() == 2):
            continue
        if reaches_a_fault_of_cudnn(form, x, of_weight if given else None):
            continue
        if name == "instance_norm" and x.dim() == 2:
            continue
        parameters = parameters_of(x, of_weight, given)
        title = f"{form}, {of_weight if given else 'no weights'}"
        with failures.sample(title):
            want = results_of(norm, x, parameters)
            exact = results_of(norm, x.double(), [p if p is None else p.double() for p in parameters])
            with (
                counted() as calls,
                override(device, OPS),
            ):
                got = results_of(norm, x, parameters)
            if calls != taken_by(name, x, parameters[0]):
                failures.add(title, f"was not taken: {calls}")
            for ours, theirs, reference in zip(got, want, exact, strict=True):
                failures.add(title, different_metadata(ours, theirs))
                limit = max(16 * torch.finfo(ours.dtype).eps, 4 * error_of(theirs, reference))
                if not (error := error_of(ours, reference)) <= limit:
                    failures.add(title, f"error {error:.2e}, limit {limit:.2e}")
    failures.check(at_least=7)


# ---------------------------------------------------------------- statistics


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES, torch.float64], ids=str)
def test_statistics(dtype, device):
    """float32 for half types. Statistics of a group norm have the dtype of the input."""
    x = made(device, dtype, 3, 4, 5, 6)
    wide = x.double()
    with override(device):
        of_group = aten.native_group_norm(x, None, None, 3, 4, 30, 2, EPS)
        of_batch = aten.native_batch_norm(x, None, None, None, None, True, 0.1, EPS)
        legit = aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, EPS)
    statistic = torch.promote_types(dtype, torch.float32)
    for found, dims, shape, expected in ((of_group, (2, 3), (3, 2), dtype), (of_batch, (0, 2, 3), (4,), statistic)):
        of = wide.view(3, 2, 60) if len(shape) == 2 else wide
        dims = (2,) if len(shape) == 2 else dims
        deviation = (of.var(dims, unbiased=False) + EPS).rsqrt()
        for got, exact in zip(found[1:], (of.mean(dims), deviation), strict=True):
            assert got.shape == shape and got.dtype == expected and got.is_contiguous()
            torch.testing.assert_close(
                got.double(), exact, rtol=4 * torch.finfo(expected).eps, atol=1e-2 if expected in HALVES else 1e-6
            )
    assert all(torch.equal(*pair) for pair in zip(of_batch, legit, strict=True))
    if device == "cuda":
        theirs = (
            aten.native_group_norm(x, None, None, 3, 4, 30, 2, EPS),
            aten.native_batch_norm(x, None, None, None, None, True, 0.1, EPS),
        )
        for ours, other in zip((of_group, of_batch), theirs, strict=True):
            assert [different_metadata(*pair) for pair in zip(ours, other, strict=True)] == [None] * 3


def running(device, dtype, channels=4):
    return made(device, dtype, channels), made(device, dtype, channels).abs() + 0.5


@each_device
@pytest.mark.parametrize("momentum", [0.0, 0.1, 0.75, 1.0])
@pytest.mark.parametrize(
    "of_input, of_running",
    [(torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.bfloat16,) * 2],
    ids=str,
)
def test_running_statistics(of_input, of_running, momentum, device):
    """They change in place, as ATen's do. No version is counted by the operator itself."""
    x = made(device, of_input, 3, 4, 5)
    # F.instance_norm rounds them to the dtype of the input.
    for function, rounded_to in (
        (lambda x, mean, var: F.batch_norm(x, mean, var, None, None, True, momentum), of_running),
        (lambda x, mean, var: aten._native_batch_norm_legit(x, None, None, mean, var, True, momentum, EPS), of_running),
        (lambda x, mean, var: F.instance_norm(x, mean, var, None, None, True, momentum), of_input),
    ):
        want, got = (running(device, of_running) for _ in range(2))
        exact = [statistic.double() for statistic in want]
        function(x, *want)
        function(x.double(), *exact)
        with counted() as calls, override(device):
            function(x, *got)
        assert calls[BATCH] == {"taken": 1}
        eps = torch.finfo(rounded_to).eps
        for ours, theirs, reference in zip(got, want, exact, strict=True):
            assert ours._version == theirs._version
            torch.testing.assert_close(ours.double(), reference, rtol=4 * eps, atol=4 * eps)


# ---------------------------------------------------------------- gradients


@each_device
@pytest.mark.parametrize("name", [GROUP, BATCH])
def test_masks(name, device):
    """Gradients that are not wanted are undefined. A call that wants all has the same others."""
    x, weight = made(device, torch.float32, 3, 4, 5), made(device, torch.float32, 4)

    def backward(mask):
        if name == GROUP:
            statistics = aten.native_group_norm(x, None, None, 3, 4, 5, 2, EPS)[1:]
            return aten.native_group_norm_backward(x + 1, x, *statistics, weight, 3, 4, 5, 2, mask)
        statistics = aten.native_batch_norm(x, None, None, None, None, True, 0.1, EPS)[1:]
        return aten.native_batch_norm_backward(x + 1, x, weight, None, None, *statistics, True, EPS, mask)

    with override(device):
        every = backward([True] * 3)
    for mask in itertools.product((False, True), repeat=3):
        with counted() as calls, override(device):
            found = backward(list(mask))
        assert calls[f"{name}_backward"] == {"taken": 1}
        assert [t is not None for t in found] == list(mask)
        for got, want in zip(found, every, strict=True):
            if got is not None:
                torch.testing.assert_close(got, want)
        if device == "cuda":
            assert [t is None for t in backward(list(mask))] == [t is None for t in found]


@each_device
def test_derivatives(device):
    """Of any order, and of each example: autograd's formulas lie above the kernels."""
    x, weight, bias = (made(device, torch.float64, *shape).requires_grad_() for shape in ((3, 4, 5), (4,), (4,)))
    with override(device):
        for norm in NORMS.values():
            assert torch.autograd.gradcheck(norm, (x, weight, bias))
            assert torch.autograd.gradgradcheck(norm, (x, weight, bias))
        batch = torch.stack([x, 2 * x]).detach()
        got = torch.vmap(lambda x: batch_norm(x, weight, bias))(batch)
    torch.testing.assert_close(got, torch.stack([batch_norm(x, weight, bias) for x in batch]))


# ---------------------------------------------------------------- cuDNN


def by_cudnn(x, weight, bias):
    return aten.cudnn_batch_norm(x, weight, bias, None, None, True, 0.1, EPS)


@each_device
def test_a_reserve_of_cudnn_goes_back_to_cudnn(device):
    """A gradient is taken if the reserve is empty, and then needs nothing but statistics."""
    x, weight, bias = (made(device, torch.float32, *shape) for shape in ((3, 4, 5, 6), (4,), (4,)))
    want = results_of(batch_norm, x, (weight, bias))
    with counted() as calls, override(device, CUDNN):
        got = results_of(lambda *operands: by_cudnn(*operands)[0], x, (weight, bias))
        _, mean, rstd, reserve = by_cudnn(x, weight, bias)
    assert calls == {CUDNN: {"taken": 3}}
    for ours, theirs in zip(got, want, strict=True):
        assert different_metadata(ours, theirs) is None
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert reserve.dtype == torch.uint8 and reserve.shape == (0,)
    assert mean.dtype == rstd.dtype == torch.float32
    foreign = torch.zeros(8, dtype=torch.uint8, device=device)
    with counted() as calls, override(device, CUDNN):
        raised_by(aten.cudnn_batch_norm_backward, x, x, weight, None, None, mean, rstd, EPS, foreign)
    assert calls == {CUDNN: {"unsupported": 1}}


@pytest.mark.gpu
def test_gradients_of_cudnns_own_forward():
    """And of a forward pass under an override that has ended, whose empty reserve cuDNN takes or refuses."""
    x, weight, bias = (made("cuda", torch.float32, *shape).requires_grad_() for shape in ((3, 4, 5, 6), (4,), (4,)))
    want = torch.autograd.grad(batch_norm(x, weight, bias).square().sum(), (x, weight, bias))
    outside = batch_norm(x, weight, bias).square().sum()
    with override("cuda"):
        inside = batch_norm(x, weight, bias).square().sum()
        got = torch.autograd.grad(outside, (x, weight, bias))
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    try:
        got = torch.autograd.grad(inside, (x, weight, bias))
    except RuntimeError as error:
        assert "cuDNN" in str(error)
    else:
        for ours, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_evaluation(dtype, device):
    failures = Failures()
    kinds = [(False, torch.float32), (True, dtype), (True, torch.float32)]
    for (form, x), (given, of_weight) in itertools.product(inputs(device, dtype), kinds):
        if reaches_a_fault_of_cudnn(form, x, of_weight):
            continue
        parameters, statistics = parameters_of(x, of_weight, given), running(device, of_weight, x.shape[1])
        title = f"{form}, {of_weight if given else 'no weights'}"
        with failures.sample(title):
            want = F.batch_norm(x, *statistics, *parameters)
            exact = F.batch_norm(x.double(), *(t if t is None else t.double() for t in (*statistics, *parameters)))
            kept = [t.clone() for t in statistics]
            with counted() as calls, override(device, OPS):
                got = F.batch_norm(x, *statistics, *parameters)
            if list(calls.values()) != [{"taken": 1}]:
                failures.add(title, f"was not taken: {calls}")
            failures.add(title, different_metadata(got, want))
            if not all(map(torch.equal, statistics, kept)):
                failures.add(title, "changed the statistics")
            limit = max(16 * torch.finfo(dtype).eps, 4 * error_of(want, exact))
            if not (error := error_of(got, exact)) <= limit:
                failures.add(title, f"error {error:.2e}, limit {limit:.2e}")
    failures.check(at_least=len(kinds) * 8)


# ---------------------------------------------------------------- what is declined

DECLINED = {
    "no samples": lambda x: batch_norm(x[:0], None, None),
    "one value of each channel": lambda x: aten.native_batch_norm(x[:1, :, :1], None, None, None, None, True, 0.1, EPS)[
        0
    ],
    "no values": lambda x: group_norm(x[..., :0], None, None),
    "evaluation with a mean alone": lambda x: F.batch_norm(x, x[0, :, 0], None),
    "integers": lambda x: batch_norm(x.int(), None, None),
    "a mean without a variance": lambda x: F.batch_norm(x, x[0, :, 0], None, training=True),
    "running statistics of another size": lambda x: F.batch_norm(
        x, *running(x.device, torch.float32, 3), training=True
    ),
    "a weight of another dtype": lambda x: batch_norm(x, x[0, :, 0].double(), None),
    "a weight of another size": lambda x: batch_norm(x, x[0, :3, 0], None),
    "weights of two dtypes": lambda x: batch_norm(x.bfloat16(), x[0, :, 0], x[0, :, 0].bfloat16()),
    "groups that do not divide the channels": lambda x: F.group_norm(x, 3),
    "a weight of a group norm in another dtype": lambda x: group_norm(x.bfloat16(), x[0, :, 0], x[0, :, 0]),
    "other sizes": lambda x: aten.native_group_norm(x, None, None, 3, 5, 4, 2, EPS)[0],
    "channels innermost in a signal": lambda x: batch_norm(x.mT.contiguous().mT, None, None),
    "channels innermost in a volume": lambda x: batch_norm(
        x.view(3, 4, 1, 1, 5).to(memory_format=torch.channels_last_3d), None, None
    ),
    "a transposed batch": lambda x: batch_norm(x.transpose(0, 1).contiguous().transpose(0, 1), None, None),
    "a part of each plane": lambda x: batch_norm(x[..., 1:], None, None),
    "an expanded sample": lambda x: batch_norm(x[:1].expand(3, 4, 5), None, None),
    "one position in three dimensions": lambda x: batch_norm(x[..., :1].contiguous(), None, None),
    "a gradient of a weight that is not there": lambda x: aten.native_batch_norm_backward(
        x, x, None, None, None, x[0, :, 0], x[0, :, 0], True, EPS, [True, True, False]
    )[0],
    "a gradient without statistics": lambda x: aten.native_batch_norm_backward(
        x, x, None, *running(x.device, torch.float32), x[0, :0, 0], x[0, :0, 0], False, EPS, [True, False, False]
    )[0],
}


@each_device
@pytest.mark.parametrize("form", DECLINED)
def test_what_is_declined(form, device):
    """Errors and results are ATen's."""
    call, x = DECLINED[form], made(device, torch.float32, 3, 4, 5)
    want, error = None, raised_by(call, x)
    if error is None:
        want = call(x)
    with counted() as calls, override(device, OPS):
        if error is not None:
            assert repr(raised_by(call, x)) == repr(error)
        else:
            got = call(x)
            assert torch.equal(got.nan_to_num(9), want.nan_to_num(9)) and got.stride() == want.stride()
    assert not any("taken" in row for row in calls.values()), calls


@pytest.mark.parametrize(
    "name, reason, function",
    [
        (BATCH, "size", lambda x: batch_norm(x[:1], None, None)),
        (BATCH, "taken", lambda x: batch_norm(x, None, None)),
        (BATCH, "taken", lambda x: F.batch_norm(x, *running("cpu", torch.float32, 64))),
        (BATCH, "dtype", lambda x: batch_norm(x.double(), None, None)),
        (BATCH, "layout", lambda x: batch_norm(x.transpose(2, 3), None, None)),
        (BATCH, "aten_is_faster", lambda x: batch_norm(x.to(memory_format=torch.channels_last), None, None)),
        (BATCH, "taken", lambda x: batch_norm(x.bfloat16().to(memory_format=torch.channels_last), None, None)),
        (BATCH, "taken", lambda x: instance_norm(x, None, None)),
        (CUDNN, "taken", lambda x: by_cudnn(x, x[0, :, 0, 0].contiguous(), x[0, :, 0, 0].contiguous())),
        (GROUP, "size", lambda x: group_norm(x[:1], None, None)),
        (GROUP, "taken", lambda x: group_norm(x, None, None)),
        (GROUP, "layout", lambda x: group_norm(x.to(memory_format=torch.channels_last), None, None)),
    ],
)
def test_reasons(name, reason, function):
    from torch_ops import _library

    x = made("cpu", torch.float32, 8, 64, 48, 48)
    with counted() as calls, override("cpu", name, always=False):
        # A newer PyTorch's cuDNN operator is declined, and has no kernel for the CPU.
        with contextlib.suppress(NotImplementedError):
            function(x)
    is_newer = _library.torch_version() >= (2, 12) and reason in ("taken", "aten_is_faster")
    assert calls == {name: {"not_measured" if is_newer else reason: 1}}


@each_device
@pytest.mark.parametrize("autocast", [False, True])
def test_a_block_of_a_network(autocast, device):
    """Three steps of training, with running statistics."""

    def trained():
        torch.manual_seed(0)
        layers = (
            torch.nn.Conv2d(3, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.GroupNorm(2, 8),
            torch.nn.InstanceNorm2d(8, affine=True),
        )
        block = torch.nn.Sequential(*layers).to(device)
        optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
        for step in range(3):
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                result = block(made(device, torch.float32, 2, 3, 9, 9 + step))
            optimizer.zero_grad()
            result.float().square().mean().backward()
            optimizer.step()
        return [result.detach(), *block.state_dict().values()]

    want = trained()
    with (
        counted() as calls,
        override(device, OPS),
    ):
        got = trained()
    # On the CPU, autocast leaves a group norm in bfloat16, with weights in float32.
    is_mixed = autocast and device == "cpu"
    assert sum(row.get("taken", 0) for row in calls.values()) == (12 if is_mixed else 18), calls
    assert is_mixed or not any(row.keys() - {"taken"} for row in calls.values()), calls
    tolerance = 5e-2 if autocast else 1e-3
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
