// C entry points to the reduction planner, for test_reduce_plan.py.
#include "reduce_problem.h"

using namespace gpuopt;
using namespace gpuopt::reduce;

struct PlanView {
  int64_t path, vecs, unaligned, packed_out, num_kept, num_reduced, outputs, outer_units,
      inner_units, x, y, z, column_vecs, column_tiles, fold, rows_per_lane, tiles, splits,
      shared_bytes, columns, row_size, too_many_outputs, too_many_units;
};

namespace {

PlanView view_of(const Plan& plan, int64_t limit) {
  return {static_cast<int64_t>(plan.path),
          plan.vecs,
          plan.unaligned,
          plan.packed_out,
          plan.num_kept,
          plan.num_reduced,
          plan.outputs,
          plan.outer_units,
          plan.inner_units,
          plan.x,
          plan.y,
          plan.z,
          plan.column_vecs,
          plan.column_tiles,
          plan.fold,
          plan.rows_per_lane,
          plan.tiles,
          plan.splits,
          static_cast<int64_t>(plan.shared_bytes),
          plan.kept[0].size,
          plan.reduced[0].size,
          has_too_many_outputs(plan, limit),
          has_too_many_units(plan, limit)};
}

}  // namespace

extern "C" {

void plan(int num_dims, const int64_t* sizes, const int64_t* in_strides, const int64_t* out_strides,
          const int* reduced, uint64_t in, uint64_t out, int in_dtype, int dtype, int native,
          int accumulator_bytes, int sms, int64_t limit, PlanView* view) {
  const Problem problem =
      make_problem(num_dims, sizes, in_strides, out_strides, reduced, in, out, in_dtype, dtype);
  const Kernels kernels{native != 0, static_cast<size_t>(accumulator_bytes)};
  *view = view_of(make_plan(problem, kernels, Device{sms}), limit);
}

int64_t slices(int num_dims, const int64_t* sizes, const int64_t* in_strides,
               const int64_t* out_strides, const int* reduced, uint64_t in, uint64_t out,
               int in_dtype, int dtype) {
  return slices_of(
      make_problem(num_dims, sizes, in_strides, out_strides, reduced, in, out, in_dtype, dtype));
}

// Splits a problem once, along a kept or a reduced dimension. Returns the dimensions of both parts
// (their number, and for each the size, the strides and whether it is reduced) and the addresses.
void cut_once(int num_dims, const int64_t* sizes, const int64_t* in_strides,
              const int64_t* out_strides, const int* reduced, uint64_t in, uint64_t out,
              int in_dtype, int dtype, int along_reduced, int64_t* part_dims,
              uint64_t* part_addresses) {
  const Problem problem =
      make_problem(num_dims, sizes, in_strides, out_strides, reduced, in, out, in_dtype, dtype);
  Problem parts[2];
  halve(problem, along_reduced != 0, parts[0], parts[1]);
  for (int p = 0; p < 2; ++p) {
    *part_dims++ = parts[p].num_dims;
    for (int d = 0; d < parts[p].num_dims; ++d) {
      const Dim& dim = parts[p].dims[d];
      for (const int64_t value : {dim.size, dim.in_stride, dim.out_stride, int64_t{dim.reduced}}) {
        *part_dims++ = value;
      }
    }
    part_addresses[2 * p] = reinterpret_cast<uint64_t>(parts[p].in);
    part_addresses[2 * p + 1] = reinterpret_cast<uint64_t>(parts[p].out);
  }
}
}
