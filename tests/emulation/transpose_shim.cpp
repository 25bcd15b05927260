// C entry points to the emulated transposition and to its plan, for test_transpose_kernels.py.
#include "../plan/transpose_problem.h"
#include "transpose/transpose.h"

using namespace gpuopt;
using namespace gpuopt::transpose;

// Limits that small problems reach.
constexpr Limits kTestLimits{.unaligned_tiles = 0, .part_strips = 0};

struct Taken {
  int64_t path, aligned, row_tiles, column_tiles, matrices, blocks;
  int64_t strip_matrices, strip_rows, strip_columns, in_bytes, out_bytes, in_flat, out_flat;
};

// The plan with the limits of tests, or with the real ones.
extern "C" void plan(const Given* given, bool real_limits, Taken* taken) {
  const Plan plan = make_plan(make_problem(*given), real_limits ? Limits() : kTestLimits);
  *taken = {static_cast<int64_t>(plan.path),
            plan.aligned,
            plan.row_tiles,
            plan.column_tiles,
            plan.matrices,
            plan.blocks,
            plan.strip_matrices,
            plan.strip_rows,
            plan.strip_columns,
            plan.in_bytes,
            plan.out_bytes,
            plan.in_flat,
            plan.out_flat};
}

extern "C" int run(const Given* given) {
  emulator::always_fibers = true;
  const Problem problem = make_problem(*given);
  return gpuopt::transpose::transpose(problem, make_plan(problem, kTestLimits), nullptr);
}
