// The optimisation ladder of reductions: the sum or the largest of all values. Steps 0 to 6 are
// those of Mark Harris, "Optimizing Parallel Reduction in CUDA" (NVIDIA, 2007), as they have to be
// written for today's GPUs.
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
     "a block of threads adds pairs in shared memory, then pairs of pairs: who has work is found "
     "by "
     "a remainder, so that idle threads are in every warp"},
    {"interleaved_strided",
     "the first threads of a block have all the work: whole warps become idle, but words that a "
     "warp "
     "reads lie in the same banks of shared memory"},
    {"sequential",
     "partners are half of the values apart: neighbouring threads read neighbouring words, of "
     "different banks"},
    {"first_add_on_load",
     "a thread loads two values and adds them: half of the threads had no work but a load"},
    {"last_warp_unrolled",
     "the last 64 values are one warp's, which waits for its own lanes alone and needs no loop"},
    {"completely_unrolled",
     "the number of threads is a template argument: no loop is left, and no index is computed"},
    {"grid_stride",
     "a grid that fills the GPU once takes all values, many a thread, in registers: two launches "
     "instead of a tree of them"},
    {"warp_shuffle",
     "lanes exchange registers: shared memory and barriers are left for one value a warp"},
    {"vectors", "16 bytes a load: a quarter of the loads, and four times the bytes in flight"},
    {"float_atomic",
     "blocks add what they have to the result by an atomic operation instead of a second launch; "
     "in any order, so sums are not repeatable",
     /*repeatable=*/false},
    {"last_block_ticket",
     "the block that comes last, as an atomic counter tells it, adds what all have left, in order"},
    {"production", "gpuopt::reduce_sum and reduce_max, see csrc/reduce/README.md"},
};

// The same steps, but the largest value is exact in any order.
struct MaxLadder {
  LadderStep steps[sizeof(kLadder) / sizeof(kLadder[0])];
};
constexpr MaxLadder max_ladder() {
  MaxLadder ladder = {};
  for (size_t i = 0; i < sizeof(kLadder) / sizeof(kLadder[0]); ++i) {
    ladder.steps[i] = kLadder[i];
    if (!kLadder[i].repeatable) {
      ladder.steps[i] = {kLadder[i].name,
                         "blocks change the result to the larger of it and what they have by an "
                         "atomic operation instead of a second launch"};
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

// One value of f32 from `size` ones, by any step but the last. An empty sum is 0, and the largest
// of no values -inf. From "vectors" on `in` must be aligned to 16 bytes.
GPUOPT_EXPORT cudaError_t ladder_sum(int step, const LadderProblem& problem, Workspace& workspace,
                                     cudaStream_t stream);
// NaN if any of them is.
GPUOPT_EXPORT cudaError_t ladder_max(int step, const LadderProblem& problem, Workspace& workspace,
                                     cudaStream_t stream);

}  // namespace gpuopt::reduce
