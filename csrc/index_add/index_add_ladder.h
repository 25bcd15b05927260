// The optimisation ladder of index_add: rows of source added to the rows of self that an index
// names, which may repeat. "fast_half_atomic" is PyTorch's fastAtomicAdd
// (aten/src/ATen/native/cuda/KernelUtils.cuh), "vector_reductions" are in the PTX ISA, "red";
// "sorted_segments" is PyTorch's indexing_backward_kernel (aten/src/ATen/native/cuda/Indexing.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/device.h"
#include "common/dtype.h"
#include "common/export.h"
#include "common/ladder.h"
#include "common/workspace.h"

namespace gpuopt::index_add {

inline constexpr LadderStep kLadder[] = {
    {"atomic_per_element",
     "a thread for each float of source finds its row by a division and adds it to self by an "
     "atomic operation: rows may repeat, and sums come in any order",
     /*repeatable=*/false},
    {"half_atomic",
     "the same in float16, half of the bytes: the hardware adds no single half to memory, so "
     "atomicAdd is a loop of compare-and-swap, which starts again whenever another thread was "
     "first",
     /*repeatable=*/false},
    {"fast_half_atomic",
     "a half is added as one side of the aligned pair that it lies in, its neighbour given -0.0: "
     "pairs have an instruction, and no loop is left but at the ends of self",
     /*repeatable=*/false},
    {"half2_pairs",
     "a thread adds both halves of a pair: half of the threads, of the divisions and of the "
     "additions to memory",
     /*repeatable=*/false},
    {"vector_reductions",
     "16 bytes an addition, one instruction from sm_90 on: four floats or eight halves share a "
     "thread, a division and a request to the L2 cache",
     /*repeatable=*/false},
    {"sorted_segments",
     "the index is sorted, so that all that a row of self gets is one warp's: it adds that up in "
     "float32, in order, without atomic operations, and writes the row once"},
    {"production",
     "gpuopt::index_add_ in mode fast, which chooses between these and more, see "
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
};

// By any step but the last. f32 by atomic_per_element, vector_reductions and sorted_segments; f16
// by every step from half_atomic on, and bf16 from fast_half_atomic on. Rows of self and source
// must begin at multiples of 4 bytes for half2_pairs, of 16 for vector_reductions. sorted_segments
// rounds once for every 2^30 entries. An index out of range is asserted against on the device,
// before anything is added for it.
GPUOPT_EXPORT cudaError_t ladder_index_add(int step, const LadderProblem& problem,
                                           const Device& device, Workspace& workspace,
                                           cudaStream_t stream);

}  // namespace gpuopt::index_add
