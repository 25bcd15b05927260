// C entry points to the plans of scans, for test_scan_plan.py.
#include "scan_problem.h"

using namespace gpuopt;
using namespace gpuopt::scan;

struct PlanView {
  int64_t path, values, units, num_outer, rows, dense, chunk_rows, warps, tiles, x, column_tiles,
      blocks, slots, columns, too_large, second_is_one, shifted;
};

namespace {

PlanView view_of(const Plan& plan, int64_t limit) {
  return {static_cast<int64_t>(plan.path),
          plan.values,
          plan.units,
          plan.num_outer,
          plan.rows,
          plan.dense,
          plan.chunk_rows,
          plan.warps,
          plan.tiles,
          plan.x,
          plan.column_tiles,
          plan.blocks,
          plan.slots(),
          plan.column.size,
          is_too_large(plan, limit),
          plan.second_is_one,
          plan.shifted};
}

}  // namespace

extern "C" {

void plan(const Given* given, int64_t values, int64_t units, int64_t limit, PlanView* view) {
  const Kernels kernels{static_cast<int>(values), static_cast<int>(units)};
  *view = view_of(make_plan(make_problem(*given), kernels), limit);
}

// Plans an operator of two inputs.
void plan_two(const Given* given, int64_t values, int64_t limit, PlanView* view) {
  const Kernels kernels{static_cast<int>(values), kVecUnits / 2, kSingleUnits / 2, 2,
                        kColumnRows / 2};
  *view = view_of(make_plan(make_problem(*given), kernels), limit);
}

// Halves a problem. Returns for each part the number of its dimensions, for each of them the size
// and the strides, and the addresses.
void halve_once(const Given* given, int64_t* dims, uint64_t* addresses) {
  Problem parts[2];
  halve(make_problem(*given), parts[0], parts[1]);
  for (int p = 0; p < 2; ++p) {
    *dims++ = parts[p].num_dims;
    for (int d = 0; d < parts[p].num_dims; ++d) {
      const Dim& dim = parts[p].dims[d];
      for (const int64_t value : {dim.size, dim.in_stride, dim.out_stride}) *dims++ = value;
    }
    addresses[2 * p] = reinterpret_cast<uint64_t>(parts[p].in);
    addresses[2 * p + 1] = reinterpret_cast<uint64_t>(parts[p].out);
  }
}

// Halves a problem. Returns the addresses of the second input and the initial values of each part.
void halve_inputs(const Given* given, uint64_t* addresses) {
  Problem parts[2];
  halve(make_problem(*given), parts[0], parts[1]);
  for (const Problem& part : parts) {
    *addresses++ = reinterpret_cast<uint64_t>(part.second);
    *addresses++ = reinterpret_cast<uint64_t>(part.initial);
  }
}
}
