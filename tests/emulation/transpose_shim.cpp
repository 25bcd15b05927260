// C entry points to the emulated transposition and to its plan, for test_transpose_kernels.py.
#include "../plan/transpose_problem.h"
#include "transpose/transpose.h"

using namespace gpuopt;
using namespace gpuopt::transpose;

struct Taken {
  int64_t path, aligned, row_tiles, column_tiles, matrices, blocks;
  int64_t strip_matrices, strip_rows, strip_columns, in_bytes, out_bytes, in_flat, out_flat;
};

extern "C" void plan(const Given* given, Taken* taken) {
  const Plan plan = make_plan(make_problem(*given));
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
  return gpuopt::transpose::transpose(problem, make_plan(problem), nullptr);
}
