"""Operators over the ranks of a ``torch.distributed`` group: NCCL between GPUs, gloo between CPUs.

Importing it as ``import torch_ops.distributed`` gives DTensor a rule for every operator of ``torch.ops.gpuopt``. The functions here
exchange tensors between ranks. They are collective: all ranks of the group or of the mesh call them in the same order.
"""

from torch_ops.distributed import _sharding
from torch_ops.distributed._convolution import causal_conv1d as causal_conv1d
from torch_ops.distributed._convolution import conv1d as conv1d
from torch_ops.distributed._convolution import conv1d_act as conv1d_act
from torch_ops.distributed._convolution import conv_transpose1d as conv_transpose1d
from torch_ops.distributed._partition import Partition as Partition
from torch_ops.distributed._partition import PartitionFileError as PartitionFileError
from torch_ops.distributed._partition import load_partition as load_partition
from torch_ops.distributed._partition import partition as partition
from torch_ops.distributed._peers import RankError as RankError
from torch_ops.distributed._scans import cumsum as cumsum
from torch_ops.distributed._scans import linear_recurrence as linear_recurrence
from torch_ops.distributed._scans import selective_scan as selective_scan
from torch_ops.distributed._sparse import ShardedCSR as ShardedCSR
from torch_ops.distributed._sparse import spmm as spmm
from torch_ops.distributed._triangle_count import triangle_count as triangle_count

_sharding.register()
