// The optimisation ladder of index_add: adds rows of source to the rows of self that an index
// names. A row may be named several times.
//
// Sources: "fast_half_atomic" is PyTorch's fastAtomicAdd
// (aten/src/ATen/native/cuda/KernelUtils.cuh). "vector_reductions" are in the PTX ISA, "red".
// "sorted_segments" is PyTorch's indexing_backward_kernel (aten/src/ATen/native/cuda/Indexing.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/device.h"
#include "common/dtype.h"
#include "common/export.h"
#include "common/ladder.h"
#include "common/workspace.h"
#include "index_add/index_add_tuning.h"

namespace gpuopt::index_add {

inline constexpr LadderStep kLadder[] = {
    {"atomic_per_element",
     "one thread per float of source finds its row by a division and adds the float to self. The "
     "addition is atomic, because rows may repeat, so the order of a sum varies",
     /*repeatable=*/false},
    {"half_atomic",
     "the same in float16, half of the bytes. Hardware cannot add a single half to memory, so "
     "atomicAdd is a compare-and-swap loop, which starts again whenever another thread was first",
     /*repeatable=*/false},
    {"fast_half_atomic",
     "a half is added as one side of the aligned pair that holds it; the other side is -0.0. Pairs "
     "have an instruction, so a loop is left only at the ends of self",
     /*repeatable=*/false},
    {"half2_pairs",
     "a thread adds both halves of a pair. That halves the threads, the divisions and the "
     "additions to memory",
     /*repeatable=*/false},
    {"vector_reductions",
     "16 bytes per addition, one instruction from sm_90 on. Four floats or eight halves share a "
     "thread, a division and a request to the L2 cache",
     /*repeatable=*/false},
    {"sorted_segments",
     "the index is sorted, so one warp has all entries of a row of self. It adds them in float32, "
     "in order and without atomic operations, and writes the row once"},
    {"production",
     "gpuopt::index_add_ in mode fast, which chooses among atomic and sorted methods, see "
     "csrc/index_add/README.md",
     /*repeatable=*/false},
};

// self[index[i]] += source[i] of contiguous self (rows, width) and source (entries, width).
struct LadderProblem {
  void* self = nullptr;
  const void* source = nullptr;
  const int64_t* index = nullptr;
  DType dtype = DType::kFloat32;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t entries = 0;
  Tuning tuning;
};

// Runs any step except the last.
//
// f32: atomic_per_element, vector_reductions, sorted_segments
// f16: every step from half_atomic on
// bf16: every step from fast_half_atomic on
//
// Rows of self and source must begin at multiples of 4 bytes for half2_pairs, of 16 bytes for
// vector_reductions. sorted_segments rounds once per 2^30 entries. A device assertion fails for an
// index out of range, before anything is added for it.
GPUOPT_EXPORT cudaError_t ladder_index_add(int step, const LadderProblem& problem,
                                           const Device& device, Workspace& workspace,
                                           cudaStream_t stream);

}  // namespace gpuopt::index_add
