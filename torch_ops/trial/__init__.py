"""Measures what ``torch_ops.override`` gains in a training step or an inference (``docs/trial.md``).

=================  ==================================================================================
file               what it holds
=================  ==================================================================================
``function.py``    ``trial``
``script.py``      the same for the steps of a script
``__main__.py``    the command
``device.py``      the GPU: waiting, memory, the profiler
``search.py``      finds modules, optimizers and generators in a function
``state.py``       puts them back
``compare.py``     differences of results and gradients
``graphs.py``      modules as CUDA graphs, in a block
``clock.py``       the wall clock: rounds of steps, their medians and their noise
``kernels.py``     the kernels of a step, by families
``operators.py``   the kernels of a step, by the operators that the override replaces
``measured.py``    what is measured
``conclusion.py``  what it means, in sentences
``report.py``      the report, as text and as JSON
``plot.py``        its picture
``record.py``      records the calls of a step, without their data
``replay.py``      measures recorded calls
``text.py``        tables
=================  ==================================================================================
"""

from torch_ops.trial.function import trial

__all__ = ["trial"]
