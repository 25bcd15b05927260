"""Behaviour on a GPU: graphs, streams, device guards, no synchronisation, and no allocation beside the result."""

from __future__ import annotations

import pytest
import torch

from ..cases import tensors
from ..support.compare import Failures, all_close, different_bits, different_repeats
from ..support.params import CASES, EVERY_CASE, with_variant
from ..support.runtime import captured, no_waiting

pytestmark = pytest.mark.gpu
each = pytest.mark.parametrize("case", EVERY_CASE, ids=str)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def _few(case, dtype=torch.float32):
    """Small samples without CPU tensors."""
    return [s for s in case.few("cuda", dtype) if all(t.is_cuda for t in s.tensors)]


def _large_few(case, dtype=torch.float32):
    """The same samples, enlarged so that kernels run long enough to overlap."""
    for sample in _few(case, dtype):
        for _ in range(0 if case.internal else 10):
            meta = sample.map(lambda t: t.to("meta"))
            result = case.op(*meta.args, **meta.kwargs)
            if max(t.numel() for t in (result, *sample.tensors)) < 2**20:
                sample = sample.resized()
        yield sample


def renew(tensor: torch.Tensor) -> None:
    """Writes other values. Entries of an index stay in its range."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.copy_(tensor + 1)
    elif 0 not in tensor.stride() and not torch.equal(tensor, tensor.sort(0).values):  # offsets ascend
        tensor.copy_(tensor.flip(0))


@each
@each_dtype
def test_graph_replay_with_new_data(case, dtype):
    failures = Failures()
    for sample in _few(case, dtype):
        with failures.sample(sample.name):
            graph, result = captured(lambda s=sample: case.op(*s.args, **s.kwargs))
            for _ in range(3):
                for t in sample.tensors:
                    renew(t)
                result.zero_()
                graph.replay()
                want = case.op(*sample.args, **sample.kwargs)
                failures.add(sample.name, different_repeats(case, "cuda", sample, result, want))
    failures.check(at_least=6)


@pytest.mark.parametrize("case", [c for c in CASES if c.grad_dtypes], ids=str)
def test_graph_of_forward_and_backward(case):
    failures = Failures()
    for sample in _few(case):
        leaves = sample.requiring_grad()
        if (
            not case.op(*leaves.args, **leaves.kwargs).requires_grad
            or case.op(*leaves.args, **leaves.kwargs).is_complex()
        ):
            continue

        def step(leaves=leaves):
            result = case.op(*leaves.args, **leaves.kwargs)
            return torch.autograd.grad(result.pow(2).sum(), leaves.differentiable)

        with failures.sample(sample.name):
            graph, grads = captured(step)
            with torch.no_grad():
                for t in leaves.differentiable:
                    t.mul_(0.5)
            graph.replay()
            failures.add(sample.name, all_close(grads, step()))
    failures.check(at_least=4)


@pytest.mark.parametrize("case", with_variant("inplace"), ids=str)
def test_graph_of_inplace(case):
    sample = _few(case)[0]
    x = sample.args[0].clone()
    graph, _ = captured(lambda: case.inplace.op(x, *sample.args[1:]))
    x.copy_(sample.args[0])
    graph.replay()
    graph.replay()
    want = sample.args[0].clone()
    for _ in range(2):
        case.inplace.op(want, *sample.args[1:])
    assert different_bits(x, want) is None


@pytest.mark.parametrize("case", with_variant("out"), ids=str)
def test_graph_of_out(case):
    sample = _few(case)[0]
    out = torch.empty_like(case.op(*sample.args, **sample.kwargs))
    graph, _ = captured(lambda: case.out.op(*sample.args, out=out, **sample.kwargs))
    out.zero_()
    sample.args[0].add_(1)
    graph.replay()
    assert different_bits(out, case.op(*sample.args, **sample.kwargs)) is None


@pytest.mark.alone
@each
@each_dtype
def test_runs_on_the_current_stream(case, dtype):
    """Inputs are written late on a side stream. A kernel on another stream would read them too early, because PyTorch's side
    streams do not wait for the default stream."""
    failures = Failures()
    for sample in _large_few(case, dtype):
        late = sample.map(torch.empty_like)

        def write_and_call(sample=sample, late=late):
            for to, source in zip(late.tensors, sample.tensors, strict=True):
                to.copy_(source)
            return case.op(*late.args, **late.kwargs)

        want = write_and_call()  # also loads the kernels, which may wait for the device
        for t in late.tensors:
            t.zero_()
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with failures.sample(sample.name), torch.cuda.stream(stream):
            torch.cuda._sleep(40_000_000)  # about 20 ms
            got = write_and_call()
            assert not stream.query(), "the call waited for the stream"
            stream.synchronize()
            failures.add(sample.name, different_repeats(case, "cuda", sample, got, want))
    failures.check(at_least=4)


@each
def test_never_synchronises(case):
    """No call synchronises, also with 0-d CPU tensors: their value is an argument of the launch."""
    samples = [s.requiring_grad() for s in case.few("cuda", torch.float32)]
    with no_waiting():
        for sample in samples:
            case.op(*sample.args, **sample.kwargs)
            with torch.no_grad():
                case.op(*sample.args, **sample.kwargs)


@each
def test_allocates_its_result_alone(case):
    """A call allocates nothing except its result and, if it is not element-wise, one workspace.

    The workspace is far smaller than the inputs, or has the size that the case states.
    """
    keys = "allocation.all.allocated", "requested_bytes.all.allocated"
    for sample in _large_few(case):
        case.op(*sample.args, **sample.kwargs)
        before = torch.cuda.memory_stats()
        result = case.op(*sample.args, **sample.kwargs)
        allocations, size = (torch.cuda.memory_stats()[key] - before[key] for key in keys)
        if case.workspace is not None:
            assert size <= result.nbytes + case.workspace(sample), (
                f"[{sample.name}] {size} bytes, its result has {result.nbytes}"
            )
            continue
        workspace = 0 if case.elementwise else max(sum(t.nbytes for t in sample.tensors) // 16, 2**18)
        assert allocations <= (1 if case.elementwise else 2) and size <= result.nbytes + workspace, (
            f"[{sample.name}] {allocations} allocations of {size} bytes for a result of {result.nbytes}"
        )


@pytest.mark.parametrize("case", [c for c in with_variant("inplace") if c.elementwise], ids=str)
def test_inplace_allocates_nothing(case):
    x = torch.ones(1 << 20, device="cuda")
    others = [x.clone() if isinstance(a, torch.Tensor) else a for a in _few(case)[0].args[1:]]
    case.inplace.op(x, *others)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    case.inplace.op(x, *others)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


@each
def test_device_guard(case):
    """Tensors may be on another device than the current one, which stays the current one."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    failures = Failures()
    for sample in _few(case):
        with failures.sample(sample.name):
            elsewhere = sample.map(lambda t: tensors.twin(t).to("cuda:1")).requiring_grad()
            with torch.cuda.device(1):
                want = case.op(*elsewhere.args, **elsewhere.kwargs).detach()
            got = case.op(*elsewhere.args, **elsewhere.kwargs)
            assert torch.cuda.current_device() == 0
            failures.add(sample.name, None if got.device.index == 1 else f"the result is on {got.device}")
            failures.add(sample.name, different_bits(got.detach(), want))
            if got.requires_grad and not got.is_complex():
                got.sum().backward()
                assert torch.cuda.current_device() == 0
    failures.check(at_least=6)


@pytest.mark.parametrize(
    "case", [c for c in CASES if len(next(iter(c.few("cpu", torch.float32))).tensors) > 1], ids=str
)
def test_refuses_two_gpus_in_one_call(case):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    sample = _few(case)[0]
    first, *others = sample.args
    with pytest.raises(RuntimeError, match="cuda:1"):
        case.op(first.to("cuda:1"), *others, **sample.kwargs)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operands_whose_storage_was_freed_are_refused(case):
    """A kernel that read them would lose the CUDA context. Sharded training frees the storage of parameters so.

    Some cases clone an operand before they update it, which CUDA refuses with its own message.
    """
    sample = next(iter(_few(case)))
    for k in range(len(sample.tensors)):
        copy = sample.map(lambda t: t.clone())
        copy.tensors[k].untyped_storage().resize_(0)
        with pytest.raises(RuntimeError, match="must have memory|storage of size 0|invalid argument"):
            case.op(*copy.args, **copy.kwargs)
        torch.cuda.synchronize()
        case.op(*sample.args, **sample.kwargs)
