"""Optimisation ladders: every classic version of a kernel, from the first idea that works to the production operator.

A step of a ladder adds one idea to the step below it, and is short enough to be read. docs/ladder shows the code and the time of each
step. The steps of an operator are registered as ``torch.ops.gpuopt_ladder.<op>(..., step)``. They run on CUDA tensors only and have
no gradients::

    import torch
    from torch_ops import ladder

    x = torch.rand(2**28, device="cuda")
    for step in ladder.steps("reduce_sum"):
        print(step.number, step.name, ladder.run("reduce_sum", step.name, x))

Steps accept tensors of any size. :func:`run` lists the dtypes and layouts.

:func:`compare` checks and measures a kernel of yours among the steps, and :func:`roofline` shows what this GPU allows
(``docs/practise.md``).

===============  ========================================================================
file             what it holds
===============  ========================================================================
``step.py``      the steps, and how to run one
``problems.py``  what a kernel of each ladder has to compute
``draw.py``      random operands
``source.py``    loads a ``.cu`` or a ``.py`` file
``zones.py``     memory between guard zones, and views of operands
``checks.py``    checks a kernel
``clock.py``     device time, and the ceilings of the GPU
``child.py``     the process of a kernel
``compare.py``   ``compare`` and ``roofline``
``counters.py``  hardware counters
``measured.py``  where a kernel stands among the steps
``roofline.py``  the roofline, as text and as a picture
``start.py``     a ``.cu`` file to begin with
``__main__.py``  the command
===============  ========================================================================
"""

from torch_ops.ladder.compare import Comparison, compare, roofline
from torch_ops.ladder.roofline import Roofline
from torch_ops.ladder.step import Step, ops, run, steps

__all__ = ["Comparison", "Roofline", "Step", "compare", "ops", "roofline", "run", "steps"]
