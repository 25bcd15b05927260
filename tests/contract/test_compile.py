"""torch.compile(fullgraph=True): static and dynamic shapes, gradients, in-place and out= inside compiled functions, and any layout.

Tracing, functionalization and Meta kernels are the same for every backend, and "aot_eager" runs them all. Inductor takes seconds
per compilation on the CPU, so only one case of each room uses it there."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

from ..cases.tensors import FLOATS
from ..support.compare import Failures, all_close, close, different_metadata, raised_by
from ..support.params import CASES, each_case, each_device, kept, on, thinned, with_variant

pytestmark = [pytest.mark.torch_version, pytest.mark.usefixtures("fresh_dynamo")]

# One case of each room except transpose.
INDUCTOR_ON_CPU = ("mul.Tensor", "reduce_sum", "upsample_nearest2d", "index_add", "dot", "conv1d")


def each_backend(cases, *backends):
    """Parametrizes a test with cases, backends and devices. On the CPU only INDUCTOR_ON_CPU runs with Inductor."""
    params = []
    for backend, case, device in itertools.product(backends, cases, ("cpu", "cuda")):
        if backend == "inductor" and device == "cpu" and case.name not in INDUCTOR_ON_CPU:
            continue
        name = f"{backend}-{case.name}-{device}" if len(backends) > 1 else f"{case.name}-{device}"
        params.append(on(device, case, device, backend, name=name))
    return pytest.mark.parametrize(("case", "device", "backend"), params)


def _compiled(function, backend="aot_eager", **options):
    torch._dynamo.reset()  # samples share a code object and would reach the recompilation limit
    return torch.compile(function, fullgraph=True, backend=backend, **options)


def _direct(op, sample):
    """A function that makes the call directly, so that dynamo does not trace through Python code around it."""
    count, kwargs = len(sample.args), sample.kwargs
    if count == 1:
        return lambda a: op(a, **kwargs)
    if count == 2:
        return lambda a, b: op(a, b, **kwargs)
    if count == 3:
        return lambda a, b, c: op(a, b, c, **kwargs)
    if count == 4:
        return lambda a, b, c, d: op(a, b, c, d, **kwargs)
    return lambda *args: op(*args, **kwargs)


def _run(function, sample):
    """The result, and the gradient of every input that has one."""
    result = function(*sample.args)
    if not result.requires_grad:
        return result, ()
    loss = (torch.view_as_real(result) if result.is_complex() else result).pow(2).sum()
    return result, torch.autograd.grad(loss, sample.differentiable)


def _compare(failures, name, function, eager, sample):
    (got, got_grads), (want, want_grads) = (_run(f, sample) for f in (function, eager))
    failures.add(name, different_metadata(got, want))
    failures.add(name, close(got, want, ulps=1))
    failures.add(f"{name}, gradients", all_close(got_grads, want_grads))


def _recompilations(op, sample, dynamic, compare) -> int:
    """Calls a compiled function three times (with dynamic=True on three sizes) and counts the compilations after the first call.

    The first call may compile twice: dynamo starts again when it finds that a Python float has to be a constant.
    """
    counter, eager = CompileCounterWithBackend("aot_eager"), _direct(op, sample)
    compiled = _compiled(eager, backend=counter, dynamic=dynamic)
    counts = []
    for _ in range(3):
        compare(compiled, eager, sample)
        counts.append(counter.frame_count)
        sample = sample.resized() if dynamic else sample
    return counts[-1] - counts[0]


@each_case
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compile(case, device, dynamic):
    """Values, metadata and gradients equal eager mode's in any layout. A second call compiles nothing, nor does a call with another
    size if shapes are dynamic. dynamo may recompile only where it does so for ATen's operator."""
    failures = Failures()
    for sample in thinned(case.few(device, torch.float32), device, keep=1 if dynamic else 0):
        if dynamic and any(t.numel() == 0 for t in sample.tensors):
            continue  # dynamo always specialises sizes 0 and 1
        sample = sample.requiring_grad()
        with failures.sample(sample.name):
            ours = _recompilations(case.op, sample, dynamic, functools.partial(_compare, failures, sample.name))
            if ours:
                theirs = _recompilations(case.aten, sample, dynamic, lambda compiled, eager, s: _run(compiled, s))
                assert ours <= theirs, f"{ours} recompilations, ATen's operator has {theirs}"
    failures.check(at_least=kept(6, device, keep=0))


@each_backend(CASES, "inductor")
def test_inductor(case, device, backend):
    """Inductor, forward and backward, with fused operations before and after the operator, in a layout that it must respect."""
    failures = Failures()
    layouts = {
        "transposed": lambda t: t.mT.contiguous().mT if t.dim() > 1 else t,
        "contiguous": lambda t: t,
    }
    for name, layout in thinned(layouts.items(), device, keep=1):
        sample = next(iter(case.few(device, torch.float32))).map(layout).requiring_grad(FLOATS)

        def model(*args, op, kwargs=sample.kwargs):
            return op(args[0].sin(), *args[1:], **kwargs).relu() + 1

        with failures.sample(name):
            compiled = _compiled(lambda *a, m=model: m(*a, op=case.op), backend=backend)
            results, grads = [], []
            for function in (compiled, lambda *a, m=model: m(*a, op=case.op)):
                results.append(function(*sample.args))
                if case.grad_dtypes:
                    grads.append(torch.autograd.grad(results[-1].sum(), sample.differentiable))
            failures.add(name, close(*results))
            failures.add(name, different_metadata(*results))
            failures.add(f"{name}, gradients", all_close(*grads, ulps=8) if grads else None)
    failures.check(at_least=1 if device == "cpu" else 2)


@each_backend(with_variant("inplace"), "aot_eager", "inductor")
def test_inplace_inside(case, device, backend):
    """A compiled function writes in place to a temporary, to an argument, and to a view of an argument."""

    def temporary(x, *others):
        y = x.clone()
        case.inplace.op(y, *others)
        return y + 1

    def argument(x, *others):
        case.inplace.op(x, *others)
        return x + 1

    def view(x, *others):
        rows = torch.stack([x, x])
        case.inplace.op(rows[1], *others)
        return rows + 1

    failures = Failures()
    for sample in thinned(case.few(device, torch.float32), device, keep=1 if backend == "inductor" else 3):
        if sample.name not in (
            "same",
            "last dimension broadcast",
            "transposed",
            "dense, 2.5",
            "transposed, 2.5",
            "rows",
            "(3, 4) inner dim 1",
            "(4, 3) outer dim 0",
        ):
            continue
        positions = [k for k, a in enumerate(sample.args) if isinstance(a, torch.Tensor)]
        for function in (temporary, argument, view):
            with failures.sample(f"{sample.name}, {function.__name__}"):
                given, wanted = sample.twin(), sample.twin()

                def call(*given, f=function, args=sample.args, positions=positions):
                    args = list(args)
                    for k, t in zip(positions, given):
                        args[k] = t
                    return f(*args)

                got = _compiled(call, backend=backend)(*given.tensors)
                want = call(*wanted.tensors)
                failures.add(f"{sample.name}, {function.__name__}", close(got, want))
                failures.add(f"{sample.name}, {function.__name__}: self", close(given.args[0], wanted.args[0]))
    failures.check(at_least=3 if device == "cpu" else 6)


@each_device
@pytest.mark.parametrize("case", with_variant("inplace"), ids=str)
def test_inplace_gradients_inside(case, device):
    failures = Failures()
    for sample in case.few(device, torch.float32):
        if raised_by(case.inplace.aten, *sample.twin().args, **sample.kwargs) is not None:
            continue
        leaves = sample.twin().requiring_grad(FLOATS)

        def function(*args, kwargs=sample.kwargs):
            x = args[0] * 1
            case.inplace.op(x, *args[1:], **kwargs)
            return x

        with failures.sample(sample.name):
            grads = []
            for f in (_compiled(function), function):
                grads.append(torch.autograd.grad(f(*leaves.args).pow(2).sum(), leaves.differentiable))
            failures.add(sample.name, all_close(*grads, ulps=8))
    failures.check(at_least=4)


@each_backend(with_variant("out"), "aot_eager", "inductor")
def test_out_inside(case, device, backend):
    """out= is a tensor made inside the compiled function, an argument, or (element-wise) the input itself."""
    _check_out_inside(case, device, backend, torch.float32)
    if backend == "aot_eager" and torch.complex64 in case.dtypes:  # vdot and dot differ only for complex values
        _check_out_inside(case, device, backend, torch.complex64)


def _check_out_inside(case, device, backend, dtype):
    sample = next(iter(case.few(device, dtype)))
    args, kwargs = sample.twin().args, sample.kwargs
    blank = torch.zeros_like(case.aten(*args, **kwargs))

    def made_inside(*a):
        out = torch.empty(blank.shape, dtype=blank.dtype, device=device)
        case.out.op(*a, out=out, **kwargs)
        return out + 1

    def argument(*a):
        *inputs, out = a
        case.out.op(*inputs, out=out, **kwargs)
        return out + 1

    def into_input(*a):
        case.out.op(*a, out=a[0], **kwargs)
        return a[0] + 1

    for function, extra in ((made_inside, 0), (argument, 1), *([(into_input, 0)] if case.elementwise else [])):
        calls = []
        for f in (_compiled(function, backend=backend), function):
            copies = [*sample.twin().args, *(blank.clone() for _ in range(extra))]
            calls.append([f(*copies), *(a for a in copies if isinstance(a, torch.Tensor))])
        assert all_close(*calls) is None, f"{function.__name__}: {all_close(*calls)}"


MUTABLE = [(case, overload) for case in CASES for overload in case.overloads if overload._schema.is_mutable]


def _write(case, overload, device):
    """A function that makes a call of an operator that writes an argument, and its tensors. The function returns new tensors only."""
    sample = next(iter(case.few(device, torch.float32)))
    args, keywords = list(sample.twin().args), dict(sample.kwargs)
    result = case.aten(*sample.twin().args, **keywords)
    names = [a.name for a in overload._schema.arguments]
    positions = [k for k, a in enumerate(args) if isinstance(a, torch.Tensor)]
    tensors = [args[k] for k in positions]
    has_out = "out" in names
    if has_out:
        tensors.append(torch.zeros_like(result))
    written = len(tensors) - 1 if has_out else positions.index(names.index(case.writes[0])) if case.writes else 0

    def write(*given):
        call = list(args)
        for k, tensor in zip(positions, given):
            call[k] = tensor
        out = {"out": given[-1]} if has_out else {}
        return overload(*call, **keywords, **out) + 1, given[written] + 2

    return write, tensors, written


def _compare_writes(function, eager, tensors, written):
    ours, theirs = ([t.clone() for t in tensors] for _ in range(2))
    assert all_close(function(*ours), eager(*theirs), ulps=8) is None
    assert all_close(ours, theirs, ulps=8) is None
    assert not torch.equal(ours[written], tensors[written])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@each_device
@pytest.mark.parametrize(("case", "overload"), MUTABLE, ids=[str(overload) for _, overload in MUTABLE])
def test_writes_inside_a_nested_region(case, overload, device, backend):
    """A region that is compiled once and called twice writes to its argument."""
    if "out" in overload._overloadname:
        pytest.skip(
            "PyTorch does not notice that a region writes to a keyword argument, also not for its own operators"
        )
    if backend == "inductor" and device == "cpu" and case.name not in (*INDUCTOR_ON_CPU, "causal_conv1d_update"):
        pytest.skip("Inductor takes long on the CPU")
    write, tensors, written = _write(case, overload, device)
    region = torch.compiler.nested_compile_region(write)

    def twice(*given):
        return *region(*given), *region(*given)

    with torch.no_grad():
        _compare_writes(
            _compiled(twice, backend=backend), lambda *given: (*write(*given), *write(*given)), tensors, written
        )


@each_device
@pytest.mark.parametrize(("case", "overload"), MUTABLE, ids=[str(overload) for _, overload in MUTABLE])
def test_writes_are_functionalized(case, overload, device):
    """torch.func.functionalize, and the graph that it traces has no write but the last copies."""
    write, tensors, written = _write(case, overload, device)
    _compare_writes(torch.func.functionalize(write), write, tensors, written)
    graph = make_fx(torch.func.functionalize(write))(*tensors).graph
    writes = {str(n.target) for n in graph.nodes if n.op == "call_function" and n.target._schema.is_mutable}
    assert writes <= {"aten.copy_.default"}


@each_case
def test_refuses_while_tracing(case, device):
    """A call that eager mode refuses is refused while tracing, by a message that names the operator."""
    error = next((e for e in case.errors(device) if e.variant == "functional" and e.on_meta), None)
    if error is not None:
        refusal = raised_by(_compiled(lambda *a: case.op(*a, **error.kwargs)), *error.args)
        assert refusal is not None, f"[{error.name}] was taken"
        assert case.schema_name in str(refusal), f"[{error.name}] {refusal}"
