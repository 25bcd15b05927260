// C entry points to the emulated reduction launchers, for test_reduce_kernels.py.
#include "../plan/reduce_problem.h"
#include "reduce/reduce_launch.cuh"

namespace gpuopt::reduce {
alignas(16) uint4 shared[(227 << 10) / sizeof(uint4)];  // what a block may have on sm_90
}

using namespace gpuopt;
using namespace gpuopt::reduce;

namespace {

// Workspaces are filled with a byte that no sum survives.
struct PoisonedWorkspace final : Workspace {
  void* allocate(size_t bytes) override {
    blocks.emplace_back(bytes + 16, char(0xcd));
    return blocks.back().data() + (-reinterpret_cast<uintptr_t>(blocks.back().data()) & 15);
  }
  std::vector<std::vector<char>> blocks;
};

}  // namespace

// Runs operation `op` and returns its error; *path becomes the path that its plan takes, *splits how
// many blocks share an output.
extern "C" int run(const char* op, double divisor, int num_dims, const int64_t* sizes,
                   const int64_t* in_strides, const int64_t* out_strides, const int* reduced,
                   uint64_t in, uint64_t out, int in_dtype, int dtype, int multiprocessors,
                   int* path, int* splits) {
  const Problem problem =
      make_problem(num_dims, sizes, in_strides, out_strides, reduced, in, out, in_dtype, dtype);
  const Device device{multiprocessors};
  const Plan plan = make_plan(problem, {true, sizeof(double)}, device);
  *path = static_cast<int>(plan.path);
  *splits = plan.splits;
  PoisonedWorkspace workspace;
  switch (op[1]) {
    case 'u':
    case 'e':
      return sum(problem, divisor, device, workspace, nullptr);
    case 'a':
      return max(problem, device, workspace, nullptr);
    default:
      return min(problem, device, workspace, nullptr);
  }
}

// Makes the arguments of a launch, for sizes that are too large to run. Returns the plan's units.
extern "C" int64_t prepare(int num_dims, const int64_t* sizes, const int64_t* in_strides,
                           const int64_t* out_strides, const int* reduced, int dtype) {
  const Problem problem =
      make_problem(num_dims, sizes, in_strides, out_strides, reduced, 0, 0, dtype, dtype);
  const Plan plan = make_plan(problem, {true, sizeof(double)}, Device{132});
  return make_args(problem, plan, plan.packs ? 16 : 1).units;
}
