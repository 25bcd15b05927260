"""Records work of a device and replays it. Everything that talks to CUDA graphs is here.

Tests replace :class:`Cuda` by a backend that runs functions again on the CPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["Backend", "Cuda", "Pool", "Recording"]

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class Recording(Protocol):
    """Recorded work. Its results are in the tensors that the recorded function returned."""

    def replay(self) -> None: ...


class Pool:
    """Memory that several recordings share.

    A replay overwrites what another recording of the pool computed. So at most one forward pass of a pool waits for its backward pass.

    Attributes:
        handle: How the allocators know it.
        keeper: What keeps it between recordings.
        bytes: Its size.
    """

    def __init__(self) -> None:
        self.handle: Any = None
        self.keeper: Any = None
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

    def aside(self) -> contextlib.AbstractContextManager[Any]: ...

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

    def is_ready(self) -> bool:
        """Whether any tensor can be on the device."""
        return torch.cuda.is_initialized()

    def device(self) -> torch.device:
        return torch.device("cuda", torch._C._cuda_getDevice())

    def stream(self) -> int:
        return torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())

    def is_recording(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

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

        An error leaves the generator, the allocators and the current stream as they were.
        """
        if pool.keeper is None:
            # The allocators refuse a pool whose last graph is gone, so an empty graph stays in it.
            pool.handle = torch.cuda.graph_pool_handle()
            pool.keeper, _ = self._record(lambda: None, pool.handle)
        # While work is recorded, the allocator can't give cached memory back to get other memory.
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        recorded = self._record(function, pool.handle)
        pool.bytes += torch.cuda.memory_reserved() - before
        return recorded

    def _record(self, function: Callable[[], Any], handle: Any) -> tuple[torch.cuda.CUDAGraph, Any]:
        graph, stream = torch.cuda.CUDAGraph(), self._side_stream()
        # The seed of graphs is written on this stream. A replay on another stream may still read it.
        torch.cuda.synchronize()
        with torch.cuda.stream(stream), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*graph is empty.*")
            try:
                # Other threads, such as the one that pins memory for a data loader, may call CUDA meanwhile.
                graph.capture_begin(pool=handle, capture_error_mode="thread_local")
                result = function()
                graph.capture_end()
            except BaseException:
                with torch.cuda.stream(stream):
                    _abandon(graph, stream)
                raise
        torch.cuda.current_stream().wait_stream(stream)
        return graph, result

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


def _abandon(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> None:
    """Ends a recording that failed, so that the generator and the allocators know."""
    if not _ends(graph):
        # The host waited for the device, which makes the capture invalid. PyTorch raises an error for it before it tells the generator,
        # which would raise an error at every random number, and the allocators, which would keep the pool. It tells them if a valid
        # capture ends, so the stream begins one, without work.
        ctypes.CDLL("libcuda.so.1").cuStreamBeginCapture_v2(ctypes.c_void_p(stream.cuda_stream), _RELAXED)
        _ends(graph)
    graph.reset()


def _ends(graph: torch.cuda.CUDAGraph) -> bool:
    """Ends the capture of a graph, and returns whether that was done to its end."""
    try:
        graph.capture_end()
    except RuntimeError:
        pass
    try:
        graph.pool()  # raises an error for a graph that isn't captured
    except RuntimeError:
        return False
    return True


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
