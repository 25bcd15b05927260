// C entry points to the emulated reduction launchers, for test_reduce_kernels.py.
#include "../plan/reduce_problem.h"
#include "poisoned_workspace.h"
#include "reduce/paths/reduce_launch.cuh"

namespace gpuopt::reduce {
alignas(16) uint4 shared[(227 << 10) / sizeof(uint4)];  // the most per block on sm_90
}

using namespace gpuopt;
using namespace gpuopt::reduce;

// Runs operation `op` and returns its error, or -1 if it wrote past its workspace. Writes the path
// of its plan to *path, and the number of blocks that share an output to *splits.
extern "C" int run(const char* op, double divisor, int num_dims, const int64_t* sizes,
                   const int64_t* in_strides, const int64_t* out_strides, const int* reduced,
                   uint64_t in, uint64_t out, int in_dtype, int dtype, int sms, int* path,
                   int* splits) {
  const Problem problem =
      make_problem(num_dims, sizes, in_strides, out_strides, reduced, in, out, in_dtype, dtype);
  const Device device{sms};
  const Plan plan = make_plan(problem, {true, sizeof(double)}, device);
  *path = static_cast<int>(plan.path);
  *splits = plan.splits;
  PoisonedWorkspace workspace(char(0xcd));
  cudaError_t error;
  switch (op[1]) {
    case 'u':
    case 'e':
      error = sum(problem, divisor, device, workspace, nullptr);
      break;
    case 'a':
      error = max(problem, device, workspace, nullptr);
      break;
    default:
      error = min(problem, device, workspace, nullptr);
  }
  return workspace.intact() ? error : -1;
}

// Makes the arguments of a launch without running it, for large sizes. Returns the plan's units.
extern "C" int64_t prepare(int num_dims, const int64_t* sizes, const int64_t* in_strides,
                           const int64_t* out_strides, const int* reduced, int dtype) {
  const Problem problem =
      make_problem(num_dims, sizes, in_strides, out_strides, reduced, 0, 0, dtype, dtype);
  const Plan plan = make_plan(problem, {true, sizeof(double)}, Device{132});
  return make_args(problem, plan, plan.vecs ? 16 : 1).units;
}
