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
     "one thread per output value. It finds its row and column by 64-bit divisions, and then the "
     "input value that it copies"},
    {"hoisted",
     "a thread copies one position of up to eight planes. The position of the input is the same in "
     "all of them, so only the first plane costs divisions; each other one costs an addition"},
    {"vectors_2x",
     "for twice the size. A thread loads 8 bytes and stores each value twice in each of two rows, "
     "16 bytes per store. No input position has to be computed"},
    {"production", "gpuopt::upsample_nearest2d, see csrc/upsample/README.md"},
};

inline constexpr LadderStep kBackwardLadder[] = {
    {"atomics",
     "one thread per output gradient adds it to the gradient of its input pixel with an atomic "
     "operation, after a pass that writes zeros. The order varies, so sums are not repeatable",
     /*repeatable=*/false},
    {"gather",
     "one thread per input pixel finds the window of its copies and adds their gradients in a "
     "register, in order. Each result is written once, by one thread"},
    {"gather_2x",
     "for twice the size. Windows are 2 x 2 and need no search. A thread loads the windows of two "
     "pixels at once, 16 bytes from each of two rows"},
    {"production", "gpuopt::upsample_nearest2d_backward, see csrc/upsample/README.md"},
};

// A problem with at least one plane. Both tensors are contiguous.
struct LadderProblem {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t planes = 0;
  Axis height, width;     // from the forward's input to its output, also in the backward
  int element_bytes = 4;  // 4 or 2; the backward is f32 only
};

// The axis of a height or width, for calls without a scale factor.
inline Axis ladder_axis(int64_t in, int64_t out) {
  return make_axis(in, out, static_cast<float>(in) / static_cast<float>(out), /*exact=*/false);
}

// to[plane, y, x] = from[plane, source(y), source(x)], by any step except the last. "vectors_2x"
// needs axes of factor 2 and memory that is aligned to 16 bytes. Its accesses are narrower if a row
// is not a whole number of vectors.
GPUOPT_EXPORT cudaError_t ladder_forward(int step, const LadderProblem& problem,
                                         cudaStream_t stream);
// to[plane, y, x] = the sum of all from[plane, oy, ox] with source(oy) == y and source(ox) == x.
// "gather_2x" has the limits of "vectors_2x".
GPUOPT_EXPORT cudaError_t ladder_backward(int step, const LadderProblem& problem,
                                          cudaStream_t stream);

}  // namespace gpuopt::upsample
