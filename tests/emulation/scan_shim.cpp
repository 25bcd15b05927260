// C entry points to the emulated launchers of scans, for test_scan_kernels.py.
#include "../plan/scan_problem.h"
#include "../plan/selective_problem.h"
#include "poisoned_workspace.h"
#include "scan/scan_launch.cuh"
#include "scan/selective/selective.h"

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

// ---------------------------------------------------------------- Selective scans

namespace gpuopt::selective {
// The shared memory that every launch may use, and bytes after it that must not change.
constexpr size_t kSharedBytes = 227 << 10;
alignas(64) uint4 selective_memory[(kSharedBytes + kGuard) / sizeof(uint4)];
}  // namespace gpuopt::selective

// Limits of plans, which decide whether small problems are split into segments and whether blocks
// take turns with several sets of channels.
extern "C" void set_selective_limits(int64_t unsplit_threads, int64_t part_bytes) {
  gpuopt::selective::Tuning::default_unsplit_threads = unsplit_threads;
  gpuopt::selective::Tuning::default_part_bytes = part_bytes;
  gpuopt::selective::Tuning::default_launch_units = 0;
}

// Runs the forward kernel, and the backward kernel if `with_gradients`. Returns an error, or -1 if
// a kernel wrote past its workspace or its shared memory.
extern "C" int run_selective(const int64_t* given, int64_t sms, int64_t with_gradients) {
  using namespace gpuopt::selective;
  const auto problem = gpuopt::selective::make_problem(given);
  const Device device{static_cast<int>(sms), static_cast<int>(kSharedBytes)};
  char* const guard = reinterpret_cast<char*>(selective_memory) + kSharedBytes;
  std::fill_n(reinterpret_cast<char*>(selective_memory), kSharedBytes + kGuard, char(0xcd));
  PoisonedWorkspace workspace(char(0xcd));
  if (!with_gradients) {
    const cudaError_t error = forward(problem, workspace, nullptr);
    return workspace.intact() && is_filled(guard, kGuard, 0xcd) ? error : -1;
  }
  const Gradients gradients = make_gradients(given);
  const cudaError_t error = backward(problem, gradients, device, workspace, nullptr);
  return workspace.intact() && is_filled(guard, kGuard, 0xcd) ? error : -1;
}

extern "C" void selective_parts(const int64_t* given, int64_t sms, int64_t* rows, int64_t* blocks) {
  const auto problem = gpuopt::selective::make_problem(given);
  const auto found = gpuopt::selective::parts(problem, Device{static_cast<int>(sms)});
  *rows = found.rows;
  *blocks = found.blocks;
}

// Runs the update of one position.
extern "C" int run_selective_update(const int64_t* given) {
  gpuopt::selective::Update update;
  for (int64_t* size :
       {&update.batch, &update.heads, &update.channels, &update.states, &update.heads_per_group}) {
    *size = *given++;
  }
  update.softplus = *given++ != 0;
  update.wide = *given++ != 0;
  for (auto* operand : {&update.state, &update.x, &update.dt, &update.A, &update.B, &update.C,
                        &update.D, &update.z, &update.dt_bias, &update.out}) {
    operand->data = reinterpret_cast<void*>(*given++);
    operand->dtype = static_cast<DType>(*given++);
    for (int64_t& stride : operand->strides) stride = *given++;
  }
  return gpuopt::selective::update(update, nullptr);
}
