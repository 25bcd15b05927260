// C entry points to the emulated launchers of selective scans, for test_selective_scan.py.
#include "../poisoned_workspace.h"
#include "selective_scan/selective_scan.h"
#include "selective_scan_problem.h"

namespace gpuopt::selective {
// The shared memory that every launch may use, and bytes after it that must not change.
constexpr size_t kSharedBytes = 227 << 10;
alignas(64) uint4 selective_memory[(kSharedBytes + kGuard) / sizeof(uint4)];
}  // namespace gpuopt::selective

using namespace gpuopt;
using namespace gpuopt::selective;

// Limits of plans, which decide whether small problems are split into segments and whether blocks
// take turns with several sets of channels.
static Tuning tuning;
extern "C" void set_limits(int64_t unsplit_threads, int64_t part_bytes) {
  tuning.unsplit_threads = unsplit_threads;
  tuning.part_bytes = part_bytes;
}

// Launches a plan. Returns an error, or -1 if a kernel wrote past its workspace or its shared
// memory.
template <typename Plan>
static int launched(const Plan& plan) {
  char* const guard = reinterpret_cast<char*>(selective_memory) + kSharedBytes;
  std::fill_n(reinterpret_cast<char*>(selective_memory), kSharedBytes + kGuard, char(0xcd));
  PoisonedWorkspace workspace(char(0xcd));
  const cudaError_t error = launch(plan, workspace, nullptr);
  return workspace.intact() && is_filled(guard, kGuard, 0xcd) ? error : -1;
}

extern "C" int run_forward(const int64_t* given) {
  return launched(plan_forward(make_problem(given), tuning));
}

extern "C" int run_backward(const int64_t* given) {
  const Problem problem = make_problem(given);
  const Gradients gradients = make_gradients(given);
  return launched(plan_backward(problem, gradients, tuning));
}

// The numbers of parts of gradients.
extern "C" void parts(const int64_t* given, int64_t* rows, int64_t* blocks) {
  const BackwardPlan plan = plan_backward(make_problem(given), {}, tuning);
  *rows = plan.rows();
  *blocks = plan.parts();
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
  return launch(plan_update(update), nullptr);
}
