// C entry points to the emulated launchers of selective scans, for test_selective_scan.py.
#include "../plan/selective_scan_problem.h"
#include "poisoned_workspace.h"
#include "selective_scan/selective_scan.h"

namespace gpuopt::selective {
// The shared memory that every launch may use, and bytes after it that must not change.
constexpr size_t kSharedBytes = 227 << 10;
alignas(64) uint4 selective_memory[(kSharedBytes + kGuard) / sizeof(uint4)];
}  // namespace gpuopt::selective

using namespace gpuopt;
using namespace gpuopt::selective;

// Limits of plans, which decide whether small problems are split into segments and whether blocks
// take turns with several sets of channels.
extern "C" void set_limits(int64_t unsplit_threads, int64_t part_bytes) {
  Tuning::default_unsplit_threads = unsplit_threads;
  Tuning::default_part_bytes = part_bytes;
  Tuning::default_launch_units = 0;
}

// Runs the forward kernel, and the backward kernel if `with_gradients`. Returns an error, or -1 if
// a kernel wrote past its workspace or its shared memory.
extern "C" int run(const int64_t* given, int64_t sms, int64_t with_gradients) {
  const auto problem = make_problem(given);
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

extern "C" void parts(const int64_t* given, int64_t sms, int64_t* rows, int64_t* blocks) {
  const auto problem = make_problem(given);
  const auto found = selective::parts(problem, Device{static_cast<int>(sms)});
  *rows = found.rows;
  *blocks = found.blocks;
}

// Runs the update of one position.
extern "C" int run_update(const int64_t* given) {
  Update update;
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
  return selective::update(update, nullptr);
}
