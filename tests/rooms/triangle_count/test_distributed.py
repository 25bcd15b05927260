"""Triangles of partitioned graphs over 1 to 9 ranks: counts, inputs, files, memory, bytes sent, and faults."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import networkx
import pytest
import torch

import torch_ops
from benchmarks.partitioned import model
from torch_ops.distributed._deal import IMBALANCE, Deal, choose_buckets
from torch_ops.distributed._partition import LARGEST, _check_entries, _hashed

from ...support import ranks
from . import distributed_checks as checks

CLOSED = {
    "complete": math.comb(40, 3), "bipartite": 0, "star": 0, "wheel": 200, "cliques": 20 * math.comb(9, 3),
    "isolated vertices": 10, "one triangle": 1, "no edges": 0, "one vertex": 0,
}  # fmt: skip


def test_a_rank_holds_so_many_entries():
    _check_entries(LARGEST)
    with pytest.raises(ValueError, match="expected more ranks for this graph, got 2147483648 entries on one"):
        _check_entries(LARGEST + 1)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return ranks.run([checks.living, checks.dying], checks.WORLD, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def found(results):
    """What every rank has found."""
    for result in results[0]:
        assert isinstance(result, dict), result
    return results[0]


def single(name: str) -> int:
    ends, vertices = checks.GRAPHS[name]
    return int(torch_ops.triangle_count(checks.edges_of(ends), num_nodes=vertices))


# ---------------------------------------------------------------- counts


@pytest.mark.parametrize("count", checks.RANKS)
def test_counts_are_those_of_one_process(found, count):
    """The same on every rank, and for every number of ranks."""
    expected = {name: single(name) for name in checks.GRAPHS}
    for result in found[:count]:
        assert result[count]["counts"] == expected
        assert result[count]["digests"] == found[0][1]["digests"]
    digests = {name: digest for name, digest in found[0][1]["digests"].items() if checks.has_edges(name)}
    assert len({*digests.values()}) == len(digests)


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms(found, name):
    assert found[0][9]["counts"][name] == CLOSED[name]


@pytest.mark.parametrize("name", ["random", "R-MAT 9"])
def test_counts_are_those_of_networkx(found, name):
    ends, _ = checks.GRAPHS[name]
    graph = networkx.Graph([end for end in ends.T.tolist() if end[0] != end[1]])
    assert found[0][9]["counts"][name] == sum(networkx.triangles(graph).values()) // 3


def test_inputs(found):
    """Slices of any size and overlap, in int32 and int64, as tensors, lists of tensors, and matrices."""
    digest = found[0][1]["digests"]["R-MAT 9"]
    for result in found[:4]:
        assert len(result["inputs"]) == 7
        for name, got in result["inputs"].items():
            assert got == (single("R-MAT 9"), digest), name


def test_loaded_by_other_numbers_of_ranks(found):
    for rank, result in enumerate(found):
        sizes = {count for count in checks.RANKS if rank < count}
        assert result["files"] == dict.fromkeys(sizes, (single("R-MAT 9"), found[0][1]["digests"]["R-MAT 9"]))


# ---------------------------------------------------------------- memory and bytes


@pytest.mark.parametrize("count", checks.RANKS)
def test_memory_and_bytes(found, count):
    """The formulas of the documentation. m edges and n vertices that have an edge, in q buckets that S ranks share."""
    sizes = [result[count]["size"] for result in found[:count]]
    m, n, q, copies = (sizes[0][name] for name in ("edges", "rows", "buckets", "copies"))
    # Buckets differ a little in size, and so do the numbers of ranks that share them.
    assert sum(size["sent"] for size in sizes) == pytest.approx(4 * (copies - 1) * (m + q * (n + q)), rel=0.01)
    assert sum(size["part"] for size in sizes) == 4 * (m + q * (n + q))
    bound = 1.35 * (12 * m + 12 * q * n) / count
    assert max(size["bytes"] for size in sizes) < bound


def test_memory_falls(found):
    most = [max(result[count]["size"]["bytes"] for result in found[:count]) for count in (1, 2, 4, 9)]
    assert all(after < 0.8 * before for before, after in itertools.pairwise(most[1:])), most


def test_what_the_benchmark_measures(found):
    """The model's bytes are those sent, and its memory is near the largest rank's."""
    rows = [result["benchmark"] for result in found]
    common = rows[0][0]
    assert all(one == common for one, _ in rows)
    load = model.Load(9, common["edges"], common["vertices"])
    sent = sum(own["sent_bytes"] for _, own in rows) / common["edges"]
    assert sent == pytest.approx(load.bytes_for_each_edge, rel=0.03)
    assert max(own["held_bytes"] for _, own in rows) == pytest.approx(load.memory, rel=0.3)
    for _, own in rows:
        assert common["vertices"] / 9 < own["named"] <= common["vertices"] * 3 / load.deal.buckets * 1.2
        assert min(own[name] for name in ("partition_s", "load_s", "count_s", "counting_s", "communication_s")) > 0


# ---------------------------------------------------------------- the deal


@pytest.mark.parametrize("count", [*range(1, 18), 64, 100])
def test_deal(count):
    """Every block has one rank, work is even, and every triple of buckets is counted once by a rank that has its blocks."""
    deal = Deal(choose_buckets(count), count)
    q = deal.buckets
    held = [block for rank in range(count) for block in deal.blocks(rank)]
    assert sorted(held) == [(i, j) for i in range(q) for j in range(q)]
    assert max(len(deal.blocks(rank)) for rank in range(count)) <= IMBALANCE * q * q / count
    for rank in range(count):
        steps = [deal.needed(rank, step) for step in range(q)]
        wanted = {(b, k) for i, j in deal.blocks(rank) for b in (i, j) for k in range(q)}
        assert sorted(block for step in steps for block in step) == sorted(wanted)


@pytest.mark.parametrize("count", [*range(1, 18), 64, 100])
def test_the_bound_of_memory(count):
    """For blocks of equal size."""
    for edges, vertices in ((10**9, 10**7), (10**8, 10**8)):
        load = model.Load(count, edges, vertices)
        assert load.memory <= 1.3 * (16 * edges + 12 * load.deal.buckets * vertices) / count


def test_the_documented_numbers_of_buckets_and_copies():
    page = (Path(__file__).parents[3] / "docs" / "partitioned.md").read_text()
    table = [
        re.search(rf"^\| {name} \|(.*)\|$", page, re.MULTILINE)[1].split("|")
        for name in ("ranks", "buckets q", "ranks S of a vertex")
    ]
    deals = [Deal(choose_buckets(int(ranks)), int(ranks)) for ranks in table[0]]
    assert [int(cell) for cell in table[1]] == [deal.buckets for deal in deals]
    assert [float(cell) for cell in table[2]] == [deal.copies for deal in deals]
    drawn = re.findall(r"^ +(?:i = )?\d((?: +\d){4})", page, re.MULTILINE)
    owners = Deal(4, 4).owners
    assert [[*map(int, row.split())] for row in drawn] == [[owners[i, j] for j in range(4)] for i in range(4)]


@pytest.mark.parametrize("count", [2, 3, 5, 9, 16])
def test_what_one_rank_sends_another_one_receives(count):
    deal = Deal(choose_buckets(count), count)
    for step in range(deal.buckets):
        received = {(rank, *part) for rank in range(count) for part in deal.received(rank, step)}
        sent = {(other, rank, block) for rank in range(count) for other, block in deal.sent(rank, step)}
        assert received == sent


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 13])
def test_hashing_is_a_permutation(bits):
    numbers = torch.arange(1 << bits)
    assert torch.equal(_hashed(numbers, bits).sort().values, numbers)


def test_hashing_scatters_numbers_of_31_bits():
    """Neighbours, and numbers that differ in high bits only, fall into all buckets evenly."""
    for numbers in (torch.arange(9000), torch.arange(9000) << 17):
        hashed = _hashed(numbers, 31)
        assert hashed.min() >= 0 and hashed.max() < 2**31 and hashed.unique().numel() == 9000
        for buckets in (2, 3, 4, 9):
            share = torch.bincount(hashed % buckets, minlength=buckets) * buckets / 9000
            assert ((share > 0.9) & (share < 1.1)).all(), (buckets, share)


# ---------------------------------------------------------------- faults

# What rank 1 raises whose file has a fault. The other ranks name rank 1 and say the same.
FILES = {
    "truncated": r"rank-1-of-3.gpuopt: the file is truncated: expected \d+ bytes of block \(\d, \d\), got \d+",
    "truncated header": r"rank-1-of-3.gpuopt: the file is truncated: expected \d+ bytes of the header, got 40",
    "truncated prefix": r"rank-1-of-3.gpuopt: the file is truncated: expected 20 bytes of the prefix, got 11",
    "empty": r"rank-1-of-3.gpuopt: not the file of a partition: expected b'GPUOPTGP' at its begin, got b''",
    "foreign": r"rank-1-of-3.gpuopt: not the file of a partition: expected b'GPUOPTGP' at its begin, got b'PK",
    "version": r"rank-1-of-3.gpuopt: another version of the format: expected 1, got 99",
    "damaged header": r"rank-1-of-3.gpuopt: the header is damaged: expected CRC-32 \w{8}, got \w{8}",
    "damaged block": r"rank-1-of-3.gpuopt: block \(\d, \d\) is damaged: expected CRC-32 \w{8}, got \w{8}",
    "missing": r"rank-1-of-3.gpuopt: expected the file of rank 1 of 3, got: .*No such file",
    "of another rank": r"rank-1-of-3.gpuopt: the file of another rank: expected rank 1 of 3, got rank 0 of 3",
}


@pytest.mark.parametrize("fault", FILES)
def test_faults_of_files(found, fault):
    for rank, result in enumerate(found[:3]):
        kind, message, _ = result["faults"][fault]
        assert kind == ("PartitionFileError" if rank == 1 else "RankError")
        assert re.search(FILES[fault], message), message
        assert rank == 1 or message.startswith("load_partition: rank 1 failed: PartitionFileError: ")


def test_files_of_different_graphs(found):
    for result in found[:3]:
        kind, message, _ = result["faults"]["of another graph"]
        assert kind == "ValueError"
        assert re.search(
            r"load_partition: ranks must agree about digest: expected \w{16}, as on rank 0, got \w{16} on rank 1",
            message,
        )


def test_two_partitions_in_a_folder(found):
    for result in found[:3]:
        kind, message, _ = result["faults"]["two partitions"]
        assert kind == "PartitionFileError"
        assert re.search(
            r"two partitions: expected the files of one partition, .* got files of \[2, 3\] ranks", message
        )


# The error of rank 0, and the error of the others if it is another one.
DISAGREEMENTS = {
    "graphs": ("ValueError", r"ranks must agree about digest: expected \w+, as on rank 0, got \w+ on rank 1", None),
    "blocks": ("ValueError", r"the blocks of all ranks must be those of the graph: expected digest \w+, got \w+", None),
    "not a partition": ("TypeError", r"partition must be of torch_ops.distributed.partition, got Tensor", "RankError"),
    "vertices": (
        "ValueError",
        r"ranks must agree about num_nodes: expected 513, as on rank 0, got 512 on rank 1",
        None,
    ),
    "buckets": ("ValueError", r"ranks must agree about buckets: expected 4, as on rank 0, got 3 on rank 1", None),
    "too few buckets": ("ValueError", r"every rank must have a pair of buckets: expected 3 buckets, got 1", None),
    "no buckets": ("ValueError", r"every rank must have a pair of buckets: expected 3 buckets, got 0", None),
    "out of range": ("IndexError", r"edges must name vertices: expected numbers from 0 to 399, got \d+", None),
    "negative": ("IndexError", r"edges must name vertices: expected numbers from 0 to 511, got -1", "RankError"),
    "dtype": ("TypeError", r"an edge list must be a tensor of int32 or int64, got torch.float32", "RankError"),
    "shape": ("ValueError", r"an edge list must be \(2, edges\): expected 2 rows, got shape \(\d+, 2\)", "RankError"),
    "second list": ("ValueError", r"an edge list must be \(2, edges\): expected 2 rows, got shape", "RankError"),
    "unknown vertices": ("ValueError", r"num_nodes must be given with an iterable of slices", None),
    "too many vertices": ("ValueError", r"num_nodes must be the size of the graph: .* got 2147483648", None),
    "too large a vertex": ("ValueError", r"num_nodes must be the size of the graph: .* got 2147484\d+", "RankError"),
    "half a vertex": ("TypeError", r"num_nodes must be an integer: expected an int, got 2.5", None),
    "half a bucket": ("TypeError", r"buckets must be an integer: expected an int, got 2.5", None),
    "no graph": ("TypeError", r"graph must be edge lists or torch_ops.CSR, got NoneType", "RankError"),
}


@pytest.mark.parametrize("name", DISAGREEMENTS)
def test_disagreements(found, name):
    """All ranks raise, whichever has the fault."""
    kind, message, of_others = DISAGREEMENTS[name]
    for rank, result in enumerate(found[:3]):
        got, text, _ = result["disagreements"][name]
        assert got == (of_others if rank and of_others else kind), text
        assert re.search(message, text), text
        assert not (rank and of_others) or "rank 0 failed: " in text


def test_partitions_of_other_groups(found):
    for rank, result in enumerate(found[:2]):
        kind, message, _ = result["disagreements"]["group"]
        assert kind == "ValueError"
        assert f"expected rank {rank} of 2, got rank {rank} of 3" in message


@pytest.mark.parametrize("kind", checks.DEATHS)
def test_ranks_that_die(results, kind):
    """The others raise within the timeout of the group. A rank that stalls finds that the others are gone."""
    *others, last = checks.DEATHS[kind]
    for rank in others:
        error, message, seconds = results[1][rank]
        assert error == "RankError" and "does not reach the others" in message, message
        assert seconds < checks.TIMEOUT + 3
    assert results[1][last] is None or (kind == "stalls" and results[1][last][0] == "RankError")


# ---------------------------------------------------------------- GPUs


@pytest.mark.gpu
@pytest.mark.alone
def test_counts_on_gpus(tmp_path):
    expected = {name: single(name) for name in checks.GRAPHS}
    (results,) = ranks.run([checks.on_gpus], 4, tmp_path)
    for rank, result in enumerate(results):
        assert isinstance(result, dict), result
        kind, message, _ = result.pop("CPU under NCCL", ("ValueError", "the group sends from GPUs only", 0.0))
        assert kind == "ValueError" and "the group sends from GPUs only" in message
        names = {"gloo 4", *(f"nccl {n}" for n in (1, 2, 4) if rank < n <= torch.cuda.device_count())}
        assert result == dict.fromkeys(names, expected)


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_rank_that_dies_under_nccl(tmp_path):
    """The others raise, or the watchdog of torch.distributed ends them. None hangs, and none counts."""
    (results,) = ranks.run([checks.dying_on_gpus], torch.cuda.device_count(), tmp_path, seconds=90)
    for result in results:
        assert result is None or isinstance(result, str) or result[0] != "returned", result
