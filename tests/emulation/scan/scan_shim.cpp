// C entry points to the emulated launchers of scans, for test_scan_kernels.py.
#include "../../plan/scan/scan_problem.h"
#include "../limits.h"
#include "../poisoned_workspace.h"
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

extern "C" void reset_limits() {
  tuning = {};
  device = {};
}

extern "C" int set_limit(const char* name, int64_t value) {
  if (std::string_view(name) == "has_clusters") return device.has_clusters = value != 0, 1;
  return sets_limit(tuning, name, value);
}

// Runs a cumulative sum, or a linear recurrence if there is a second input. Returns the plans of
// all launches as JSON, or nullptr if a launch failed or wrote past its workspace. The pointer is
// valid until the next call. Without patience, blocks run from the last one to the first one, so
// that none finds what others publish.
extern "C" const char* run(const Given* given, int64_t shifted) {
  static std::string kept;
  emulator::before_block = nullptr;
  if (tuning.patience == 0) {
    emulator::before_block = [] { blockIdx.x = gridDim.x - 1 - blockIdx.x; };
  }
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
