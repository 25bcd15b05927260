// What kernels get: plain structs.
#pragma once

#include <cstdint>

#include "common/activation.h"
#include "common/index.h"

namespace gpuopt::norm {

// Where the rows of an operand begin.
struct RowOffsets {
  FastDiv sizes[2];
  int64_t strides[3] = {};
  bool is_uniform = true;  // one stride

  GPUOPT_HOST_DEVICE int64_t of(uint32_t row) const {
    if (is_uniform) return row * strides[0];
    uint32_t rest = row;
    const int64_t inner = sizes[0].divmod(rest) * strides[0];
    const int64_t middle = sizes[1].divmod(rest) * strides[1];
    return inner + middle + rest * strides[2];
  }
};

// How the threads of a block share rows. A row is read in units, which are accesses of a thread.
struct Tiling {
  FastDiv lanes;        // threads of a row: a power of two up to a warp, or warps
  uint32_t groups = 1;  // rows of a block
  uint32_t rows = 0;    // at most 2^31 - 1
  int64_t length = 0;   // of a row, in values
  int64_t units = 0;    // of a row
};

struct Parameters {
  const void* weight = nullptr;
  const void* bias = nullptr;
  bool is_wide = false;  // float32 beside a half type
  Activation activation = Activation::kNone;
};

struct ForwardArgs {
  const void* input = nullptr;
  const void* residual = nullptr;  // may be null
  void* sum = nullptr;             // of input and residual
  void* out = nullptr;
  void* mean = nullptr;
  void* rstd = nullptr;
  Parameters parameters;
  RowOffsets input_rows, residual_rows;
  Tiling tiling;
  double eps = 0;
  bool is_rms = false;
};

struct BackwardArgs {
  const void* grad = nullptr;
  const void* input = nullptr;
  const void* mean = nullptr;
  const void* rstd = nullptr;
  const void* sum_grad = nullptr;  // added to the gradient of the input. May be null
  void* input_grad = nullptr;
  // [blocks][2][length]: what the rows of a block add to the gradients of weight and bias. May be
  // null.
  void* partials = nullptr;
  bool has_bias = false;  // whether the gradient of the bias is wanted
  Parameters parameters;
  RowOffsets input_rows, grad_rows;
  Tiling tiling;
};

// A long row is read twice by one block, or by some blocks in two launches.
enum class Pass : uint8_t { kBoth, kMeasure, kApply };

struct Parts {
  FastDiv count;         // blocks of a row
  int64_t units = 0;     // of a part
  void* sums = nullptr;  // [rows][count][2], in the compute type. Null for one block
  Pass pass = Pass::kBoth;
};

// The gradients of weight and bias from partial ones, which are added in their order.
struct FinishArgs {
  const void* partials = nullptr;
  void* grads[2] = {};  // of weight and bias. Either may be null
  int64_t count = 0;    // of partials
  int64_t length = 0;
};

}  // namespace gpuopt::norm
