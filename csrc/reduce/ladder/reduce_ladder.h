// The optimisation ladder of reductions: the sum or the maximum of all values. Steps 0 to 6 are the
// kernels of Mark Harris, "Optimizing Parallel Reduction in CUDA" (NVIDIA, 2007), written as
// today's GPUs need them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/export.h"
#include "common/ladder.h"
#include "common/workspace.h"

namespace gpuopt::reduce {

inline constexpr LadderStep kLadder[] = {
    {"interleaved_modulo",
     "a block of threads combines pairs in shared memory, then pairs of pairs. A remainder tells "
     "which threads have work, so every warp has idle threads"},
    {"interleaved_strided",
     "the first threads of a block have all the work, so whole warps become idle. But the words "
     "that a warp reads lie in the same banks of shared memory"},
    {"sequential",
     "the two values of a pair are half of all values apart. Neighbouring threads read "
     "neighbouring words, in different banks"},
    {"first_add_on_load",
     "each thread loads two values and combines them. In step sequential, half of the threads "
     "only load"},
    {"last_warp_unrolled",
     "one warp combines the last 64 values. It needs no loop, and synchronises itself alone"},
    {"completely_unrolled",
     "the number of threads is a template argument, so no loop is left and no index is computed"},
    {"grid_stride",
     "a grid that fills the GPU once. Each thread combines many values in a register, so two "
     "launches replace a tree of them"},
    {"warp_shuffle",
     "the threads of a warp exchange registers. Shared memory and barriers are left for one value "
     "per warp"},
    {"vectors",
     "16 bytes per load. That is a quarter of the loads, and four times the bytes in flight"},
    {"float_atomic",
     "blocks add their sums to the result with an atomic operation instead of a second launch. "
     "The order varies, so sums are not repeatable",
     /*repeatable=*/false},
    {"last_block_ticket",
     "the last block to finish combines the partial results of all blocks, in order. An atomic "
     "counter tells it that it is the last"},
    {"production", "gpuopt::reduce_sum and reduce_max, see csrc/reduce/README.md"},
};

// The steps of reduce_max. A maximum is exact in any order, so all of them are repeatable.
struct MaxLadder {
  LadderStep steps[sizeof(kLadder) / sizeof(kLadder[0])];
};
constexpr MaxLadder max_ladder() {
  MaxLadder ladder = {};
  for (size_t i = 0; i < sizeof(kLadder) / sizeof(kLadder[0]); ++i) {
    ladder.steps[i] = kLadder[i];
    if (!kLadder[i].repeatable) {
      ladder.steps[i] = {kLadder[i].name,
                         "blocks combine their maxima with the result by an atomic operation "
                         "instead of a second launch"};
    }
  }
  return ladder;
}
inline constexpr MaxLadder kMaxLadder = max_ladder();

struct LadderProblem {
  const float* in = nullptr;
  int64_t size = 0;
  float* out = nullptr;
  int sms = 1;
};

// Reduces `size` values of f32 to one by any step except the last. The sum of no values is 0. From
// "vectors" on, `in` must be aligned to 16 bytes.
GPUOPT_EXPORT cudaError_t ladder_sum(int step, const LadderProblem& problem, Workspace& workspace,
                                     cudaStream_t stream);
// The same for the maximum. It is NaN if any value is, and -inf if there are no values.
GPUOPT_EXPORT cudaError_t ladder_max(int step, const LadderProblem& problem, Workspace& workspace,
                                     cudaStream_t stream);

}  // namespace gpuopt::reduce
