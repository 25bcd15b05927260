"""The ladder of reduce_sum in PyTorch's own operators: pairs of values, then pairs of pairs. It runs without a GPU, too."""


def reduce_sum(x):
    values = x.reshape(-1)
    while values.numel() > 1:
        half = (values.numel() + 1) // 2
        folded = values[:half].clone()
        folded[: values.numel() - half] += values[half:]
        values = folded
    return values.sum()
