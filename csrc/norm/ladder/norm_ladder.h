// The optimisation ladders of layer norm, forward and backward. Sources: for "welford" B. P.
// Welford, "Note on a method for calculating corrected sums of squares and products" (1962); for
// "column_tiles" the kernels in aten/src/ATen/native/cuda/layer_norm_kernel.cu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/dtype.h"
#include "common/export.h"
#include "common/ladder.h"
#include "common/workspace.h"

namespace gpuopt::norm {

inline constexpr LadderStep kForwardLadder[] = {
    {"two_passes",
     "a block of threads for each row reads it three times: for the mean, for the squared "
     "deviations from it, and for the result. Sums are trees in shared memory"},
    {"welford",
     "the mean and the squared deviations are corrected value by value, in one pass. So a row is "
     "read twice, but each value costs a division"},
    {"warp_per_row",
     "a warp for each row. Its lanes add up their sums by shuffles, so no warp waits at a barrier "
     "for another one"},
    {"vectors",
     "16 bytes per access. That is a quarter of the loads and stores, or an eighth in bfloat16"},
    {"registers",
     "a row of up to 1024 values is read once and kept in registers, so all of its loads are in "
     "flight together. Two passes over registers are exact and need no division"},
    {"production", "gpuopt::layer_norm, see csrc/norm/README.md"},
};

inline constexpr LadderStep kBackwardLadder[] = {
    {"columns_by_atomics",
     "one kernel has the gradient of the input. Another one adds each value's part of the "
     "gradients of weight and bias with atomic operations. The order varies, so sums are not "
     "repeatable",
     /*repeatable=*/false},
    {"column_tiles",
     "a warp has 32 columns, and its lanes add up a part of their rows in registers. Each part is "
     "written once, and a second launch adds the parts in order"},
    {"partial_sums",
     "one kernel for all gradients, so that operands are read once. Few blocks loop over rows, "
     "where a thread keeps the sums of its columns in registers"},
    {"production", "gpuopt::_layer_norm_backward, see csrc/norm/README.md"},
};

constexpr float kLadderEps = 1e-5f;

// Problems have at least one value, and fewer than 2^31 rows. All operands are contiguous, and of
// one dtype, except that the statistics are float32. T is void outside of kernels.
template <typename T>
struct LadderForward {
  const T* input = nullptr;   // [rows][length]
  const T* weight = nullptr;  // [length]
  const T* bias = nullptr;    // [length]
  T* out = nullptr;           // [rows][length]
  int64_t rows = 0, length = 0;
};

template <typename T>
struct LadderBackward {
  const T* grad = nullptr;      // [rows][length]
  const T* input = nullptr;     // [rows][length]
  const float* mean = nullptr;  // [rows]
  const float* rstd = nullptr;  // [rows]
  const T* weight = nullptr;    // [length]
  T* input_grad = nullptr;      // [rows][length]
  T* weight_grad = nullptr;     // [length]
  T* bias_grad = nullptr;       // [length]
  int64_t rows = 0, length = 0;
};

// Runs any step except the last, in float32 or bfloat16. "vectors" and "registers" read single
// values if not all rows begin at multiples of 16 bytes. Rows of more than 1024 values are too long
// for "registers", and run as "vectors".
GPUOPT_EXPORT cudaError_t ladder_forward(int step, DType dtype, const LadderForward<void>& problem,
                                         cudaStream_t stream);
// Rows of more than 4096 values are too long for "partial_sums", and run as "column_tiles".
GPUOPT_EXPORT cudaError_t ladder_backward(int step, DType dtype, int sms,
                                          const LadderBackward<void>& problem, Workspace& workspace,
                                          cudaStream_t stream);

}  // namespace gpuopt::norm
