"""Drop-ins: torch_ops.compat.mamba_ssm against its parts, its installation, and a model of transformers that uses it."""

from __future__ import annotations

import importlib.util
import re

import pytest
import torch
from torch.nn import functional

from torch_ops.compat.mamba_ssm import mamba_inner_fn, selective_scan_fn, selective_state_update

from ..cases.samples import selective_scan_samples as calls
from ..cases.selective_scan import reference
from ..cases.tensors import Maker
from ..support.compare import raised_by
from ..support.params import each_device
from ..support.runtime import run_python

EVERYTHING = (True,) * 4


def _make(device, dtype=torch.float64) -> Maker:
    return Maker(device, dtype, seed=6)


# ---------------------------------------------------------------- functions


@each_device
def test_scan_is_the_operator(device):
    call = calls.Call(_make(device), (2, 6, 9, 4, 2), EVERYTHING)
    given = (call.u, call.delta, call.A, call.B, call.C, call.D, call.z, call.bias)
    out, last = selective_scan_fn(*given, delta_softplus=True, return_last_state=True)
    torch.testing.assert_close(torch.cat([out, last], 2), reference(*given, delta_softplus=True))
    assert torch.equal(selective_scan_fn(*given, True), out)


def _looped(u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False):
    """The definition of a scan with complex A, position by position: the output and the last states."""
    dt = delta if delta_bias is None else delta + delta_bias[:, None]
    dt = torch.log1p(dt.exp()) if delta_softplus else dt
    h, out = torch.zeros_like(A)[None] * u[:, :, :1], []
    for t in range(u.shape[2]):
        b, c = (_coefficients(matrix, t, u.shape[1]) for matrix in (B, C))
        h = torch.exp(dt[:, :, t, None] * A) * h + (dt * u)[:, :, t, None] * b
        y = 2 * (h * c).sum(-1).real
        out.append(y if D is None else y + D * u[:, :, t])
    out = torch.stack(out, 2)
    return out if z is None else out * z / (1 + torch.exp(-z)), h


def _coefficients(matrix, t, channels):
    """B or C at a position, for each channel."""
    if matrix.dim() == 2:
        return matrix[None]
    groups = matrix[:, None] if matrix.dim() == 3 else matrix
    pairs = torch.complex(groups[..., 2 * t], groups[..., 2 * t + 1])
    return torch.stack([pairs[:, d * groups.shape[1] // channels] for d in range(channels)], 1)


# What B and C are with complex A: constant, one group, or two groups.
COMPLEX_MATRICES = {"constant": (4, 3), "variable": (2, 3, 14), "grouped": (2, 2, 3, 14)}


def _complex_call(make: Maker, of_B: str, of_C: str) -> dict[str, torch.Tensor]:
    def matrix(kind):
        return make(*COMPLEX_MATRICES[kind], dtype=torch.complex128 if kind == "constant" else None)

    A = torch.complex(-make(4, 3).abs(), make(4, 3))
    return {"u": make(2, 4, 7), "delta": make(2, 4, 7), "A": A, "B": matrix(of_B), "C": matrix(of_C)}


@each_device
@pytest.mark.parametrize("options", [False, True])
@pytest.mark.parametrize("of_C", COMPLEX_MATRICES)
@pytest.mark.parametrize("of_B", COMPLEX_MATRICES)
def test_complex_scan_is_its_definition(device, of_B, of_C, options):
    """The output, the last states, and the gradients of every operand."""
    make = _make(device)
    operands = _complex_call(make, of_B, of_C)
    if options:
        operands |= {"D": make(4), "z": make(2, 4, 7), "delta_bias": make(4)}
    leaves = {name: t.detach().requires_grad_() for name, t in operands.items()}
    results = (
        selective_scan_fn(**leaves, delta_softplus=options, return_last_state=True),
        _looped(**leaves, delta_softplus=options),
    )
    torch.testing.assert_close(*results)
    assert results[0][1].dtype == torch.complex128
    found, wanted = (
        torch.autograd.grad(out.square().sum() + (last * last.conj()).real.sum(), list(leaves.values()))
        for out, last in results
    )
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want)
    assert torch.equal(selective_scan_fn(**leaves, delta_softplus=options), results[0][0])


@each_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_complex_scan_computes_in_complex64(device, dtype):
    """Operands of a model: half signals beside complex64 weights. The result is rounded once."""
    operands = _complex_call(_make(device), "constant", "grouped")
    given = {name: t.to(torch.complex64 if t.is_complex() else dtype) for name, t in operands.items()}
    out, last = selective_scan_fn(**given, return_last_state=True)
    assert out.dtype == dtype and last.dtype == torch.complex64
    exact = {name: t.to(torch.complex128 if t.is_complex() else torch.float64) for name, t in given.items()}
    want, want_last = _looped(**exact)
    torch.testing.assert_close(last, want_last.to(torch.complex64), rtol=1e-4, atol=1e-4)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), want, rtol=eps + 1e-4, atol=1e-4)


def test_complex_scan_refuses_what_does_not_fit():
    make = _make("cpu")
    operands = _complex_call(make, "variable", "grouped")
    wrong = {
        "u": make(2, 4, 7, dtype=torch.complex128),
        "A": operands["A"][0],
        "delta": make(2, 4, 6),
        "B": make(2, 3, 7),
        "C": make(2, 3, 3, 14),
        "D": make(3),
        "z": make(2, 4, 7, dtype=torch.complex128),
        "delta_bias": make(2),
    }
    for name, tensor in wrong.items():
        error = raised_by(selective_scan_fn, **{**operands, name: tensor})
        assert type(error) is (TypeError if name in ("u", "z") else RuntimeError), name
        assert re.match(f"selective_scan_fn: .*{name} .*must", str(error)), name
    variable = raised_by(selective_scan_fn, **{**operands, "B": make(2, 3, 7, dtype=torch.complex128)})
    assert isinstance(variable, TypeError) and "in turn" in str(variable)


@each_device
def test_update_takes_every_rank(device):
    """Operands without heads beside one head. The result has the rank of the state."""
    call = calls.Update(_make(device), (2, 0, 5, 4, 1), EVERYTHING)
    names = ("x", "dt", "A", "B", "C", "D", "z", "bias")
    plain = [getattr(call, name) for name in names]
    headed = [t.unsqueeze(0 if name in ("A", "D", "bias") else 1) for name, t in zip(names, plain)]
    headed[3:5] = plain[3:5]
    states = [call.state.clone() for _ in range(4)]
    want = selective_state_update(states[0], *plain, dt_softplus=True)
    for state, given in ((states[1], headed), (states[2].unsqueeze(1), headed), (states[3].unsqueeze(1), plain)):
        got = selective_state_update(state, *given, dt_softplus=True)
        assert torch.equal(got, want if state.dim() == 3 else want.unsqueeze(1))
    assert all(torch.equal(state, states[0]) for state in states) and not torch.equal(states[0], call.state)


@each_device
@pytest.mark.parametrize("heads", [0, 2])
@pytest.mark.parametrize("rows", [[5, -1, 0, -7], [-1] * 4, [3, 1, 4, 0], []])
def test_update_of_chosen_states(device, heads, rows):
    """Rows of a larger state. Negative ones are padding."""
    call = calls.Update(_make(device), (4, heads, 3, 2, 1), EVERYTHING)
    used = len(rows)
    state = _make(device)(6, *call.state.shape[1:])
    x, dt, B, C, z = (t[:used] for t in (call.x, call.dt, call.B, call.C, call.z))
    indices = torch.tensor(rows, dtype=torch.int32, device=device)
    want_state, want = state.clone(), torch.zeros_like(x)
    for k, row in enumerate(rows):
        if row >= 0:
            at, one = slice(row, row + 1), slice(k, k + 1)
            options = (call.D, z[one], call.bias, True)
            want[one] = selective_state_update(want_state[at], x[one], dt[one], call.A, B[one], C[one], *options)
    got = selective_state_update(state, x, dt, call.A, B, C, call.D, z, call.bias, True, indices)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(state, want_state)


def test_update_has_no_graph():
    call = calls.Update(_make("cpu"), (2, 0, 3, 2, 0), EVERYTHING)
    x = call.x.requires_grad_()
    assert not selective_state_update(call.state, x, call.dt, call.A, call.B, call.C).requires_grad


def _layer(make: Maker, last: bool, length: int = 7, parts: int = 1) -> dict[str, torch.Tensor]:
    """The operands of a layer with 4 channels, 3 states and step sizes of rank 2. States of two parts are complex."""
    xz = make(2, length, 8).mT if last else make(2, 8, length)
    return {
        "xz": xz,
        "conv1d_weight": make(4, 1, 3),
        "conv1d_bias": make(4),
        "x_proj_weight": make(2 + 6 * parts, 4),
        "delta_proj_weight": make(4, 2),
        "out_proj_weight": make(5, 4),
        "out_proj_bias": make(5),
        "A": -make(4, 3).abs() if parts == 1 else torch.complex(-make(4, 3).abs(), make(4, 3)),
        "D": make(4),
        "delta_bias": make(4),
    }


def _layer_by_parts(xz, conv1d_weight, conv1d_bias, x_proj_weight, delta_proj_weight, out_proj_weight, out_proj_bias, A, D,
                    delta_bias, B=None, C=None, B_proj_bias=0.0, C_proj_bias=0.0, delta_softplus=True, norms=None):  # fmt: skip
    """The definition of mamba_inner_fn in PyTorch's operators. A loop over positions computes the scan."""
    x, z = xz[:, :4], xz[:, 4:]
    x = functional.silu(functional.conv1d(functional.pad(x, (2, 0)), conv1d_weight, conv1d_bias, groups=4))
    low, projected_B, projected_C = torch.einsum("rd,bdl->brl", x_proj_weight, x).split([2, 3, 3], 1)
    B = projected_B + torch.as_tensor(B_proj_bias, device=xz.device).reshape(-1, 1) if B is None else B
    C = projected_C + torch.as_tensor(C_proj_bias, device=xz.device).reshape(-1, 1) if C is None else C
    delta = torch.einsum("dr,brl->bdl", delta_proj_weight, low)
    if norms is not None:
        B, C, delta = (
            t / (t.square().mean(1, keepdim=True) + 1e-3).sqrt() * w[:, None] for t, w in zip((B, C, delta), norms)
        )
    dt = delta + delta_bias[:, None]
    dt = functional.softplus(dt) if delta_softplus else dt
    h, out = 0, []
    for t in range(xz.shape[2]):
        b, c = (m[None] if m.dim() == 2 else m[:, None, :, t] for m in (B, C))
        h = torch.exp(dt[:, :, t, None] * A) * h + (dt * x)[:, :, t, None] * b
        out.append((h * c).sum(-1) + D * x[:, :, t])
    out = torch.stack(out, 2) * functional.silu(z)
    return torch.einsum("ed,bdl->ble", out_proj_weight, out) + out_proj_bias


def _options(make: Maker) -> dict[str, tuple[dict, dict]]:
    """Optional arguments of the layer and of its definition."""
    norms = [make(3), make(3), make(4)]
    names = ("b_rms_weight", "c_rms_weight", "dt_rms_weight")
    biases = {"B_proj_bias": make(3), "C_proj_bias": make(3)}
    constants = {"B": make(4, 3), "C": make(2, 3, 7)}
    return {
        "none": ({}, {}),
        "no softplus": ({"delta_softplus": False}, {"delta_softplus": False}),
        "biases": (biases, biases),
        "given B and C": (constants, constants),
        "norms": ({**dict(zip(names, norms)), "b_c_dt_rms_eps": 1e-3}, {"norms": norms}),
    }


@each_device
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("option", ["none", "no softplus", "biases", "given B and C", "norms"])
def test_layer_is_its_definition(device, last, option):
    """The result and the gradient of every operand."""
    make = _make(device)
    operands, (given, also) = _layer(make, last), _options(make)[option]
    leaves = {name: t.detach().requires_grad_() for name, t in operands.items()}
    results = mamba_inner_fn(**leaves, **given, checkpoint_lvl=0), _layer_by_parts(**leaves, **also)
    torch.testing.assert_close(*results)
    found, wanted = (torch.autograd.grad(r.square().sum(), list(leaves.values())) for r in results)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want)


@each_device
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("given", [(), ("B",), ("B", "C"), ("B_proj_bias", "C_proj_bias")], ids=str)
def test_layer_with_complex_states(device, last, given):
    """The rows of a projection are the real and imaginary parts of the states in turn."""
    make = _make(device)
    operands = _layer(make, last, parts=2)
    for name in given:
        operands[name] = make(6) if name.endswith("bias") else make(4, 3, dtype=torch.complex128)
    leaves = {name: t.detach().requires_grad_() for name, t in operands.items()}

    def by_parts(xz, conv1d_weight, conv1d_bias, x_proj_weight, delta_proj_weight, out_proj_weight, out_proj_bias, A, D,
                 delta_bias, B=None, C=None, B_proj_bias=None, C_proj_bias=None):  # fmt: skip
        x = functional.silu(functional.conv1d(functional.pad(xz[:, :4], (2, 0)), conv1d_weight, conv1d_bias, groups=4))
        low, projected_B, projected_C = torch.einsum("rd,bdl->brl", x_proj_weight, x).split([2, 6, 6], 1)
        matrices = []
        for matrix, projected, bias in ((B, projected_B, B_proj_bias), (C, projected_C, C_proj_bias)):
            projected = projected if bias is None else projected + bias[:, None]
            in_turn = torch.stack([projected[:, 0::2], projected[:, 1::2]], 3).flatten(2)
            matrices.append(in_turn if matrix is None else matrix)
        delta = torch.einsum("dr,brl->bdl", delta_proj_weight, low)
        out, _ = _looped(x, delta, A, *matrices, D, xz[:, 4:], delta_bias, True)
        return torch.einsum("ed,bdl->ble", out_proj_weight, out) + out_proj_bias

    results = mamba_inner_fn(**leaves), by_parts(**leaves)
    torch.testing.assert_close(*results)
    found, wanted = (torch.autograd.grad(r.square().sum(), list(leaves.values()), allow_unused=True) for r in results)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want)


def test_norms_need_real_states():
    make = _make("cpu")
    error = raised_by(mamba_inner_fn, **_layer(make, last=True, parts=2), b_rms_weight=make(3))
    assert isinstance(error, RuntimeError) and "A must be real" in str(error)


@each_device
def test_layer_transposes_nothing(device):
    """All large tensors of a transposed projection stay as they are: the only copies are results of operators."""
    operands = _layer(_make(device, torch.float32), last=True, length=64)
    with torch.profiler.profile() as profile:
        mamba_inner_fn(**operands)
    events = profile.events()
    assert {"gpuopt::selective_scan", "gpuopt::causal_conv1d"} <= {event.name for event in events}
    if device != "cpu":  # the loop for CPU tensors copies
        copies = [event for event in events if event.name in ("aten::clone", "aten::copy_")]
        assert [event.cpu_parent and event.cpu_parent.name for event in copies] == []


def test_layer_under_autocast():
    operands = _layer(_make("cpu", torch.float32), last=True)
    with torch.autocast("cpu", torch.bfloat16):
        got = mamba_inner_fn(**{**operands, "xz": operands["xz"].bfloat16()})
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), mamba_inner_fn(**operands), atol=0.2, rtol=0.1)


def test_layer_is_compiled_without_a_break():
    operands = _layer(_make("cpu", torch.float32), last=True)
    compiled = torch.compile(mamba_inner_fn, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(**operands), mamba_inner_fn(**operands))


# ---------------------------------------------------------------- install


def test_install_makes_the_package_importable():
    run_python("""
import importlib.metadata, importlib.util, sys
import torch_ops
from torch_ops import compat
from torch_ops.compat import mamba_ssm as ours

assert importlib.util.find_spec("mamba_ssm") is None
assert compat.install("mamba_ssm") == ["mamba_ssm"]
assert importlib.util.find_spec("mamba_ssm.ops.triton.selective_state_update").submodule_search_locations is None
assert importlib.metadata.version("mamba-ssm") == "1.2.2"
from mamba_ssm.ops.selective_scan_interface import mamba_inner_fn, selective_scan_fn
from mamba_ssm.ops.triton.selective_state_update import selective_state_update
import mamba_ssm
assert mamba_ssm.selective_scan_fn is selective_scan_fn is ours.selective_scan_fn and mamba_ssm.__version__ == "1.2.2"
assert mamba_ssm.mamba_inner_fn is mamba_inner_fn and selective_state_update is ours.selective_state_update
assert mamba_ssm.ops.triton.selective_state_update.selective_state_update is selective_state_update
for missing in ("mamba_ssm.ops.triton.ssd_combined", "mamba_ssm.modules"):
    try:
        importlib.import_module(missing)
    except ModuleNotFoundError:
        pass
    else:
        raise AssertionError(missing)
compat.uninstall()
assert not [name for name in sys.modules if name.startswith("mamba_ssm")]
assert importlib.util.find_spec("mamba_ssm") is None
""")


@pytest.mark.parametrize(
    "code, name",
    [
        ("from mamba_ssm import Mamba", "mamba_ssm.Mamba"),
        ("import mamba_ssm; mamba_ssm.Mamba", "mamba_ssm.Mamba"),
        ("from mamba_ssm.modules.mamba_simple import Mamba", "mamba_ssm.modules"),
        ("import causal_conv1d; causal_conv1d.cpp_functions.missing", "causal_conv1d.cpp_functions.missing"),
        ("from causal_conv1d import missing", "causal_conv1d.missing"),
    ],
)
def test_what_a_drop_in_lacks(code, name):
    """The message says what the drop-in has instead."""
    package = name.partition(".")[0]
    run_python(f"""
from torch_ops import compat

compat.install()
try:
    {code}
except (ImportError, AttributeError) as error:
    message = str(error)
assert message.startswith("{name} is not in gpuopt's drop-in for {package}: expected one of its functions "), message
assert {"selective_scan_fn" if package == "mamba_ssm" else "causal_conv1d_fn"!r} in message and "install {package} itself" in message
import {package}
assert not hasattr({package}, "Mamba")
""")


def test_a_package_that_is_installed_later_says_itself_what_it_lacks(tmp_path):
    (tmp_path / "mamba_ssm").mkdir()
    (tmp_path / "mamba_ssm/__init__.py").touch()
    run_python(f"""
import sys
from torch_ops import compat

compat.install()
sys.path.insert(0, {str(tmp_path)!r})
try:
    from mamba_ssm import Mamba
except ImportError as error:
    assert str(error).startswith("cannot import name 'Mamba'"), error
""")


# ---------------------------------------------------------------- transformers


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
@pytest.mark.parametrize("model", ["Mamba", "FalconMamba"])
@each_device
def test_a_model_of_transformers(device, model):
    """The same model with and without drop-ins: gradients, logits, and generated tokens.

    In training, transformers calls mamba_inner_fn. For FalconMamba its slow path differs from that: it normalises step sizes before
    their projection, not after it. So gradients of that model are compared in evaluation mode.
    """
    run_python(f"""
import importlib, sys, torch, torch_ops
from torch_ops import compat

def imported():
    for name in [n for n in sys.modules if n.startswith("transformers")]:
        del sys.modules[name]
    return importlib.import_module("transformers")

def run():
    transformers = imported()
    torch.manual_seed(0)
    config = transformers.{model}Config(vocab_size=50, hidden_size=16, state_size=4, num_hidden_layers=2, pad_token_id=0,
                                        bos_token_id=1, eos_token_id=None)
    network = transformers.{model}ForCausalLM(config).to({device!r})
    tokens = torch.arange(2, 20, device={device!r}).view(2, 9)
    loss = network.train({model == "Mamba"})(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    gradients = [p.grad.cpu() for p in network.parameters()]
    network.eval()
    with torch.no_grad():
        logits = network(tokens).logits.cpu()
        text = network.generate(tokens, max_new_tokens=6, do_sample=False, eos_token_id=None).cpu()
    return [loss.detach().cpu(), *gradients, logits], text

slow, want = run()
assert compat.install(["causal_conv1d", "mamba_ssm"]) == ["causal_conv1d", "mamba_ssm"]
counts = dict.fromkeys(("selective_scan", "selective_scan_update"), 0)
for name in counts:
    def counted(*args, name=name, function=getattr(compat.mamba_ssm, name), **kwargs):
        counts[name] += 1
        return function(*args, **kwargs)
    setattr(compat.mamba_ssm, name, counted)
fast, text = run()
assert counts["selective_scan"] >= 4 and (counts["selective_scan_update"] >= 10), counts
for got, expected in zip(fast, slow, strict=True):
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-5)
assert torch.equal(text, want)
""")
