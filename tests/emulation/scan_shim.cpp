// C entry points to the emulated launchers of scans, for test_scan_kernels.py.
#include "../plan/scan_problem.h"
#include "poisoned_workspace.h"
#include "scan/paths/scan_launch.cuh"

namespace gpuopt::scan {
alignas(16) uint4 scan_tiles[(227 << 10) / sizeof(uint4)];  // shared memory of a block on sm_90
}  // namespace gpuopt::scan

using namespace gpuopt;
using namespace gpuopt::scan;

namespace {

Tuning tuning;
Device device;

}  // namespace

// Limits that tests lower, because small problems would not reach them. Without patience, blocks
// run from the last one to the first one, so that none finds what others publish.
extern "C" void set_limits(int64_t unsplit_tiles, int64_t wide_blocks, int64_t launch_limit,
                           int64_t patience, int64_t has_clusters, int64_t shared_values,
                           int64_t alone_columns, int64_t skewed_rows) {
  tuning.unsplit_tiles = unsplit_tiles;
  tuning.wide_blocks = wide_blocks;
  tuning.launch_limit = launch_limit;
  tuning.patience = static_cast<uint64_t>(patience);
  device.has_clusters = has_clusters != 0;
  emulator::before_block = nullptr;
  if (patience == 0) {
    emulator::before_block = [] { blockIdx.x = gridDim.x - 1 - blockIdx.x; };
  }
  tuning.shared_values = shared_values;
  tuning.alone_columns = alone_columns;
  tuning.skewed_rows = skewed_rows;
  tuning.skewed_values = skewed_rows * tuning.skewed_length;
}

// Runs a cumulative sum, or a linear recurrence if there is a second input. Returns the plans of
// all launches as JSON, or nullptr if a launch failed or wrote past its workspace. The pointer is
// valid until the next call.
extern "C" const char* run(const Given* given, int64_t shifted) {
  static std::string kept;
  const Problem problem = make_problem(*given);
  PoisonedWorkspace workspace(char(0xcd));
  bool intact = true;
  kept = plans_as_json(problem, device, tuning, [&](const Plan& plan) {
    const cudaError_t error = problem.second != nullptr
                                  ? linear_recurrence(plan, shifted != 0, workspace, nullptr)
                                  : cumsum(plan, workspace, nullptr);
    intact = intact && error == cudaSuccess && workspace.intact();
  });
  return intact ? kept.c_str() : nullptr;
}
