// Plans an element-wise launch: chooses, from shape, strides, dtypes and alignment, how it walks
// its operands. This is plain host C++, so tests run it without a GPU. The index functions at the
// end also compile for the device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/strided.h"

namespace gpuopt::elementwise {

constexpr int kMaxInputs = 3;
constexpr int kMaxOperands = kMaxInputs + 1;
// ATen's limit for CUDA operands, counted after dimensions have been merged.
constexpr int kMaxDims = 25;

// One operand over the problem's iteration space. Broadcast dimensions have stride 0.
struct Operand {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t strides[kMaxDims] = {};  // in elements, innermost dimension first
};

// Limits between paths, measured on an H100
// (benchmarks/results/nvidia-h100-80gb-hbm3/general-path.jsonl). Tests lower them, to reach every
// path with small problems.
struct Limits {
  // Problems with a smaller output leave most SMs without a tile. x * y.t() of 147 x 147 values in
  // fp32 takes 3.9 us in tiles, 2.0 us value by value.
  int64_t small = 1 << 18;
  // Planes with a shorter side leave most of a tile empty, which has 64 x 64 values, or 128 x 128
  // of 2 bytes. x * y.t() with 8 columns takes twice the time of kGeneral in fp32 and 1.7 to 3.8
  // times in bf16, whatever the number of rows.
  int64_t tile_side = 64;
};

// operands[0] is written, operands[1 .. num_inputs] are read. An input may be the output itself
// (in-place), but must not overlap it in part. No two elements of the output share an address.
struct Problem {
  int num_inputs = 0;
  int num_dims = 0;
  int64_t sizes[kMaxDims] = {};   // innermost dimension first, all positive
  DType dtype = DType::kFloat32;  // inputs are converted to it before the operation
  Operand operands[kMaxOperands];
  Limits limits;
};

// How a launch walks the output. make_plan() chooses the first path in this order that supports the
// problem. kGeneral supports all.
enum class Path : uint8_t {
  // All operands have one type, are dense in the same order and aligned. Each is read or written as
  // one run of 16-byte vectors.
  kVector,
  // Output rows are whole, aligned vectors. Each input supplies the vector at the same position of
  // its own row, or repeats one value along the row. This covers broadcasting in both directions,
  // slices and mixed types.
  kRows,
  // All operands have one type, and some input is contiguous along another dimension than the
  // output. Square tiles of it are transposed through shared memory. Small or narrow problems of
  // this kind take kGeneral.
  kTiled,
  // All operands have one type, and output rows are contiguous. Vectors cross from row to row of a
  // dense output. Rows of other outputs may begin and end with partial vectors. Inputs are read as
  // vectors where possible, otherwise value by value.
  kPacked,
  // Any strides and any mix of types, one value at a time.
  kGeneral,
};

// How kRows reads its inputs.
enum class Access : uint8_t {
  kAligned,    // one type, every row of every input aligned to 16 bytes
  kUnaligned,  // one type, any alignment
  kConverted,  // mixed types, every vector aligned to its size (at most 16 bytes)
};

struct Plan {
  Path path = Path::kGeneral;
  Access access = Access::kAligned;
  int num_dims = 0;
  int64_t sizes[kMaxDims] = {};
  int64_t strides[kMaxOperands][kMaxDims] = {};
  int64_t numel = 1;
  int values_per_vec = 1;
  bool linear[kMaxOperands] = {};  // element i of the iteration space is at data + i
  // kPacked: true if each row is split into vectors by itself, at the output's 16-byte boundaries.
  // False if vectors run on from row to row of a dense output.
  bool by_rows = false;
  uint32_t vecs_per_row = 0;  // kPacked, by_rows: partial vectors included
  int tile_dim = 0;           // kTiled: the dimension along which `turned` inputs are contiguous
  bool turned[kMaxOperands] = {};  // kTiled: inputs that are transposed through shared memory
  // kTiled: true if the output and the transposed inputs are accessed in vectors, false if they are
  // accessed value by value.
  bool packed_tiles = false;
  // kTiled, packed_tiles: inputs that are read along dimension 0 in vectors.
  bool packed_input[kMaxOperands] = {};
};

namespace detail {

// Whether vectors may be accessed from the start of every row along `dim` of operand k. A vector of
// values_per_vec values is aligned to its size, or to 16 bytes if it is larger.
inline bool has_aligned_rows(const Problem& problem, const Plan& plan, int k, int dim) {
  const auto values = static_cast<size_t>(plan.values_per_vec);
  const size_t bytes = size_of(problem.operands[k].dtype) * values;
  if (!is_aligned(problem.operands[k].data, std::min<size_t>(bytes, kAccessBytes))) return false;
  for (int d = 0; d < plan.num_dims; ++d) {
    if (d != dim && plan.strides[k][d] % plan.values_per_vec != 0) return false;
  }
  return true;
}

// Whether kRows supports the problem. If so, sets its access.
inline bool find_rows(const Problem& problem, Plan& plan, bool one_type) {
  if (problem.operands[0].dtype != problem.dtype || plan.strides[0][0] != 1) return false;
  if (plan.num_dims > 1 && plan.sizes[0] % plan.values_per_vec != 0) return false;
  if (!has_aligned_rows(problem, plan, 0, 0)) return false;
  plan.access = one_type ? Access::kAligned : Access::kConverted;
  for (int k = 1; k <= problem.num_inputs; ++k) {
    if (plan.strides[k][0] == 0) continue;
    if (plan.strides[k][0] != 1) return false;
    if (has_aligned_rows(problem, plan, k, 0)) continue;
    if (!one_type) return false;
    plan.access = Access::kUnaligned;
  }
  return true;
}

// A dimension of all operands. An operand that the problem lacks has stride 0.
struct Dim {
  int64_t size = 1;
  int64_t strides[kMaxOperands] = {};

  static constexpr int kStrides = kMaxOperands;
  int64_t stride(int k) const { return strides[k]; }
};

// Merges neighbouring dimensions, which are in order.
inline void merge_dims(const Problem& problem, Plan& plan) {
  const int operands = problem.num_inputs + 1;
  Dim dims[kMaxDims];
  for (int d = 0; d < problem.num_dims; ++d) {
    plan.numel *= dims[d].size = problem.sizes[d];
    for (int k = 0; k < operands; ++k) dims[d].strides[k] = problem.operands[k].strides[d];
  }
  plan.num_dims = merge_neighbours(dims, problem.num_dims);
  for (int d = 0; d < plan.num_dims; ++d) {
    plan.sizes[d] = dims[d].size;
    for (int k = 0; k < operands; ++k) plan.strides[k][d] = dims[d].strides[k];
  }
  if (plan.num_dims == 0) {  // one element
    plan.sizes[0] = 1;
    for (int k = 0; k < operands; ++k) plan.strides[k][0] = 1;
    plan.num_dims = 1;
  }
}

inline bool is_linear(const Plan& plan, int operand) {
  int64_t expected = 1;
  for (int d = 0; d < plan.num_dims; ++d) {
    if (plan.strides[operand][d] != expected) return false;
    expected *= plan.sizes[d];
  }
  return true;
}

// Finds inputs that a warp, walking along dimension 0, would read with a large stride although
// another dimension is contiguous or nearly so. Returns false if there are none, or if tiles would
// be mostly empty.
inline bool find_tiles(const Problem& problem, Plan& plan) {
  // With sides below 8 values most of a tile is empty, and reading value by value is faster.
  constexpr int64_t kMinSide = 8;
  if (plan.strides[0][0] != 1 || plan.sizes[0] < kMinSide) return false;
  const auto values = plan.values_per_vec;
  for (int k = 1; k <= problem.num_inputs; ++k) {
    if (plan.strides[k][0] == 0 || plan.strides[k][0] == 1) continue;
    int best = 0;
    for (int d = 1; d < plan.num_dims; ++d) {
      const bool closer = plan.strides[k][d] != 0 && plan.strides[k][d] < plan.strides[k][best];
      if (closer && plan.sizes[d] >= kMinSide) best = d;
    }
    // A launch has one tile dimension. An input that is contiguous along a different one is read
    // value by value.
    if (best == 0 || (plan.tile_dim != 0 && best != plan.tile_dim)) continue;
    plan.tile_dim = best;
    plan.turned[k] = true;
  }
  if (plan.tile_dim == 0) return false;
  plan.packed_tiles = plan.sizes[0] % values == 0 && plan.sizes[plan.tile_dim] % values == 0;
  for (int k = 0; k <= problem.num_inputs; ++k) {
    const int along = plan.turned[k] ? plan.tile_dim : 0;
    const bool vecs = plan.strides[k][along] == 1 && has_aligned_rows(problem, plan, k, along);
    if (k == 0 || plan.turned[k]) {
      plan.packed_tiles = plan.packed_tiles && vecs;
    } else {
      plan.packed_input[k] = vecs;
    }
  }
  return true;
}

}  // namespace detail

inline Plan make_plan(const Problem& problem) {
  Plan plan;
  const int operands = problem.num_inputs + 1;
  const size_t item = size_of(problem.dtype);
  plan.values_per_vec = static_cast<int>(kAccessBytes / item);
  detail::merge_dims(problem, plan);

  bool one_type = true, vector = true;
  for (int k = 0; k < operands; ++k) {
    const Operand& operand = problem.operands[k];
    plan.linear[k] = detail::is_linear(plan, k);
    one_type = one_type && operand.dtype == problem.dtype;
    vector = vector && plan.linear[k] && is_aligned(operand.data, kAccessBytes);
  }
  if (one_type && vector) {
    plan.path = Path::kVector;
    return plan;
  }
  const bool small = plan.numel < problem.limits.small;
  if (detail::find_rows(problem, plan, one_type)) {
    // In types of 4 bytes and more, vectors that straddle 16-byte boundaries cost more than they
    // save in small problems (measured in fp32).
    if (!small || plan.access != Access::kUnaligned || item < 4) plan.path = Path::kRows;
    return plan;
  }
  if (!one_type) return plan;
  if (detail::find_tiles(problem, plan)) {
    const int64_t side = std::min(plan.sizes[0], plan.sizes[plan.tile_dim]);
    if (!small && side >= problem.limits.tile_side) plan.path = Path::kTiled;
    return plan;
  }
  // In types of 1 and 2 bytes, partial vectors cost more than they save in small problems (measured
  // in bf16).
  if (plan.strides[0][0] != 1 || (small && item <= 2)) return plan;
  // Neighbouring values of a strided input are read best by neighbouring threads if each is in a
  // sector of its own or nearly so (fp32, 28 bytes apart: 43 us by vectors of the output, 27 us).
  // Farther apart, another dimension of the input is usually contiguous.
  for (int k = 1; k <= problem.num_inputs; ++k) {
    const int64_t apart = plan.strides[k][0] * static_cast<int64_t>(item);
    if (apart > 12 && apart <= 32) return plan;
  }
  plan.by_rows = !(plan.linear[0] && is_aligned(problem.operands[0].data, kAccessBytes));
  // A vector that runs on may leave a plane (dimensions 0 and 1) once, not twice.
  const bool small_planes =
      plan.num_dims > 2 && plan.sizes[0] * plan.sizes[1] < plan.values_per_vec;
  if (!plan.by_rows && small_planes) return plan;
  plan.path = Path::kPacked;
  if (plan.by_rows) {
    // A row that starts inside a 16-byte vector may touch one vector more.
    plan.vecs_per_row = static_cast<uint32_t>(
        ceil_div<int64_t>(plan.sizes[0] + plan.values_per_vec - 1, plan.values_per_vec));
  }
  return plan;
}

// Whether the problem is too large for one launch: counts and offsets are 32 bits wide in every
// path except kVector. halve() then splits the problem until each part fits. The parts stay so
// large that the extra launches cost nothing.
inline bool needs_split(const Problem& problem, const Plan& plan) {
  if (plan.path == Path::kVector) return false;
  if (plan.sizes[0] > kMaxIndex32) return true;  // vecs_per_row may have overflowed, too
  // By rows, the number of vectors must fit, partial vectors included.
  const int64_t inner =
      plan.by_rows ? int64_t{plan.vecs_per_row} * plan.values_per_vec : plan.sizes[0];
  if (plan.numel / plan.sizes[0] > kMaxIndex32 / inner) return true;
  for (int k = 0; k <= problem.num_inputs; ++k) {
    int64_t extent = 0;
    for (int d = 0; d < plan.num_dims; ++d) extent += (plan.sizes[d] - 1) * plan.strides[k][d];
    if (extent > kMaxIndex32) return true;
  }
  return false;
}

// Splits along the dimension that reaches farthest in any operand.
inline void halve(const Problem& problem, Problem& first, Problem& second) {
  int widest = 0;
  int64_t reach = -1;
  for (int d = 0; d < problem.num_dims; ++d) {
    for (int k = 0; k <= problem.num_inputs; ++k) {
      const int64_t own = (problem.sizes[d] - 1) * (problem.operands[k].strides[d]);
      if (own > reach) widest = d, reach = own;
    }
  }
  first = second = problem;
  first.sizes[widest] = half_of(problem.sizes[widest]);
  second.sizes[widest] = problem.sizes[widest] - first.sizes[widest];
  for (int k = 0; k <= problem.num_inputs; ++k) {
    const Operand& operand = problem.operands[k];
    second.operands[k].data =
        moved(operand.data, operand.strides[widest] * first.sizes[widest], operand.dtype);
  }
}

// kPacked by rows: the values [begin, end) of a row that lie in its vector number `vec`. The row's
// first value lies `shift` values past a 16-byte boundary. The span may be empty. For shift 3, 4
// values per vector and a row of 9 values:
//
//   16-byte boundaries   |            |            |            |
//   values               |          0 | 1  2  3  4 | 5  6  7  8 |
//   vec                        0            1            2
struct RowSpan {
  uint32_t begin;
  uint32_t end;
};
GPUOPT_HOST_DEVICE RowSpan row_span(uint32_t vec, uint32_t shift, uint32_t values,
                                    uint32_t row_size) {
  const uint32_t from = vec * values, to = from + values;
  const uint32_t begin = from > shift ? from - shift : 0;
  const uint32_t end = to - shift < row_size ? to - shift : row_size;
  return {begin < end ? begin : end, end};
}

// kPacked, running on: the offsets of an operand's values, one after another. step() goes from row
// to row, and at most once into the next plane (dimensions 0 and 1), without branches.
struct RowWalk {
  uint32_t stride, row_stride;
  uint32_t row_size;
  uint32_t left;        // values left in this row, the current one included
  uint32_t rows_left;   // rows left in this plane, the current one included
  uint32_t row;         // the offset of this row's first value
  uint32_t offset;      // the offset of the current value
  uint32_t next_plane;  // the offset of the next plane's first value

  GPUOPT_HOST_DEVICE void step() {
    const bool last = --left == 0;
    rows_left -= last;
    row = last ? (rows_left == 0 ? next_plane : row + row_stride) : row;
    offset = last ? row : offset + stride;
    left = last ? row_size : left;
  }
};

}  // namespace gpuopt::elementwise
