"""gpuopt: faster CUDA kernels behind PyTorch's own operators, and the operators themselves as functions.

Importing this package loads the native library, which registers ``torch.ops.gpuopt.*``. The functions of the package call these
operators; they add documentation and accept plain Python arguments.
"""

from torch_ops import _library

_library.load()

# These modules look up registered operators, so they are imported after the library is loaded.
from torch_ops import compat as compat  # noqa: E402
from torch_ops import ladder as ladder  # noqa: E402
from torch_ops import nn as nn  # noqa: E402
from torch_ops import ops as ops  # noqa: E402
from torch_ops._conv1d import (  # noqa: E402
    causal_conv1d,
    causal_conv1d_update,
    conv1d,
    conv1d_act,
    conv1d_backward,
    conv_transpose1d,
    convolve,
)
from torch_ops._cuda_graph import cuda_graph, cuda_graph_report  # noqa: E402
from torch_ops._dot import dot, dot_fast_atomic, dot_rows, vdot  # noqa: E402
from torch_ops._elementwise import axpy, fma, mul, mul_  # noqa: E402
from torch_ops._embedding_bag import embedding_bag  # noqa: E402
from torch_ops._graph_attention import gat_attention, graph_attention  # noqa: E402
from torch_ops._index_add import index_add, index_add_  # noqa: E402
from torch_ops._index_select import index_select  # noqa: E402
from torch_ops._matmul import matmul  # noqa: E402
from torch_ops._norm import (  # noqa: E402
    add_layer_norm,
    add_rms_norm,
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)
from torch_ops._override import override, override_report  # noqa: E402
from torch_ops._pad import pad  # noqa: E402
from torch_ops._reduce import reduce_max, reduce_mean, reduce_min, reduce_sum  # noqa: E402
from torch_ops._scan import cumsum, cumsum_, linear_recurrence  # noqa: E402
from torch_ops._scatter import scatter, scatter_softmax  # noqa: E402
from torch_ops._scatter import scatter_reduce as scatter_reduce  # noqa: E402
from torch_ops._segment import (  # noqa: E402
    group_by,
    segment_expand,
    segment_reduce,
    segment_softmax,
)
from torch_ops._selective_scan import selective_scan, selective_scan_update  # noqa: E402
from torch_ops._spmm import sddmm, spmm  # noqa: E402
from torch_ops._transpose import transpose2d  # noqa: E402
from torch_ops._triangle_count import clustering_coefficients, triangle_count  # noqa: E402
from torch_ops._upsample import (  # noqa: E402
    upsample_nearest2d,
    upsample_nearest2d_backward,
    upsample_nearest_exact2d,
    upsample_nearest_exact2d_backward,
)
from torch_ops.layout import convert  # noqa: E402
from torch_ops.sparse import CSR  # noqa: E402
from torch_ops.trial import trial  # noqa: E402

__all__ = [
    "CSR",
    "add_layer_norm",
    "add_rms_norm",
    "axpy",
    "batch_norm",
    "causal_conv1d",
    "causal_conv1d_update",
    "clustering_coefficients",
    "conv1d",
    "conv1d_act",
    "conv1d_backward",
    "conv_transpose1d",
    "convert",
    "convolve",
    "cuda_graph",
    "cuda_graph_report",
    "cumsum",
    "cumsum_",
    "dot",
    "dot_fast_atomic",
    "dot_rows",
    "embedding_bag",
    "fma",
    "gat_attention",
    "graph_attention",
    "group_by",
    "group_norm",
    "index_add",
    "index_add_",
    "index_select",
    "instance_norm",
    "layer_norm",
    "linear_recurrence",
    "matmul",
    "mul",
    "mul_",
    "override",
    "override_report",
    "pad",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_sum",
    "rms_norm",
    "scatter",
    "scatter_softmax",
    "sddmm",
    "segment_expand",
    "segment_reduce",
    "segment_softmax",
    "selective_scan",
    "selective_scan_update",
    "spmm",
    "transpose2d",
    "trial",
    "triangle_count",
    "upsample_nearest2d",
    "upsample_nearest2d_backward",
    "upsample_nearest_exact2d",
    "upsample_nearest_exact2d_backward",
    "vdot",
]
__version__ = "0.2.0"
