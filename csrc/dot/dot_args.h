// The arguments of the kernels of dot products, and the plans that hold them. Plain host C++, which
// the kernels include.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>

#include "common/dtype.h"
#include "common/index.h"
#include "common/launch_shape.h"

namespace gpuopt::dot {

enum class Target : uint8_t {
  kOut,        // write the result, rounded to the operands' dtype
  kWorkspace,  // write a partial sum for finish_kernel
  kAtomic,     // add the sum, rounded to the operands' dtype, to the result
};

// Arguments of line_kernel. They are few because copying them is part of the time of a small dot
// product.
struct LineArgs {
  const void *self, *tensor;  // [vecs * kVecSize + tail]
  void* to;                   // one result, or [gridDim.x] partial sums
  int64_t vecs;
  uint32_t tail;  // values after the last vector
  Target target;
  bool conjugate_self, conjugate_out;
};

// Arguments of the other kernels. Strides are in elements.
struct Args {
  const void *self, *tensor;           // [rows, size]
  void* to;                            // [rows] results, or [rows, splits] partial sums
  int64_t self_stride, tensor_stride;  // used on path "values" only
  int64_t self_row_stride, tensor_row_stride;
  int64_t rows, size;
  FastDiv splits;
  uint32_t x, y;           // rows per block, threads per row; powers of two
  uint32_t rows_per_lane;  // rows that a thread reads
  Target target;
  bool rows_first;  // neighbouring threads read neighbouring rows
  // Two flags are enough: conj(a) conj(b) = conj(a b), and a conj(b) = conj(conj(a) b).
  bool conjugate_self, conjugate_out;
};

// ---------------------------------------------------------------- Paths

// One row, both operands aligned. One block reads it, or many blocks.
struct LinePlan {
  static constexpr const char* kName = "line";
  LineArgs args = {};
  int unroll = 1;  // vectors of each operand that a thread has in flight
};

// Contiguous rows at any address. Vectors follow self's alignment. If tensor is aligned differently
// (`shifted`), each of its vectors is put together from two aligned ones.
struct RowsPlan {
  static constexpr const char* kName = "rows";
  Args args = {};
  bool shifted = false;
};

// Aligned rows of at most kVecUnroll vectors. Each thread reads several rows.
struct ShortRowsPlan {
  static constexpr const char* kName = "short_rows";
  Args args = {};
};

// Other short rows without gaps between them, or one row for all. A block copies its rows to shared
// memory as one piece.
struct TilePlan {
  static constexpr const char* kName = "tile";
  Args args = {};
};

// Any strides, value by value.
struct ValuesPlan {
  static constexpr const char* kName = "values";
  Args args = {};
};

using Path = std::variant<LinePlan, RowsPlan, ShortRowsPlan, TilePlan, ValuesPlan>;

// ---------------------------------------------------------------- Plans

// Bytes of a sum of values of `item` bytes: f16, bf16 and narrow integers are summed in 32 bits.
constexpr size_t sum_bytes(size_t item) { return item < 4 ? 4 : item; }

// The second launch of split rows. It adds the partial sums of each row.
struct FinishPlan {
  size_t sums_bytes = 0;  // of the workspace: [rows, splits] partial sums
  void* out = nullptr;    // [rows]
  uint32_t splits = 1;
  bool conjugate_out = false;
  LaunchShape launch;
};

struct Plan {
  DType dtype = DType::kFloat32;
  Path path;  // args.to is null if blocks write partial sums
  LaunchShape launch;
  void* zeroed = nullptr;  // the result, if blocks add their sums to it
  std::optional<FinishPlan> finish;
  std::unique_ptr<Plan> rest;  // further rows, if there are too many for one launch
};

}  // namespace gpuopt::dot
