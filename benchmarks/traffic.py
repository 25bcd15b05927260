"""The bytes a case cannot avoid moving. All bandwidths in the reports are these bytes over the time taken."""

import torch


def results(value) -> tuple[torch.Tensor, ...]:
    """What a call gives: a tensor, or several of which those that were not asked for are None."""
    return (value,) if isinstance(value, torch.Tensor) else tuple(part for part in value if part is not None)


def distinct_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the different elements a tensor shows: an expanded dimension counts once, a skipped element never."""
    if tensor.numel() == 0:
        return 0
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride()):
        if stride != 0:
            count *= size
    return count * tensor.element_size()


def traffic(case, call) -> tuple[int, int]:
    """(bytes read, bytes written): each operand, or what of it is used, read once, each output written once.

    Memory moves in 32-byte sectors, so a step-2 slice costs the hardware twice what is counted here.
    Works on meta tensors: needs neither a GPU nor memory.
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
