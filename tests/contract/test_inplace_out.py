"""In-place and out= variants: resizing, aliasing, autograd's rules for writing, leaves and views."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.autograd import forward_ad

from ..cases import tensors
from ..cases.tensors import FLOATS, in_layout
from ..support.compare import Failures, close, different_bits, different_metadata, different_results, raised_by
from ..support.params import each_case, each_device, with_variant

pytestmark = pytest.mark.torch_version

INPLACE, OUT = with_variant("inplace"), with_variant("out")
each_elementwise = pytest.mark.parametrize("case", [c for c in INPLACE if c.elementwise], ids=str)
each_inplace = pytest.mark.parametrize("case", INPLACE, ids=str)
each_out = pytest.mark.parametrize("case", OUT, ids=str)


@each_inplace
@each_device
def test_inplace_returns_self(case, device):
    for sample in case.few(device, torch.float32):
        if raised_by(case.inplace.aten, *sample.twin().args, **sample.kwargs) is None:
            assert case.inplace.op(*sample.args, **sample.kwargs) is sample.args[0]


@each_elementwise
@each_device
def test_inplace_with_itself(case, device):
    """Full aliasing is allowed: x.mul_(x)."""
    sample = next(iter(case.few(device, torch.float32)))
    for layout in ("contiguous", "transposed", "sliced", "misaligned1"):
        ours = in_layout(layout, tensors.Maker(device, torch.float32)(33, 65))
        theirs = tensors.twin(ours)
        for function, x in ((case.inplace.op, ours), (case.inplace.aten, theirs)):
            aliased = sample.map(lambda _, x=x: x)
            function(*aliased.args, **aliased.kwargs)
        assert different_bits(ours, theirs) is None


@each_out
@each_device
def test_out_is_resized(case, device, capfd):
    """out gets the result's shape, with ATen's warning if it held elements. An empty out gets the strides of a new result.

    A warning from C++ is a Python warning in torch.mul and text on stderr in torch.ops. Either counts.
    """
    failures = Failures()
    for sample in case.few(device, torch.float32):
        want = case.aten(*sample.args, **sample.kwargs)
        for shape in ((0,), (1,), (7,), (2, 9), tuple(want.shape)):
            ours, theirs = (torch.full(shape, 3.0, device=device, dtype=want.dtype) for _ in range(2))
            with failures.sample(f"{sample.name}, out {shape}"):
                said = []
                for variant, out in ((case.out.aten, theirs), (case.out.op, ours)):
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        variant(*sample.args, out=out, **sample.kwargs)
                    text = "\n".join([str(w.message) for w in caught]) + capfd.readouterr().err
                    said.append(text.count("was resized since it had shape"))
                assert said[0] == said[1], f"{said[1]} warnings about resizing, expected {said[0]}"
                assert different_metadata(ours, theirs) is None, different_metadata(ours, theirs)
                failures.add(sample.name, different_results(case, device, sample, ours, theirs))
    failures.check(at_least=40)


@pytest.mark.parametrize("case", [c for c in OUT if c.elementwise], ids=str)
@each_device
def test_out_is_an_input(case, device):
    """out= may be an input, or another tensor over the same elements."""
    make = tensors.Maker(device, torch.float32)
    for layout in ("contiguous", "transposed", "sliced", "misaligned1"):
        for k in range(2):
            operands = [in_layout(layout, make(33, 65)) for _ in range(2)]
            want = case.aten(*operands)
            alias = operands[k].view_as(operands[k])
            case.out.op(*operands, out=alias)
            assert different_bits(operands[k], want) is None


# ---------------------------------------------------------------- autograd's rules for writing


def _grad_samples(case, device):
    """Samples whose in-place form ATen accepts for a float32 self."""
    for sample in case.few(device, torch.float32):
        if raised_by(case.inplace.aten, *sample.twin().args, **sample.kwargs) is None:
            yield sample


def _same_refusal(failures, name, ours, theirs):
    if theirs is None:
        failures.add(name, "ATen takes this: the test is wrong")
    elif type(ours) is not type(theirs):
        failures.add(name, f"{ours!r}, expected {theirs!r}")


@each_inplace
@each_device
def test_inplace_on_leaves(case, device):
    """Writing to a leaf that requires grad, or to a view of one, is refused and writes nothing. In no_grad mode it is allowed."""
    failures = Failures()
    for sample in _grad_samples(case, device):
        for what, view in (("leaf", lambda t: t), ("view of a leaf", lambda t: t.view_as(t))):
            with failures.sample(f"{sample.name}, {what}"):
                leaf = sample.twin().args[0].detach().requires_grad_()
                before = tensors.twin(leaf.detach())
                theirs = raised_by(case.inplace.aten, view(leaf), *sample.args[1:], **sample.kwargs)
                ours = raised_by(case.inplace.op, view(leaf), *sample.args[1:], **sample.kwargs)
                _same_refusal(failures, sample.name, ours, theirs)
                failures.add(sample.name, different_bits(leaf.detach(), before))
                with torch.no_grad():
                    version = leaf._version
                    case.inplace.op(view(leaf), *sample.args[1:], **sample.kwargs)
                assert leaf._version == version + 1 and leaf.is_leaf
    failures.check(at_least=4)


@each_inplace
@each_device
def test_inplace_on_special_views(case, device):
    """Writing is refused for views that autograd cannot rebase: views of several outputs (unbind), and views made in no_grad
    mode."""
    sample = next(_grad_samples(case, device))

    def unbound(function):
        base = torch.ones(3, *sample.args[0].shape, device=device, requires_grad=True) * 1
        function(base.unbind()[0], *sample.args[1:], **sample.kwargs)

    def from_no_grad(function):
        base = torch.ones(3, *sample.args[0].shape, device=device, requires_grad=True) * 1
        with torch.no_grad():
            view = base[0]
        function(view, *sample.args[1:], **sample.kwargs)

    for make_view in (unbound, from_no_grad):
        theirs = raised_by(make_view, case.inplace.aten)
        assert theirs is not None
        assert type(raised_by(make_view, case.inplace.op)) is type(theirs)


@each_inplace
@each_device
def test_inplace_gradients(case, device):
    """Gradients through a written tensor, and through the base of a written view, are ATen's."""
    failures = Failures()
    for sample in _grad_samples(case, device):
        for what in ("whole", "view"):
            with failures.sample(f"{sample.name}, {what}"):
                grads = []
                for function in (case.inplace.op, case.inplace.aten):
                    leaves = sample.twin().requiring_grad(FLOATS)
                    base = torch.stack([leaves.args[0], leaves.args[0] * 2]) if what == "view" else leaves.args[0] * 1
                    written = base[1] if what == "view" else base
                    function(written, *leaves.args[1:], **leaves.kwargs)
                    assert written.requires_grad and written.grad_fn is not None
                    weights = torch.linspace(0.5, 2, base.numel(), device=device).view(base.shape)
                    grads.append(torch.autograd.grad((base * weights).sum(), leaves.differentiable))
                for ours, theirs in zip(*grads, strict=True):
                    torch.testing.assert_close(ours, theirs)
    failures.check(at_least=8)


@each_inplace
@each_device
def test_backward_sees_a_write(case, device):
    """Writing to a tensor that backward has saved is an error in backward, not a wrong gradient."""
    sample = next(_grad_samples(case, device))
    saved = sample.args[0]
    y = torch.ones_like(saved, requires_grad=True) * saved
    case.inplace.op(*sample.args, **sample.kwargs)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@each_out
@each_device
def test_out_and_grad(case, device):
    """out= is never part of a graph. It is refused if anything requires grad, and allowed in no_grad mode. Writing to a saved
    tensor is noticed in backward."""
    sample = next(iter(case.few(device, torch.float32)))
    like = case.aten(*sample.args, **sample.kwargs)
    for k in range(len(sample.tensors) + 1):
        given = [t.clone() for t in (*sample.tensors, like)]
        if not given[k].is_floating_point():
            continue
        given[k].requires_grad_()
        *inputs, out = given
        inputs = iter(inputs)
        call = sample.map(lambda _, given=inputs: next(given))
        theirs = raised_by(case.out.aten, *call.args, out=out, **call.kwargs)
        assert theirs is not None and type(raised_by(case.out.op, *call.args, out=out, **call.kwargs)) is type(theirs)
        with torch.no_grad():
            case.out.op(*call.args, out=out, **call.kwargs)
    saved = torch.full_like(like, 2.0)
    y = torch.ones_like(like).requires_grad_() * saved
    case.out.op(*sample.args, out=saved, **sample.kwargs)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@each_case
def test_inference_mode(case, device):
    """Results are inference tensors. As with ATen, in-place and out= may write to them in inference mode only."""
    sample = next(iter(case.few(device, torch.float32))).requiring_grad(FLOATS)
    with torch.inference_mode():
        result = case.op(*sample.args, **sample.kwargs)
        assert result.is_inference() and not result.requires_grad
        want = case.aten(*sample.args, **sample.kwargs)
        exact = case.approximates == 1
        assert (different_bits(result, want) if exact else close(result, want, 4 * case.approximates)) is None
        if case.inplace:
            case.inplace.op(result, *sample.args[1:], **sample.kwargs)
        if case.out:
            case.out.op(*sample.args, out=result, **sample.kwargs)
        before = result.clone()
    if case.inplace:
        ours = raised_by(case.inplace.op, result, *sample.args[1:], **sample.kwargs)
        assert different_bits(result, before) is None  # ATen's raises after it has written
        assert type(ours) is type(raised_by(case.inplace.aten, result, *sample.args[1:], **sample.kwargs))
    if case.out:
        with torch.inference_mode():
            result = before.clone()
        plain = sample.map(lambda t: t.detach())
        ours = raised_by(case.out.op, *plain.args, out=result, **plain.kwargs)
        assert different_bits(result, before) is None
        assert type(ours) is type(raised_by(case.out.aten, *plain.args, out=result, **plain.kwargs))


@each_inplace
@each_device
def test_inplace_tangents(case, device):
    """Forward mode through a write, with a tangent on self, on the other operands, on all, or on the base of a written view."""
    failures = Failures()
    for sample in _grad_samples(case, device):
        floats = [k for k, a in enumerate(sample.args) if isinstance(a, torch.Tensor) and a.is_floating_point()]
        for active in [floats] + [[k] for k in floats]:
            for what in ("whole", "view"):
                with failures.sample(f"{sample.name}, tangents {active}, {what}"):
                    ours, theirs = (
                        _written_tangent(f, sample, active, what) for f in (case.inplace.op, case.inplace.aten)
                    )
                    assert ours[0].dtype == ours[1].dtype
                    for got, want in zip(ours, theirs, strict=True):
                        torch.testing.assert_close(
                            got, want.to(got.dtype)
                        )  # ATen's tangent can be wider than its primal
    failures.check(at_least=8)


def _written_tangent(function, sample, active, what):
    """The primal and the tangent (zeros for none) of the written tensor, or of the base whose view was written."""
    with forward_ad.dual_level():
        args = list(sample.twin().args)
        for k in active:
            args[k] = forward_ad.make_dual(args[k], torch.full_like(args[k], 0.25 + k))
        base = torch.stack([args[0], args[0] * 2]) if what == "view" else args[0].clone()
        function(base[1] if what == "view" else base, *args[1:], **sample.kwargs)
        primal, tangent = forward_ad.unpack_dual(base)
        return primal.clone(), torch.zeros_like(primal) if tangent is None else tangent.clone()


@each_elementwise
@each_device
def test_inplace_with_itself_and_grad(case, device):
    """x.mul_(x) has ATen's gradient, or is refused as by ATen."""
    sample = next(iter(case.few(device, torch.float32)))
    outcomes = []
    for function in (case.inplace.op, case.inplace.aten):
        leaf = torch.full((4,), 3.0, device=device, requires_grad=True)
        x = leaf * 1
        aliased = sample.map(lambda _, x=x: x)
        function(*aliased.args, **aliased.kwargs)
        refusal = raised_by(x.sum().backward)
        outcomes.append((type(refusal), None if leaf.grad is None else leaf.grad.tolist()))
    assert outcomes[0] == outcomes[1]
