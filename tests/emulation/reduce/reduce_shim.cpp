// C entry points to the emulated reduction launchers, for test_reduce_kernels.py.
#include "../../plan/reduce/reduce_problem.h"
#include "../poisoned_workspace.h"
#include "reduce/paths/reduce_launch.cuh"

namespace gpuopt::reduce {
alignas(16) uint4 shared[(227 << 10) / sizeof(uint4)];  // the most per block on sm_90
}

using namespace gpuopt;
using namespace gpuopt::reduce;

// Runs operation `op` and returns its error, or -1 if it wrote past its workspace. Writes the path
// of its first launch to *path, and the number of its launches to *launches.
extern "C" int run(const char* op, double divisor, int num_dims, const int64_t* sizes,
                   const int64_t* in_strides, const int64_t* out_strides, const int* reduced,
                   uint64_t in, uint64_t out, int in_dtype, int dtype, int sms,
                   int64_t most_in_launch, const char** path, int* launches) {
  const Operation operation = op[1] == 'a'   ? Operation::kMax
                              : op[1] == 'i' ? Operation::kMin
                                             : Operation::kSum;
  Problem problem = make_problem(operation, num_dims, sizes, in_strides, out_strides, reduced, in,
                                 out, in_dtype, dtype);
  problem.divisor = divisor;
  Tuning tuning;
  tuning.most_in_launch = most_in_launch;
  const Plan plan = make_plan(problem, Device{sms}, tuning);
  *path = path_name(plan.launches[0].path);
  *launches = static_cast<int>(plan.launches.size());
  PoisonedWorkspace workspace(char(0xcd));
  const cudaError_t error = launch(plan, workspace, nullptr);
  return workspace.intact() ? error : -1;
}
