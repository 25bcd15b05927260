"""Records work of a device and replays it. Everything that talks to CUDA graphs is here.

Tests replace :class:`Cuda` by a backend that runs functions again on the CPU.
"""

from __future__ import annotations

import contextlib
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["Backend", "Cuda", "Pool", "Recording"]


class Recording(Protocol):
    """Recorded work. Its results are in the tensors that the recorded function returned."""

    def replay(self) -> None: ...


class Pool:
    """Memory that several recordings share.

    A replay overwrites what another recording of the pool computed. So at most one forward pass of a pool waits for its backward pass.
    """

    def __init__(self, handle: Any, device: torch.device) -> None:
        self.handle, self.device = handle, device
        self.bytes = 0
        self._waiting: weakref.ref | None = None

    def waits(self) -> bool:
        """Whether a backward pass still needs what is in the pool."""
        call = self._waiting() if self._waiting is not None else None
        return call is not None and not call.spent

    def wait_for(self, call: Any) -> None:
        """Keeps the pool for a call, until it is spent or nobody holds it."""
        self._waiting = weakref.ref(call)


class Backend(Protocol):
    device_type: str

    def is_ready(self) -> bool: ...

    def device(self) -> torch.device: ...

    def stream(self) -> int: ...

    def is_recording(self) -> bool: ...

    def pool(self) -> Pool: ...

    def aside(self) -> contextlib.AbstractContextManager: ...

    def record(self, function: Callable[[], Any], pool: Pool) -> tuple[Recording, Any]: ...

    def borrowed(self, tensor: Tensor) -> Tensor: ...

    def generator(self) -> torch.Generator: ...

    def synchronize(self) -> None: ...

    def total_memory(self) -> int: ...


class Cuda:
    """CUDA graphs on the current device."""

    device_type = "cuda"

    def __init__(self) -> None:
        self._streams: dict[tuple[int, int], torch.cuda.Stream] = {}
        self._failed: list[torch.cuda.CUDAGraph] = []

    def is_ready(self) -> bool:
        """Whether any tensor can be on the device."""
        return torch.cuda.is_initialized()

    def device(self) -> torch.device:
        return torch.device("cuda", torch._C._cuda_getDevice())

    def stream(self) -> int:
        return torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())

    def is_recording(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def pool(self) -> Pool:
        return Pool(torch.cuda.graph_pool_handle(), self.device())

    def _side_stream(self) -> torch.cuda.Stream:
        """A stream to record on. cuBLAS has a workspace for each, so graphs that run at once on two streams must not share one."""
        key = torch._C._cuda_getDevice(), self.stream()
        if key not in self._streams:
            self._streams[key] = torch.cuda.Stream()
        return self._streams[key]

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """A block on another stream, which the current one waits for. Libraries set themselves up on the stream that is recorded."""
        stream, current = self._side_stream(), torch.cuda.current_stream()
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                yield
        finally:
            current.wait_stream(stream)

    def record(self, function: Callable[[], Any], pool: Pool) -> tuple[Recording, Any]:
        """Records the work that ``function`` starts, in the memory of ``pool``, and returns what it returned.

        An error leaves the generator, the allocator and the current stream as they were.
        """
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # While work is recorded, the allocator can't give cached memory back to get other memory.
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        with torch.cuda.stream(self._side_stream()):
            # Other threads, such as the one that pins memory for a data loader, may call CUDA meanwhile.
            graph.capture_begin(pool=pool.handle, capture_error_mode="thread_local")
            try:
                result = function()
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message=".*graph is empty.*")
                    graph.capture_end()
            except BaseException:
                self._abandon(graph, pool)
                raise
        pool.bytes += torch.cuda.memory_reserved() - before
        return graph, result

    def _abandon(self, graph: torch.cuda.CUDAGraph, pool: Pool) -> None:
        """Ends a recording that failed, on the stream where it began."""
        ended = False
        if self.is_recording():
            with contextlib.suppress(RuntimeError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                graph.capture_end()
                ended = True
        if not ended:
            # capture_end raised an error before it told the allocator, which would give the pool more memory and free none. The use
            # of the pool is only released where the allocator was not told: twice would free memory that other graphs use.
            with contextlib.suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(pool.device.index, pool.handle)
                torch._C._cuda_releasePool(pool.device.index, pool.handle)
        graph.reset()
        if not ended:
            # The allocator of pinned memory can't be told, and asks the graph later whether it is recorded.
            self._failed.append(graph)
            self._repair_generator()

    def _repair_generator(self) -> None:
        """Takes the generator out of the state of being recorded, by a recording that succeeds.

        Otherwise every later random number raises "Offset increment outside graph capture encountered unexpectedly".
        """
        number = torch.zeros(1, device=self.device())
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        number.add_(1)
        graph.capture_end()
        graph.reset()

    def borrowed(self, tensor: Tensor) -> Tensor:
        """The same memory, which the pool may give to other recordings. It is read right after a replay alone."""
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0:
            return tensor
        view = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), tensor.device, storage.nbytes())
        alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return alias.set_(view, tensor.storage_offset(), tensor.shape, tensor.stride())

    def generator(self) -> torch.Generator:
        return torch.cuda.default_generators[torch._C._cuda_getDevice()]

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def total_memory(self) -> int:
        return torch.cuda.get_device_properties(self.device()).total_memory


def seconds(function: Callable[[], Any], backend: Backend, repeats: int = 3) -> float:
    """The shortest time of a call, from the host's start to the device's end."""
    best = float("inf")
    for _ in range(repeats):
        backend.synchronize()
        began = time.perf_counter()
        function()
        backend.synchronize()
        best = min(best, time.perf_counter() - began)
    return best
