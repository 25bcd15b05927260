"""cuSPARSE's product of a sparse and a dense matrix, with descriptors that are made once: what torch.sparse.mm makes in each call."""

from __future__ import annotations

import ctypes
import functools

import torch

from benchmarks.harness.peers import Missing, Peer
from benchmarks.rooms.graphs import PARTS, Structure

DTYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}
INDICES = {torch.int32: 2, torch.int64: 3}
ALG2, ALG3 = 6, 12
ROW_MAJOR = 2
F32 = 0


@functools.lru_cache
def _library() -> tuple[ctypes.CDLL, ctypes.c_void_p]:
    """The library that PyTorch has loaded, and a handle."""
    for version in (12, 13, 11):
        try:
            library = ctypes.CDLL(f"libcusparse.so.{version}")
            break
        except OSError:
            continue
    else:
        raise Missing("there is no libcusparse")
    handle = ctypes.c_void_p()
    _check(library.cusparseCreate(ctypes.byref(handle)))
    return library, handle


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"cuSPARSE returned {status}")


def has_crowded_cells(a: Structure, columns: int) -> bool:
    """Whether there are more entries than cells, so that some cells have several. cuSPARSE refuses such a matrix."""
    return a.index.numel() > (a.ptr.numel() - 1) * columns


class Product:
    """``run()`` writes the product of a matrix and ``dense`` into ``out``. The preprocessing is done here."""

    def __init__(self, a: Structure, value: torch.Tensor, dense: torch.Tensor, algorithm: int, preprocess: bool):
        self.library, handle = _library()
        self.out = dense.new_empty(a.ptr.numel() - 1, dense.shape[1])
        self.kept = a, value, dense
        dtype, index = DTYPES[dense.dtype], INDICES[a.index.dtype]

        def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
            return ctypes.c_void_p(tensor.data_ptr())

        def matrix(tensor: torch.Tensor) -> ctypes.c_void_p:
            made, sizes = ctypes.c_void_p(), map(ctypes.c_int64, (*tensor.shape, tensor.stride(0)))
            _check(self.library.cusparseCreateDnMat(ctypes.byref(made), *sizes, pointer(tensor), dtype, ROW_MAJOR))
            return made

        sparse = ctypes.c_void_p()
        sizes = map(ctypes.c_int64, (self.out.shape[0], dense.shape[0], a.index.numel()))
        parts = map(pointer, (a.ptr, a.index, value))
        _check(self.library.cusparseCreateCsr(ctypes.byref(sparse), *sizes, *parts, index, index, 0, dtype))
        self.factors = ctypes.c_float(1), ctypes.c_float(0)
        one, zero = map(ctypes.byref, self.factors)
        call = (handle, 0, 0, one, sparse, matrix(dense), zero, matrix(self.out), F32, algorithm)
        size = ctypes.c_size_t()
        _check(self.library.cusparseSpMM_bufferSize(*call, ctypes.byref(size)))
        self.buffer = torch.empty(max(size.value, 8), dtype=torch.uint8, device=dense.device)
        self.call = (*call, pointer(self.buffer))
        self.handle = handle
        self._use_stream()
        if preprocess:
            _check(self.library.cusparseSpMM_preprocess(*self.call))

    def _use_stream(self) -> None:
        _check(self.library.cusparseSetStream(self.handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)))

    def run(self) -> torch.Tensor:
        self._use_stream()
        _check(self.library.cusparseSpMM(*self.call))
        return self.out


def _peer(algorithm: int, preprocess: bool):
    def prepare(call, case, setting):
        *parts, value, dense, reduce = case.build("meta", 0)
        if setting.device != "cuda":
            raise Missing("it needs a GPU")
        if reduce != "sum" or dense.dim() != 2 or dense.dtype not in DTYPES:
            raise Missing("cuSPARSE has no such product")
        if has_crowded_cells(Structure(*parts), dense.shape[0]):
            raise Missing("cuSPARSE takes no matrix with more entries than cells")
        ones = None
        if value is None:
            ones = torch.ones(parts[2].numel(), dtype=dense.dtype, device="cuda")
        made: dict[tuple[int, ...], Product] = {}

        def run(*args):
            a, (value, dense, _) = Structure(*args[:PARTS]), args[PARTS:]
            value = ones if value is None else value
            key = tuple(t.data_ptr() for t in (a.ptr, a.index, value, dense))
            if key not in made:
                if torch.cuda.is_current_stream_capturing():
                    raise RuntimeError("descriptors of other operands are not made inside a CUDA graph")
                made.clear()
                made[key] = Product(a, value, dense, algorithm, preprocess)
            return made[key].run()

        return run, ""

    return prepare


# Both algorithms are for row-major operands. ALG3 is deterministic, and its preprocessing makes it faster.
CACHED_ALG2 = Peer("cuSPARSE ALG2", _peer(ALG2, False))
CACHED_ALG3 = Peer("cuSPARSE ALG3", _peer(ALG3, True))
