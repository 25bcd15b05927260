"""Calls give the same bits however they overlap: on several streams, in several host threads, in graphs, in memory of any contents.

Each room has a list of calls that reaches its kernels, in its test_cuda.py or in chains.py.
"""

from __future__ import annotations

import functools

import pytest
import torch

from ..support.overlap import Calls, Instance, gate, half_alike, spoil
from . import chains
from .conv1d.test_cuda import overlapping as conv1d
from .dot.test_cuda import overlapping as dot
from .index_add.test_cuda import DTYPES
from .index_add.test_cuda import overlapping as index_add
from .reduce.test_cuda import overlapping as reduce
from .scan.test_cuda import overlapping as scan
from .selective_scan.test_cuda import overlapping as selective_scan
from .upsample.test_cuda import overlapping as upsample

pytestmark = pytest.mark.gpu
ROOMS = {
    "conv1d": conv1d, "dot": dot, "elementwise": chains.elementwise, "index_select": chains.index_select, "norm": chains.norm, "pad": chains.pad,
    "reduce": reduce, "scan": scan, "scatter": chains.scatter, "segment": chains.segment, "selective_scan": selective_scan, "spmm": chains.spmm,
    "transpose": chains.transpose, "upsample": upsample,
} | {f"index_add, {dtype}": functools.partial(index_add, dtype) for dtype in DTYPES}  # fmt: skip


@pytest.fixture(params=ROOMS)
def calls(request) -> Calls:
    return ROOMS[request.param]()


def test_repeats_bit_for_bit(calls):
    calls.repeat(10)


def test_streams_at_once(calls):
    """Half of the streams make the same call at the same time. The other half make different calls."""
    calls.on_streams(half_alike(calls.thinned(copies=16), streams=8, times=2), rounds=3)


def test_threads_at_once(calls):
    """Host threads with a stream each give the same bits, so calls share no state on the host."""
    calls.in_threads(6, calls.thinned(copies=12))


def test_graph_replayed_from_several_streams(calls):
    """Several streams replay a graph, beside other calls. CUDA runs the replays one after another."""
    names = calls.thinned(copies=2)
    calls.on_streams([names[k::4] for k in range(4)], rounds=5, captured=calls.captured(names))


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x3F, 0x7F, 0x80, 0xFF])
def test_nothing_is_read_from_freed_memory(calls, byte):
    """Results do not depend on the old contents of a workspace or a result, here filled with one byte."""
    torch.cuda.empty_cache()
    results = []
    for name in calls.thinned(copies=1):
        blocks = [torch.full((2**p,), byte, dtype=torch.uint8, device="cuda") for p in range(9, 27) for _ in range(3)]
        del blocks
        results.append((name, calls.functions[name]()))
    calls.compare(results)


# Calls of every path that several blocks share a workspace in.
SHARED = [
    (reduce, f"reduce_sum, {name}")
    for name in (
        "full 2^22", "full 2^18+13", "full bf16", "rows (3, 1000003)", "columns (1000003, 3)", "channels_last", "NCHW", "middle",
    )
] + [
    (scan, name)
    for name in (
        "2^24", "2^21 complex", "rows (3, 1000003)", "columns (1000003, 3)", "middle", "recurrence 2^22 f32, True",
        "recurrence columns (300003, 3), False",
    )
]  # fmt: skip


@pytest.mark.parametrize(("room", "name"), SHARED, ids=[name for _, name in SHARED])
def test_two_instances_of_a_graph(room, name):
    """Two instances of one call run at the same time, with the same kernels, addresses and workspace. Each clears the other's
    records of look-back.

    A graph of several calls cannot be tested like this: torch's allocator reuses memory between its calls, so two instances must
    not overlap, whatever the operator.
    """
    calls = room()
    graph, static = calls.captured([name], torch.cuda.CUDAGraph(keep_graph=True))
    instances = [Instance(graph) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in instances]
    try:
        for _ in range(4):
            spoil(static)
            start = gate()
            for stream in streams:
                stream.wait_event(start)
            for _ in range(16):
                for instance, stream in zip(instances, streams):
                    instance.launch(stream)
            calls.compare(static)
    finally:
        torch.cuda.synchronize()
        for instance in instances:
            instance.destroy()
