"""The training with drop-ins: its data, and its table. The training itself needs transformers and a GPU."""

import torch

from benchmarks.models import drop_ins


def test_batches_are_the_same_in_every_process_and_differ_from_step_to_step():
    first, again = list(drop_ins.batches(3)), list(drop_ins.batches(3))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], first[1])
    assert first[0].shape == (drop_ins.BATCH, drop_ins.LENGTH)
    assert 0 <= first[0].min() and first[0].max() < drop_ins.MODEL["vocab_size"]


def test_the_table_compares_the_two_ways():
    slow = {"way": "PyTorch", "dtype": "f32", "ms": 80.0, "memory": 700, "losses": [4.0, 2.0]}
    fast = {"way": "drop-ins", "dtype": "f32", "ms": 5.0, "memory": 200, "losses": [4.0, 1.9]}
    fast["difference"] = drop_ins.difference(slow["losses"], fast["losses"])
    assert drop_ins.table([slow, fast]).splitlines()[2] == "| f32 | 80.0 | 5.00 | 16.0 | 700 -> 200 | 5.0e-02 |"
