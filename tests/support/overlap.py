"""Runs calls repeatedly, on several streams, in several host threads and in graphs, and checks that results are the same bits."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest
import torch

from ..cases import tensors
from .compare import Failures, different_bits

Result = tuple[str, torch.Tensor]
Captured = tuple[torch.cuda.CUDAGraph, list[Result]]
MOST_BYTES = 2**32  # of results that are kept at once


def gate() -> torch.cuda.Event:
    """An event that occurs after about 20 ms. Streams that wait for it start together, after their queues have been filled."""
    event = torch.cuda.Event()
    torch.cuda._sleep(40_000_000)
    event.record()
    return event


def half_alike(names: Sequence[str], streams: int, times: int = 1) -> list[list[str]]:
    """An order of calls for each stream, with every name `times` times.

    Half of the streams have the same order. Each stream of the other half starts at another name.
    """
    count = times * len(names)
    return [[names[(n + (7 * k if k % 2 else 0)) % len(names)] for n in range(count)] for k in range(streams)]


def spoil(results: Iterable[Result]) -> None:
    """Fills the results with values that no call returns."""
    for _, result in results:
        result.copy_(tensors.poison(result.shape, result.dtype, result.device))


class Calls:
    """Named functions without arguments that return a tensor.

    The constructor calls each of them alone and stores the results in `sequential`. This also loads the kernels.
    """

    def __init__(self, functions: dict[str, Callable[[], torch.Tensor]]):
        self.functions, self.names = functions, list(functions)
        self.sequential: dict[str, torch.Tensor] = {}
        for name, function in functions.items():
            torch.cuda.synchronize()
            self.sequential[name] = function()
            torch.cuda.synchronize()

    def results(self, names: Iterable[str] | None = None) -> Iterator[Result]:
        """Yields (name, result) pairs of the named calls, or of all. Each call is made when its pair is requested."""
        for name in self.names if names is None else names:
            yield name, self.functions[name]()

    def compare(self, results: Iterable[Result]) -> None:
        """Compares (name, result) pairs with the sequential results."""
        torch.cuda.synchronize()
        failures = Failures()
        for name, got in results:
            with failures.sample(name):
                failures.add(name, different_bits(got, self.sequential[name]))
        failures.check()

    def repeat(self, times: int, names: Sequence[str] | None = None) -> None:
        for _ in range(times):
            self.compare(self.results(names))

    def on_streams(self, orders: Sequence[Sequence[str]], rounds: int, captured: Captured | None = None) -> None:
        """Runs each order of calls on its own stream. All streams start together.

        With a `captured` graph, its results are spoilt before each round, and it is replayed before every call.
        """
        streams = [torch.cuda.Stream() for _ in orders]
        graph, static = captured or (None, [])
        for _ in range(rounds):
            spoil(static)
            results, start = [], gate()
            for stream, order in zip(streams, orders):
                with torch.cuda.stream(stream):
                    stream.wait_event(start)
                    for name in order:
                        if graph is not None:
                            graph.replay()
                        results.append((name, self.functions[name]()))
            self.compare([*static, *results])

    def thinned(self, copies: int) -> list[str]:
        """Every name, or every n-th, so that `copies` results of each take at most MOST_BYTES."""
        size = copies * sum(t.nbytes for t in self.sequential.values())
        return self.names[:: max(1, -(-size // MOST_BYTES))]

    def in_threads(self, threads: int, names: Sequence[str]) -> None:
        """Runs host threads, each with its own stream. Each makes twice as many calls as there are names, with its own stride
        through the names."""
        results, lock, each = [], threading.Lock(), 2 * len(names)

        def run(k):
            with torch.cuda.stream(torch.cuda.Stream()):
                mine = list(self.results(names[n * (k + 1) % len(names)] for n in range(each)))
                torch.cuda.current_stream().synchronize()
            with lock:
                results.extend(mine)

        running = [threading.Thread(target=run, args=(k,)) for k in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert len(results) == threads * each, f"{len(results)} calls were made, expected {threads * each}"
        self.compare(results)

    def captured(self, names: Sequence[str], graph: torch.cuda.CUDAGraph | None = None) -> Captured:
        """Captures a graph of these calls in sequence. Returns it with its (name, result) pairs."""
        graph = torch.cuda.CUDAGraph() if graph is None else graph
        with torch.cuda.graph(graph):
            static = list(self.results(names))
        return graph, static


class Instance:
    """A cudaGraphExec_t, instantiated from a captured graph by the CUDA runtime that torch has loaded."""

    def __init__(self, graph: torch.cuda.CUDAGraph):
        try:
            self._runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
        except OSError as error:
            pytest.skip(f"the CUDA runtime cannot be called: {error}")
        self._handle = ctypes.c_void_p()
        source = ctypes.c_void_p(graph.raw_cuda_graph())
        status = self._runtime.cudaGraphInstantiate(ctypes.byref(self._handle), source, ctypes.c_ulonglong(0))
        assert status == 0, f"cudaGraphInstantiate: error {status}"

    def launch(self, stream: torch.cuda.Stream) -> None:
        status = self._runtime.cudaGraphLaunch(self._handle, ctypes.c_void_p(stream.cuda_stream))
        assert status == 0, f"cudaGraphLaunch: error {status}"

    def destroy(self) -> None:
        assert self._runtime.cudaGraphExecDestroy(self._handle) == 0
