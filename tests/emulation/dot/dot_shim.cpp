// A C entry point to the emulated launchers of dot products, for test_dot_kernels.py.
#include "../../plan/dot/dot_problem.h"
#include "../poisoned_workspace.h"
#include "common/describe.h"
#include "dot/dot.h"

namespace gpuopt::dot {
// The shared memory that every launch may use, and bytes after it that must not change.
alignas(16) uint4 shared[((48 << 10) + kGuard) / sizeof(uint4)];
}  // namespace gpuopt::dot

using namespace gpuopt;
using namespace gpuopt::dot;

namespace {

constexpr char kPoison = char(0xcd);

}  // namespace

struct Limits {
  int64_t blocks, unsplit, tile_row_bytes, tile_bytes, launch_blocks;
};

// Launches a plan. Its limits are lower than usual, because small problems would not reach them.
// Writes whether the plan has a workspace, and whether its guard and that of shared memory are
// intact. Returns the plan as JSON, which the next call overwrites, or null after an error.
extern "C" const char* run(const Given* given, int sms, const Limits* limits, int* workspaces,
                           int* intact) {
  static std::string json;
  Tuning tuning;
  tuning.blocks = static_cast<int>(limits->blocks);
  tuning.unsplit = limits->unsplit;
  tuning.tile_row_bytes = limits->tile_row_bytes;
  tuning.tile_bytes = limits->tile_bytes;
  tuning.launch_blocks = limits->launch_blocks;
  const Plan plan = make_plan(make_problem(*given), Device{sms}, tuning);
  std::fill_n(reinterpret_cast<char*>(shared), sizeof(shared), kPoison);
  PoisonedWorkspace workspace(kPoison);
  const cudaError_t error = launch(plan, workspace, nullptr);
  const auto* guard = reinterpret_cast<const char*>(shared) + sizeof(shared) - kGuard;
  *workspaces = static_cast<int>(workspace.blocks.size());
  *intact = workspace.intact() && is_filled(guard, kGuard, kPoison);
  json = to_json(plan);
  return error == cudaSuccess ? json.c_str() : nullptr;
}
