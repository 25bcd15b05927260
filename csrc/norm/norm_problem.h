// What is normalised: the problems of the planner. Plain host C++.
#pragma once

#include <cstdint>

#include "common/activation.h"
#include "common/dtype.h"
#include "common/strided.h"

namespace gpuopt::norm {

constexpr int kMaxRowDims = 3;

// A dimension of the rows, with the strides of two operands: the input, and the gradient of a
// backward pass or the residual of a forward pass.
struct RowDim {
  static constexpr int kStrides = 2;
  int64_t size = 1, input_stride = 0, other_stride = 0;  // in elements
  int64_t stride(int k) const { return k == 0 ? input_stride : other_stride; }
};

// The rows of an operand, fewer than 2^31. A row is what is normalised together: `length` values
// side by side. Rows are numbered in the order of their dimensions, and results have them one after
// the other.
struct Rows {
  int64_t length = 1;
  int64_t count = 1;
  RowDim dims[kMaxRowDims];  // innermost first, merged
};

// One factor and one addend for each position in a row. Either may be missing.
struct Affine {
  const void* weight = nullptr;               // [length]
  const void* bias = nullptr;                 // [length]
  DType dtype = DType::kFloat32;              // of both: the input's, or float32 beside a half type
  Activation activation = Activation::kNone;  // of the result. Rows have none
};

// out = (input - mean) * rstd * weight + bias, with rstd = 1 / sqrt(variance + eps). RMS norm has a
// mean of 0. With a residual, the norm is of the sum of input and residual, which is rounded.
struct Forward {
  const void* input = nullptr;     // [count, length], strided rows
  const void* residual = nullptr;  // [count, length], strided rows. May be null
  void* sum = nullptr;             // [count, length]. Null without a residual
  void* out = nullptr;             // [count, length]
  void* mean = nullptr;            // [count], float32 or float64. May be null
  void* rstd = nullptr;            // [count]. May be null
  Affine affine;
  Rows rows;
  DType dtype = DType::kFloat32;  // float16 to float64
  double eps = 0;
  bool is_rms = false;
};

// The gradients of the input, the weight and the bias.
struct Backward {
  const void* grad = nullptr;      // [count, length], strided rows
  const void* input = nullptr;     // [count, length], strided rows
  const void* sum_grad = nullptr;  // [count, length]: added to input_grad. May be null
  const void* mean = nullptr;      // [count]. Null in RMS norm
  const void* rstd = nullptr;      // [count]
  void* input_grad = nullptr;      // [count, length]. May be null
  void* weight_grad = nullptr;     // [length], of the dtype of `affine`. May be null
  void* bias_grad = nullptr;       // [length]. May be null
  Affine affine;
  Rows rows;
  DType dtype = DType::kFloat32;
};

// Merges dimensions, innermost first, into the rows of a problem. Returns whether the kernels
// support them: otherwise an operand has to be copied.
inline bool set_rows(Rows& rows, RowDim* dims, int count, int64_t length) {
  rows.length = length;
  rows.count = 1;
  for (int d = 0; d < count; ++d) rows.count *= dims[d].size;
  const int left = merge_neighbours(dims, count);
  for (int d = 0; d < kMaxRowDims; ++d) rows.dims[d] = d < left ? dims[d] : RowDim{};
  return left <= kMaxRowDims;
}

}  // namespace gpuopt::norm
