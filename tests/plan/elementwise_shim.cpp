// C entry points to the element-wise launch planner, for test_elementwise_plan.py.
#include "elementwise_problem.h"

using namespace gpuopt;
using namespace gpuopt::elementwise;

struct PlanView {
  int64_t path, access, num_dims, numel, values_per_vec, by_rows, vecs_per_row, tile_dim,
      packed_tiles, needs_split;
  int64_t sizes[kMaxDims];
  int64_t strides[kMaxOperands][kMaxDims];
  int64_t linear[kMaxOperands], turned[kMaxOperands], packed_input[kMaxOperands];
};

extern "C" {

// Plans with the limits of tests, or with the real ones.
void set_limits(bool real) { test_limits = real ? Limits() : Limits{.small = 0, .tile_side = 8}; }

void plan(int num_inputs, int num_dims, const int64_t* sizes, const int64_t* strides,
          const int* dtypes, const uint64_t* addresses, int dtype, PlanView* view) {
  const Problem problem =
      make_problem(num_inputs, num_dims, sizes, strides, dtypes, addresses, dtype);
  const Plan made = make_plan(problem);
  *view = {static_cast<int64_t>(made.path),
           static_cast<int64_t>(made.access),
           made.num_dims,
           made.numel,
           made.values_per_vec,
           made.by_rows,
           made.vecs_per_row,
           made.tile_dim,
           made.packed_tiles,
           needs_split(problem, made),
           {},
           {},
           {},
           {},
           {}};
  for (int d = 0; d < made.num_dims; ++d) view->sizes[d] = made.sizes[d];
  for (int k = 0; k <= num_inputs; ++k) {
    for (int d = 0; d < made.num_dims; ++d) view->strides[k][d] = made.strides[k][d];
    view->linear[k] = made.linear[k];
    view->turned[k] = made.turned[k];
    view->packed_input[k] = made.packed_input[k];
  }
}

// The parts that a launch would split the problem into: their number, elements and first addresses.
int parts(int num_inputs, int num_dims, const int64_t* sizes, const int64_t* strides,
          const int* dtypes, const uint64_t* addresses, int dtype, int max_parts, int64_t* numels,
          uint64_t* firsts) {
  Problem pending[64];
  int waiting = 1, count = 0;
  pending[0] = make_problem(num_inputs, num_dims, sizes, strides, dtypes, addresses, dtype);
  while (waiting > 0) {
    const Problem problem = pending[--waiting];
    const Plan made = make_plan(problem);
    if (needs_split(problem, made)) {
      if (waiting + 2 > 64) return -1;
      halve(problem, pending[waiting + 1], pending[waiting]);
      waiting += 2;
      continue;
    }
    if (count == max_parts) return -1;
    numels[count] = made.numel;
    for (int k = 0; k <= num_inputs; ++k) {
      firsts[count * kMaxOperands + k] = reinterpret_cast<uint64_t>(problem.operands[k].data);
    }
    ++count;
  }
  return count;
}

uint32_t fast_div(uint32_t n, uint32_t divisor) { return FastDiv(divisor).div(n); }

void span(uint32_t vec, uint32_t shift, uint32_t values, uint32_t row_size, uint32_t* begin_end) {
  const RowSpan made = row_span(vec, shift, values, row_size);
  begin_end[0] = made.begin;
  begin_end[1] = made.end;
}

// The offsets of `count` values from `index` on, in planes of sizes[0] * sizes[1] values.
void walk(const uint32_t* sizes, const uint32_t* strides, uint32_t index, int count,
          uint32_t* offsets) {
  const uint32_t column = index % sizes[0], row = index / sizes[0];
  const uint32_t row_in_plane = row % sizes[1], plane = row / sizes[1];
  const uint32_t start = plane * strides[2] + row_in_plane * strides[1];
  RowWalk walk{strides[0],
               strides[1],
               sizes[0],
               sizes[0] - column,
               sizes[1] - row_in_plane,
               start,
               start + column * strides[0],
               (plane + 1) * strides[2]};
  for (int i = 0; i < count; ++i) {
    offsets[i] = walk.offset;
    walk.step();
  }
}
}
