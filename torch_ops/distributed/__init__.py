"""Operators over the ranks of a ``torch.distributed`` process group: NCCL between GPUs, gloo between CPUs.

Import it as ``import torch_ops.distributed``. Every function is collective: all ranks of the group call it in the same order.
"""

from torch_ops.distributed._peers import RankError as RankError
from torch_ops.distributed.partition import Partition as Partition
from torch_ops.distributed.partition import PartitionFileError as PartitionFileError
from torch_ops.distributed.partition import load_partition as load_partition
from torch_ops.distributed.partition import partition as partition
from torch_ops.distributed.triangle_count import triangle_count as triangle_count

from torch_ops.distributed import _sharding  # isort: skip

_sharding.register()
