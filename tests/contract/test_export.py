"""torch.export: the graph has the operator under its own name, and the program runs with the shapes that it was exported for."""

from __future__ import annotations

import io

import pytest
import torch

from ..support.compare import Failures, close, different_metadata
from ..support.params import each_case, kept, thinned

pytestmark = pytest.mark.torch_version


class _Model(torch.nn.Module):
    def __init__(self, op, kwargs):
        super().__init__()
        self.op, self.kwargs = op, kwargs

    def forward(self, *args):
        return self.op(*args, **self.kwargs)


def _dynamic_shapes(sample):
    """Marks every size above 1 as dynamic, and sizes that are arguments."""
    auto = torch.export.Dim.AUTO

    def shape_of(a):
        if isinstance(a, torch.Tensor):
            return {d: auto for d, n in enumerate(a.shape) if n > 1}
        return tuple(auto if n > 1 else None for n in a) if isinstance(a, tuple) else None

    return {"args": tuple(shape_of(a) for a in sample.args)}


@each_case
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_export(case, device, dynamic):
    failures = Failures()
    for sample in thinned(case.few(device, torch.float32), device, keep=2 if dynamic else 0):
        if any(isinstance(a, complex) for a in sample.args) or (
            dynamic and any(t.numel() == 0 for t in sample.tensors)
        ):
            continue  # export accepts no complex numbers as inputs, and specialises size 0
        with failures.sample(sample.name):
            shapes = _dynamic_shapes(sample) if dynamic else None
            program = torch.export.export(_Model(case.op, sample.kwargs), sample.args, dynamic_shapes=shapes)
            targets = {str(n.target) for n in program.graph.nodes if n.op == "call_function"}
            assert any(t.startswith("gpuopt.") for t in targets), f"the graph has only {targets}"
            for _ in range(2 if dynamic else 1):
                got, want = program.module()(*sample.args), case.op(*sample.args, **sample.kwargs)
                failures.add(sample.name, different_metadata(got, want))
                failures.add(sample.name, close(got, want, ulps=1))
                sample = sample.resized()
    failures.check(at_least=kept(6, device, keep=0))


@each_case
def test_exported_program_survives_saving(case, device):
    sample = next(iter(case.few(device, torch.float32)))
    program = torch.export.export(_Model(case.op, sample.kwargs), sample.args)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    assert close(loaded.module()(*sample.args), case.op(*sample.args, **sample.kwargs), ulps=1) is None
