// C entry points to the emulated launchers of dot products, for test_dot_kernels.py.
#include "../plan/dot_problem.h"
#include "dot/paths/dot_launch.cuh"
#include "poisoned_workspace.h"

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
  int64_t line_blocks, row_blocks, shifted_blocks, value_blocks, unsplit_vecs, unsplit_values,
      short_row_vecs, tile_row_bytes, tile_bytes, launch_blocks;
};

// Limits that tests lower, because small problems would not reach them.
extern "C" void set_limits(const Limits* limits) {
  Tuning::default_line_blocks = static_cast<int>(limits->line_blocks);
  Tuning::default_row_blocks = static_cast<int>(limits->row_blocks);
  Tuning::default_shifted_blocks = static_cast<int>(limits->shifted_blocks);
  Tuning::default_value_blocks = static_cast<int>(limits->value_blocks);
  Tuning::default_unsplit_vecs = limits->unsplit_vecs;
  Tuning::default_unsplit_values = limits->unsplit_values;
  Tuning::default_short_row_vecs = limits->short_row_vecs;
  Tuning::default_tile_row_bytes = limits->tile_row_bytes;
  Tuning::default_tile_bytes = limits->tile_bytes;
  kMaxIndex32 = limits->launch_blocks;
}

struct Taken {
  int path, shifted, rows_first, y, unroll, splits, workspaces, intact;
};

extern "C" int run(const Given* given, int sms, int atomic, Taken* taken) {
  const Problem problem = make_problem(*given);
  const Device device{sms};
  const Plan plan = make_plan(problem, device, atomic ? atomic_tuning() : Tuning{});
  std::fill_n(reinterpret_cast<char*>(shared), sizeof(shared), kPoison);
  PoisonedWorkspace workspace(kPoison);
  const cudaError_t error = atomic ? dot_fast_atomic(problem, device, nullptr)
                                   : dot::dot(problem, device, workspace, nullptr);
  const auto* guard = reinterpret_cast<const char*>(shared) + sizeof(shared) - kGuard;
  *taken = {static_cast<int>(plan.path),
            plan.shifted,
            plan.rows_first,
            plan.y,
            plan.unroll,
            plan.splits,
            static_cast<int>(workspace.blocks.size()),
            workspace.intact() && is_filled(guard, kGuard, kPoison)};
  return error;
}
