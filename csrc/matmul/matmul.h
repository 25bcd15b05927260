// Products of float32 matrices by three TF32 products (3xTF32), for compute capability 9.0.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"
#include "common/workspace.h"

namespace gpuopt::matmul {

// Matrices of a batch. Strides are in elements.
struct Operand {
  const float* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 0;
  int64_t batch_stride = 0;  // 0 if all products share the matrix
};

// out[i] = a[i] b[i]. The plan reads both operands by bulk copies (is_readable in matmul_plan.h).
struct Problem {
  Operand a;             // [batch][m][k]
  Operand b;             // [batch][k][n]
  float* out = nullptr;  // [batch][m][n], contiguous
  int64_t batch = 1;
  int32_t m = 0;
  int32_t n = 0;
  int32_t k = 0;
};

// The sums of each output are split into parts along k. A second kernel adds them in order.
struct Plan {
  Problem problem;
  int32_t parts = 1;
  int32_t part_k = 0;  // a multiple of kSliceK, or all of k
};

constexpr int32_t kTileSize = 128, kSliceK = 32;  // a tile of outputs, and of k at a time

// Runs on compute capability 9.0 alone. All sizes of the problem are at least 1.
GPUOPT_EXPORT cudaError_t launch(const Plan& plan, Workspace& workspace, cudaStream_t stream);

}  // namespace gpuopt::matmul
