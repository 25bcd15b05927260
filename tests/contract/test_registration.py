"""Every operator's registration with the dispatcher: kernels, tags and schema."""

from __future__ import annotations

import pytest
import torch

from ..support.params import CASES, EVERY_CASE, each_device

pytestmark = pytest.mark.torch_version

OVERLOADS = sorted({o for c in CASES for o in c.overloads}, key=str)
INTERNAL = sorted({o for c in EVERY_CASE if c.internal for o in c.overloads}, key=str)
# Operators without tensors: they replace operators, count calls and what is kept, forget it, and decide in graphs.
CONTROL = {
    f"gpuopt::_override_{name}"
    for name in ("enable", "disable", "operators", "reasons", "calls", "reset", "in_graph", "transposes")
} | {
    "gpuopt::_structure_count",
    "gpuopt::_structure_forget",
    "gpuopt::_watch_state",
    "gpuopt::_watch_note_dicts",
    "gpuopt::_watch_forget",
}
# Operators that keep tensors. Only eager calls reach them.
KEEPING = {"gpuopt::_structure_find", "gpuopt::_structure_keep", "gpuopt::_watch"}
# An operator that writes running statistics. The override calls it below autograd, and its tests compare it with ATen's.
WRITING = {"gpuopt::_batch_norm_training"}


def test_every_operator_has_a_case():
    """The tests in this folder would skip an operator without a case."""
    names = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("gpuopt::")}
    assert names == {o.name() for o in OVERLOADS} | {o.name() for o in INTERNAL} | CONTROL | KEEPING | WRITING


def test_control_operators_have_no_tensors():
    for name in CONTROL:
        assert "Tensor" not in str(torch._C._get_schema(name, ""))


@each_device
@pytest.mark.parametrize("overload", INTERNAL, ids=str)
def test_kernels_of_internal_operators(overload, device):
    if torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeImplicitAutograd"):
        return
    for key in ("CPU", "Meta") + (("CUDA",) if device == "cuda" else ()):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key), key


@each_device
@pytest.mark.parametrize("overload", OVERLOADS, ids=str)
def test_kernels(overload, device):
    """Every dispatch key has a kernel. A fallback would silently lose gradients, version counters or the speed of vmap."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeImplicitAutograd"):
        return  # composite: calls operators that have all these kernels
    wanted = ["CPU", "Meta", "Autograd"] + (["CUDA"] if device == "cuda" else [])
    if overload._schema.is_mutable:
        wanted.append("ADInplaceOrView")
    if not any(a.name == "out" for a in overload._schema.arguments):
        wanted.append("FuncTorchBatched")
    missing = [k for k in wanted if not torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), k)]
    assert not missing, f"{overload} has no kernel for {missing}"


@pytest.mark.parametrize("overload", [o for o in OVERLOADS if o._schema.is_mutable], ids=str)
def test_functionalization(overload):
    """An operator that returns what it writes has a kernel. One that returns something else must not have one, or torch.compile would
    copy what it writes. It has a kernel for torch.func instead."""
    returns_what_it_writes = overload._schema.returns[0].alias_info is not None
    for key, wanted in (
        ("Functionalize", returns_what_it_writes),
        ("FuncTorchDynamicLayerFrontMode", not returns_what_it_writes),
    ):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key) == wanted, key


@pytest.mark.parametrize("overload", OVERLOADS, ids=str)
def test_schema(overload):
    """The tag allows torch.compile to keep the operator in its graph. The schema marks the argument that is written."""
    assert torch.Tag.pt2_compliant_tag in overload.tags
    written = [a.name for a in overload._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    name, kind = overload._schema.name, overload._schema.overload_name
    of_case = [a for c in CASES if c.overload is overload for a in c.writes]
    assert written == (["self"] if name.endswith("_") else ["out"] if kind.endswith("out") else of_case)


@pytest.mark.parametrize("case", [c for c in EVERY_CASE if c.internal], ids=str)
def test_schema_of_internal_operators(case):
    """The schema marks the argument that is written."""
    written = [a.name for a in case.overload._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    assert written == list(case.writes)
