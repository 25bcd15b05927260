"""What is computed from index tensors and kept: which tensors find it, and when it is gone. TRANSPOSES.md has the rules."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from ...support.params import each_device

_OPS = torch.ops.gpuopt
_MINE = "test_structures "


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Iterator[None]:
    _OPS._structure_forget(_MINE)
    yield
    _OPS._structure_forget(_MINE)


def find(*sources: torch.Tensor, key: str = "key") -> list[torch.Tensor | None]:
    return _OPS._structure_find(sources, _MINE + key)


def keep(*sources: torch.Tensor, key: str = "key", results=None) -> torch.Tensor:
    result = torch.zeros(3, device=sources[0].device)
    _OPS._structure_keep(sources, _MINE + key, [result, None] if results is None else results)
    return result


def count() -> int:
    return _OPS._structure_count(_MINE)


@each_device
def test_the_same_objects_are_found(device):
    index = torch.arange(6, device=device)
    assert find(index) == []
    result = keep(index)
    assert find(index)[0] is result and find(index)[1] is None
    assert find(index, key="other") == [] and find(index, index) == []
    assert find(index.detach())[0] is result and find(index.view(6))[0] is result
    other = keep(index)  # in place of the earlier one
    assert find(index)[0] is other and count() == 1


@each_device
def test_views_are_told_apart(device):
    index = torch.arange(12, device=device).view(2, 6)
    views = [index, index[0], index[1], index[0, ::2], index[:, 0], index.t(), index.view(12), index.view(torch.int32)]
    results = [keep(view) for view in views]
    for view, result in zip(views, results, strict=True):
        assert find(view)[0] is result
    assert find(index[1, 1:]) == [] and count() == len(views)


@each_device
@pytest.mark.parametrize("where", ["source", "view", "detached", "second source", "result"])
def test_writes_that_are_counted(device, where):
    """They drop nothing but what they reach."""
    one, two, beside = (torch.arange(6, device=device) for _ in range(3))
    result, stays = keep(one, two), keep(beside)
    written = {"source": one, "view": one[:2], "detached": one.detach(), "second source": two, "result": result}[where]
    written.zero_()
    assert find(one, two) == [] and find(beside)[0] is stays
    again = keep(one, two)
    assert find(one, two)[0] is again and count() == 2


def written_uncounted(tensor: torch.Tensor) -> None:
    torch.from_numpy(tensor.numpy())[-1] += 1


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_writes_that_are_not_counted(dtype):
    """A fingerprint of each source notices them."""
    for size in range(1, 120):
        for index in (torch.arange(size, dtype=dtype), torch.arange(2 * size, dtype=dtype)[::2]):
            first = torch.zeros(2, dtype=dtype)
            result = keep(first, index)
            assert find(first, index)[0] is result
            written_uncounted(index)
            with pytest.raises(RuntimeError, match="an index was written to in a way that PyTorch does not count"):
                find(first, index)


@each_device
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_fingerprints_of_many_sizes(dtype, device):
    for size in range(120):
        for index in (
            torch.arange(size, dtype=dtype, device=device),
            torch.ones(size * size, 2, dtype=dtype, device=device)[:, 1],
        ):
            result = keep(index)
            for _ in range(3):
                assert find(index)[0] is result


def test_a_source_that_is_a_result():
    """Nobody else has it, so that only counted writes are looked for."""
    index, loops = torch.arange(6), torch.arange(8)
    keep(index, results=[loops])
    result = keep(loops)
    written_uncounted(loops)
    assert find(loops)[0] is result
    loops.add_(1)
    assert find(loops) == [] and find(index) == []


@each_device
def test_what_is_gone_is_forgotten(device):
    """Also where the address is used again."""
    for _ in range(20):
        one, two = torch.zeros(1000, dtype=torch.int64, device=device), torch.zeros(4, dtype=torch.int64, device=device)
        assert find(one, two) == []
        keep(one, two)
        assert count() == 1
        del one
        assert count() == 0


def test_the_least_recently_used_goes_first():
    indices = [torch.arange(3) for _ in range(128)]
    for index in indices:
        keep(index)
    find(indices[0])
    new = torch.arange(3)
    keep(new)
    assert count() == 128 and find(indices[0]) and find(new) and find(indices[1]) == []


def test_forgetting_is_by_owner():
    index = torch.arange(3)
    keep(index)
    _OPS._structure_keep([index], "test_others", [index.clone()])
    _OPS._structure_forget(_MINE)
    assert count() == 0 and _OPS._structure_count("test_others") == 1
    _OPS._structure_forget("test_others")


@pytest.mark.gpu
def test_streams_have_their_own():
    index = torch.arange(6, device="cuda")
    result = keep(index)
    with torch.cuda.stream(torch.cuda.Stream()):
        assert find(index) == []
    assert find(index)[0] is result


def test_threads():
    """Each finds its own results, while others keep and forget."""
    failures = []

    def work(number: int) -> None:
        for _ in range(200):
            index = torch.full((4,), number)
            result = keep(index, key=str(number))
            if find(index, key=str(number))[0] is not result or find(index, key="none"):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and count() == 0
