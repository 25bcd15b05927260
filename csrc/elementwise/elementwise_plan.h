// Shape, strides, dtypes and alignment -> how an element-wise launch walks its operands.
// Plain host C++ (the index functions also compile for the device): tests run it without a GPU.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/index.h"

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

// operands[0] is written, operands[1 .. num_inputs] are read. Inputs may alias the output exactly
// (in-place) but must not overlap it partially; the output has no two elements at one address.
struct Problem {
  int num_inputs = 0;
  int num_dims = 0;
  int64_t sizes[kMaxDims] = {};  // innermost dimension first, all positive
  DType dtype = DType::kFloat32;  // inputs are converted to it before the operation
  Operand operands[kMaxOperands];
};

constexpr int kAccessBytes = 16;

// How a launch walks the output. Each path takes every problem that the ones before it refuse.
enum class Path : uint8_t {
  // All operands dense in the same order and aligned: straight 16-byte packs.
  kVector,
  // One type; some input is contiguous along another dimension than the output: square tiles that
  // turn through shared memory.
  kTiled,
  // One type, output rows contiguous: one aligned 16-byte pack of the output per thread and step;
  // each input is read as a pack (at any alignment), as one repeated value, or value by value.
  kPacked,
  // Anything: any strides, any mix of types, one value per thread and step.
  kGeneral,
};

struct Plan {
  Path path = Path::kGeneral;
  int num_dims = 0;
  int64_t sizes[kMaxDims] = {};
  int64_t strides[kMaxOperands][kMaxDims] = {};
  int64_t numel = 1;
  int values_per_pack = 1;
  bool linear[kMaxOperands] = {};  // element i of the iteration space is at data + i
  // kPacked: rows of the innermost dimension are walked apart, each cut into packs where the
  // output is aligned; otherwise packs run on from row to row of a dense output.
  bool by_rows = false;
  uint32_t packs_per_row = 0;
  // kTiled
  int tile_dim = 0;                   // the dimension the turned inputs are contiguous along
  bool turned[kMaxOperands] = {};     // inputs that go through shared memory
  bool packed_tiles = false;          // 16-byte accesses in tiles; otherwise value by value
};

namespace detail {

inline bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kAccessBytes == 0;
}

// Drops dimensions of size 1 and merges neighbours that every operand steps through as one.
inline void merge_dims(const Problem& problem, Plan& plan) {
  const int operands = problem.num_inputs + 1;
  for (int d = 0; d < problem.num_dims; ++d) {
    plan.numel *= problem.sizes[d];
    if (problem.sizes[d] == 1) continue;
    const int last = plan.num_dims - 1;
    bool mergeable = last >= 0;
    for (int k = 0; k < operands && mergeable; ++k) {
      mergeable = problem.operands[k].strides[d] == plan.strides[k][last] * plan.sizes[last];
    }
    if (mergeable) {
      plan.sizes[last] *= problem.sizes[d];
      continue;
    }
    plan.sizes[plan.num_dims] = problem.sizes[d];
    for (int k = 0; k < operands; ++k) {
      plan.strides[k][plan.num_dims] = problem.operands[k].strides[d];
    }
    ++plan.num_dims;
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

// Looks for inputs that a warp walking along dimension 0 would read with a stride although another
// dimension is (nearly) contiguous for them. Returns false when there are none.
inline bool find_tiles(const Problem& problem, Plan& plan) {
  // Below 8 values a side most of a tile is empty and reading value by value is faster.
  constexpr int64_t kMinSide = 8;
  if (plan.strides[0][0] != 1 || plan.sizes[0] < kMinSide) return false;
  const auto values = plan.values_per_pack;
  for (int k = 1; k <= problem.num_inputs; ++k) {
    if (plan.strides[k][0] == 0 || plan.strides[k][0] == 1) continue;
    int best = 0;
    for (int d = 1; d < plan.num_dims; ++d) {
      const bool closer = plan.strides[k][d] != 0 && plan.strides[k][d] < plan.strides[k][best];
      if (closer && plan.sizes[d] >= kMinSide) best = d;
    }
    // One tile dimension serves the launch; an input that wants another is read value by value.
    if (best == 0 || (plan.tile_dim != 0 && best != plan.tile_dim)) continue;
    plan.tile_dim = best;
    plan.turned[k] = true;
  }
  if (plan.tile_dim == 0) return false;
  plan.packed_tiles = plan.sizes[0] % values == 0 && plan.sizes[plan.tile_dim] % values == 0;
  for (int k = 0; k <= problem.num_inputs && plan.packed_tiles; ++k) {
    if (k > 0 && !plan.turned[k]) continue;  // read at any alignment
    const int along = plan.turned[k] ? plan.tile_dim : 0;
    plan.packed_tiles = plan.strides[k][along] == 1 && is_aligned(problem.operands[k].data);
    for (int d = 0; d < plan.num_dims && plan.packed_tiles; ++d) {
      plan.packed_tiles = d == along || plan.strides[k][d] % values == 0;
    }
  }
  return true;
}

}  // namespace detail

inline Plan make_plan(const Problem& problem) {
  Plan plan;
  const int operands = problem.num_inputs + 1;
  const size_t item = size_of(problem.dtype);
  plan.values_per_pack = static_cast<int>(kAccessBytes / item);
  detail::merge_dims(problem, plan);

  bool one_type = true, vector = true;
  for (int k = 0; k < operands; ++k) {
    const Operand& operand = problem.operands[k];
    plan.linear[k] = detail::is_linear(plan, k);
    one_type = one_type && operand.dtype == problem.dtype;
    vector = vector && plan.linear[k] && detail::is_aligned(operand.data);
  }
  if (!one_type) return plan;
  if (vector) {
    plan.path = Path::kVector;
    return plan;
  }
  if (detail::find_tiles(problem, plan)) {
    plan.path = Path::kTiled;
    return plan;
  }
  if (plan.strides[0][0] != 1) return plan;
  plan.path = Path::kPacked;
  plan.by_rows = !(plan.linear[0] && detail::is_aligned(problem.operands[0].data));
  if (plan.by_rows) {
    // A row that starts inside a pack may touch one pack more.
    plan.packs_per_row = static_cast<uint32_t>(
        ceil_div<int64_t>(plan.sizes[0] + plan.values_per_pack - 1, plan.values_per_pack));
  }
  return plan;
}

// Index arithmetic is 32 bits wide inside a launch of every path but kVector. Larger problems are
// cut in two along their largest dimension until each part fits: a part has at least 2^30 / 2
// elements, so the extra launches cost nothing that can be measured.
inline bool needs_split(const Plan& plan) {
  if (plan.path == Path::kVector) return false;
  // By rows, the count of packs (with the ragged ends) is what must fit.
  const int64_t inner = plan.by_rows ? int64_t{plan.packs_per_row} * plan.values_per_pack
                                     : plan.sizes[0];
  return plan.numel / plan.sizes[0] > kMaxIndex32 / inner;
}

inline void split(const Problem& problem, Problem& first, Problem& second) {
  int longest = 0;
  for (int d = 1; d < problem.num_dims; ++d) {
    if (problem.sizes[d] >= problem.sizes[longest]) longest = d;
  }
  first = second = problem;
  first.sizes[longest] = problem.sizes[longest] / 2;
  second.sizes[longest] = problem.sizes[longest] - first.sizes[longest];
  for (int k = 0; k <= problem.num_inputs; ++k) {
    const Operand& operand = problem.operands[k];
    second.operands[k].data =
        static_cast<char*>(operand.data) + static_cast<int64_t>(size_of(operand.dtype)) *
                                               operand.strides[longest] * first.sizes[longest];
  }
}

// kPacked by rows: the values [begin, end) of the row that pack number `pack` of it holds, when
// the row's first value lies `shift` values past a 16-byte boundary. May be empty.
struct RowSpan {
  uint32_t begin;
  uint32_t end;
};
GPUOPT_HOST_DEVICE RowSpan row_span(uint32_t pack, uint32_t shift, uint32_t values,
                                    uint32_t row_size) {
  const uint32_t from = pack * values, to = from + values;
  const uint32_t begin = from > shift ? from - shift : 0;
  const uint32_t end = to - shift < row_size ? to - shift : row_size;
  return {begin < end ? begin : end, end};
}

}  // namespace gpuopt::elementwise
