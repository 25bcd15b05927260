"""The bytes that a case must move. All bandwidths in the reports are these bytes divided by the time."""

import torch


def results(value) -> tuple[torch.Tensor, ...]:
    """The tensors that a call returns. Results that were not requested are None and left out."""
    return (value,) if isinstance(value, torch.Tensor) else tuple(part for part in value if part is not None)


def distinct_bytes(tensor: torch.Tensor) -> int:
    """The bytes of the distinct elements of a tensor: an expanded dimension counts once, and a skipped element not at all."""
    if tensor.numel() == 0:
        return 0
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride()):
        if stride != 0:
            count *= size
    return count * tensor.element_size()


def traffic(case, call) -> tuple[int, int]:
    """(bytes read, bytes written): the used part of each operand is read once, and each output is written once.

    Memory moves in 32-byte sectors, so the hardware moves twice the counted bytes of a slice with stride 2.
    Works on meta tensors, so it needs neither a GPU nor memory.
    """
    if case.moved is not None:
        return case.moved()
    args = case.build("meta", 0)
    if call.reads is not None:
        read_args = call.reads(*args)
    else:
        read_args = args[:-1] if call.kind == "out" else args
    read = sum(distinct_bytes(arg) for arg in read_args if isinstance(arg, torch.Tensor))
    return read, sum(map(distinct_bytes, results(call.aten(*args))))
