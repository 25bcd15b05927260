// C entry points to the emulated transposition, for test_transpose_kernels.py. They tell the plan of a problem too.
#include "../plan/transpose_problem.h"
#include "transpose/transpose.h"

using namespace gpuopt;
using namespace gpuopt::transpose;

struct Taken {
  int64_t tiles, aligned, row_tiles, column_tiles, matrices, blocks;
};

extern "C" void plan(const Given* given, Taken* taken) {
  const Plan plan = make_plan(make_problem(*given));
  *taken = {plan.tiles,        plan.aligned,  plan.row_tiles,
            plan.column_tiles, plan.matrices, plan.blocks};
}

extern "C" int run(const Given* given) {
  emulator::always_fibers = true;
  const Problem problem = make_problem(*given);
  return gpuopt::transpose::transpose(problem, make_plan(problem), nullptr);
}
