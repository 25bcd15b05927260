// The optimisation ladders of nearest-neighbour upsampling, forward and backward. Sources: for
// "hoisted" and "gather" the kernels in aten/src/ATen/native/cuda/UpSampleNearest2d.cu; for vectors
// Justin Luitjens, "CUDA Pro Tip: Increase Performance with Vectorized Memory Access" (NVIDIA,
// 2013).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"
#include "common/ladder.h"
#include "upsample/upsample_index.h"

namespace gpuopt::upsample {

inline constexpr LadderStep kForwardLadder[] = {
    {"one_an_output",
     "a thread an output value: its index is taken apart by 64-bit divisions, and which input "
     "value it is a copy of is computed anew for each"},
    {"hoisted",
     "a thread takes one place in up to eight planes: where its values come from is the same in "
     "all of them, so only the first takes divisions, and any other an addition"},
    {"vectors_2x",
     "twice the size: a thread loads 8 bytes and stores each value twice in each of two rows, "
     "16 bytes a store, and has no sources to compute"},
    {"production", "gpuopt::upsample_nearest2d, see csrc/upsample/README.md"},
};

inline constexpr LadderStep kBackwardLadder[] = {
    {"atomics",
     "a thread an output gradient, added to that of its source by an atomic operation, after a "
     "pass that writes zeros; in any order, so sums are not repeatable",
     /*repeatable=*/false},
    {"gather",
     "a thread an input pixel: it finds the window of its copies and adds them in a register, in "
     "order, so that each result is written once and by nobody else"},
    {"gather_2x",
     "twice the size: windows are 2 x 2 and need not be found, and a thread loads those of two "
     "pixels at once, 16 bytes of each of two rows"},
    {"production", "gpuopt::upsample_nearest2d_backward, see csrc/upsample/README.md"},
};

// At least one plane. Both sides are contiguous.
struct LadderProblem {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t planes = 0;
  Axis height, width;     // in -> out as the forward has them, in the backward too
  int element_bytes = 4;  // or 2; gradients are f32
};

// A height or width without a scale factor.
inline Axis ladder_axis(int64_t in, int64_t out) {
  return make_axis(in, out, static_cast<float>(in) / static_cast<float>(out), /*exact=*/false);
}

// to[plane, y, x] = from[plane, source(y), source(x)], by any step but the last. "vectors_2x" is
// for axes of factor 2 and memory that is aligned to 16 bytes; its accesses are narrower where rows
// aren't whole vectors.
GPUOPT_EXPORT cudaError_t ladder_forward(int step, const LadderProblem& problem,
                                         cudaStream_t stream);
// to[plane, y, x] = the sum of all from[plane, oy, ox] with source(oy) == y and source(ox) == x.
// "gather_2x" has the limits of "vectors_2x".
GPUOPT_EXPORT cudaError_t ladder_backward(int step, const LadderProblem& problem,
                                          cudaStream_t stream);

}  // namespace gpuopt::upsample
