"""Replays calls of modules as CUDA graphs (``docs/cuda_graph.md``).

================  ====================================================================================
file              what it holds
================  ====================================================================================
``module.py``     ``cuda_graph``
``classes.py``    the class that a module gets
``runtime.py``    the decision for each call, the cache and its limits
``entry.py``      what is known of one signature
``arguments.py``  the part of a signature that arguments make
``ambient.py``    the part that PyTorch's modes make, and where calls run as they are
``snapshot.py``   the part that the module makes
``capture.py``    recording: observe, record, compare, measure
``observe.py``    finds operators that a recording would get wrong
``step.py``       a call on copies of its arguments
``results.py``    the structure of what is returned
``check.py``      comparisons of replays and eager calls
``preserve.py``   puts state back
``replay.py``     replays, and the node of autograd
``backend.py``    CUDA graphs and their memory
``report.py``     ``cuda_graph_report``
================  ====================================================================================
"""

from torch_ops._cuda_graph.module import cuda_graph
from torch_ops._cuda_graph.report import cuda_graph_report

__all__ = ["cuda_graph", "cuda_graph_report"]
