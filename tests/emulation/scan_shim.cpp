// C entry points to the emulated launchers of scans, for test_scan_kernels.py.
#include "../plan/scan_problem.h"
#include "poisoned_workspace.h"
#include "scan/paths/scan_launch.cuh"

namespace gpuopt::scan {
alignas(16) uint4 scan_tiles[(227 << 10) / sizeof(uint4)];  // shared memory of a block on sm_90
}  // namespace gpuopt::scan

using namespace gpuopt;
using namespace gpuopt::scan;

// Limits that tests lower, because small problems would not reach them.
extern "C" void set_limits(int64_t unsplit_tiles, int64_t wide_blocks, int64_t launch_rows,
                           int64_t patience, int64_t clusters) {
  Tuning::default_unsplit_tiles = unsplit_tiles;
  Tuning::default_wide_blocks = wide_blocks;
  kMaxIndex32 = launch_rows;
  kPatience = patience;
  emulator::has_clusters = clusters != 0;
}

// Runs a linear recurrence, as run() does a cumulative sum.
extern "C" int recur(const Given* given, int64_t shifted, int64_t values, int64_t* path,
                     int64_t* vecs) {
  const Problem problem = make_problem(*given);
  const Kernels kernels{static_cast<int>(values), 2, values == 1 ? 2 : 4, 2, kColumnRows / 2};
  const Plan plan = make_plan(problem, kernels);
  *path = static_cast<int64_t>(plan.path);
  *vecs = plan.values > 1;
  PoisonedWorkspace workspace(char(0xcd));
  const cudaError_t error = linear_recurrence(problem, shifted != 0, workspace, nullptr);
  return workspace.intact() ? error : -1;
}

// Runs a cumulative sum and returns its error, or -1 if it wrote past its workspace. Writes the
// path of its plan to *path, and whether it reads vectors to *vecs. `values` and `units` describe
// the kernels for the dtypes.
extern "C" int run(const Given* given, int64_t values, int64_t units, int64_t* path,
                   int64_t* vecs) {
  const Problem problem = make_problem(*given);
  const Plan plan = make_plan(problem, Kernels{static_cast<int>(values), static_cast<int>(units)});
  *path = static_cast<int64_t>(plan.path);
  *vecs = plan.values > 1;
  PoisonedWorkspace workspace(char(0xcd));
  const cudaError_t error = cumsum(problem, workspace, nullptr);
  return workspace.intact() ? error : -1;
}
