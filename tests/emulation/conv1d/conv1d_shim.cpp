// C entry points to the emulated kernels of convolutions, for conv1d_model.py.
#include <dlfcn.h>

#include "../../plan/conv1d/conv1d_problem.h"
#include "../poisoned_workspace.h"
#include "common/launch.cuh"
#include "conv1d/conv1d.h"

namespace gpuopt::conv1d {
constexpr size_t kMostShared = 227 << 10;
alignas(16) uint4 shared[(kMostShared + kGuard) / sizeof(uint4)];
}  // namespace gpuopt::conv1d

using namespace gpuopt;
using namespace gpuopt::conv1d;

namespace {

constexpr char kPoison = char(0xff);  // NaN: shows reads of unwritten memory

// Poisons shared memory before every block. Bytes behind `block_bytes` must not change.
struct PoisonedShared {
  PoisonedShared() {
    memset(bytes, kPoison, sizeof(shared));
    emulator::before_block = [this] {
      if (blockIdx.x == 0) {
        check();
        memset(bytes, kPoison, block_bytes);
        block_bytes = emulator::shared_bytes;
      }
      memset(bytes, kPoison, block_bytes);
    };
  }
  ~PoisonedShared() { emulator::before_block = nullptr; }
  void check() {
    intact = intact && is_filled(bytes + block_bytes, sizeof(shared) - block_bytes, kPoison);
  }

  char* const bytes = reinterpret_cast<char*>(shared);
  size_t block_bytes = 0;  // bytes of the last block
  bool intact = true;
};

struct NoWorkspace final : Workspace {
  void* allocate(size_t) override { return nullptr; }
  void release() override {}
};

// The symbols of the launched kernels.
std::string kernels_launched() {
  std::string names;
  for (const emulator::Launched& launched : emulator::launched) {
    Dl_info info;
    if (dladdr(launched.kernel, &info) == 0 || info.dli_sname == nullptr) abort();
    names += std::string(" ") + info.dli_sname;
  }
  return names;
}

}  // namespace

extern "C" {

// One line "name threads kernel kernel ..." for each path that supports the problem: the kernels it
// would launch, and their threads in total. Nothing is run.
const char* launches(const int64_t* problem, int pass, const int64_t* device) {
  std::string lines;
  std::vector<unsigned> noted;
  emulator::noted = &noted;
  const Problem read = read_problem(problem);
  for_each_path(read, static_cast<Pass>(pass), read_device(device),
                [&](const auto& path, const Problem&) {
                  NoWorkspace workspace;
                  Plan plan;
                  plan.path = path;
                  plan.dtype = read.dtype;
                  emulator::launched.clear();
                  const bool failed = launch(plan, nullptr, workspace, nullptr) != cudaSuccess;
                  int64_t threads = 0;
                  for (const emulator::Launched& launched : emulator::launched)
                    threads += launched.threads;
                  lines += name_of(path) + (' ' + std::to_string(threads)) + kernels_launched() +
                           (failed ? " failed\n" : "\n");
                });
  emulator::noted = nullptr;
  return answer(lines);
}

// Runs the named path, or the chosen one. Returns "name parts intact kernel kernel ...".
const char* run(const int64_t* problem, int pass_number, const int64_t* device, const char* name,
                void* to) {
  const Problem read = read_problem(problem);
  const auto pass = static_cast<Pass>(pass_number);
  Plan plan = *name == '\0' ? conv1d::plan(read, pass, read_device(device), device[2])
                            : plan_path(read, pass, read_device(device), name);
  // The binding transposes. Here the path without transpositions runs.
  if (plan.through_rows) {
    plan = detail::plan_as_laid(read, pass, read_device(device), device[2]);
  }
  if (plan.is_aten()) return "aten 0 1";
  int parts = 0;
  for (const Plan* part = &plan; part != nullptr; part = part->rest.get()) ++parts;
  emulator::launched.clear();
  PoisonedWorkspace workspace(kPoison);
  PoisonedShared memory;
  const cudaError_t error = launch(plan, to, workspace, nullptr);
  memory.check();
  const bool intact = workspace.intact() && memory.intact && error == cudaSuccess;
  return answer(std::string(plan.name()) + ' ' + std::to_string(parts) + ' ' +
                std::to_string(intact) + kernels_launched());
}

// Runs the fused gradient. The numbers are a problem and the members of the input's gradient as a
// Signal. Null results are not computed. Returns "has_vectors intact kernel kernel ...", or nothing
// if the problem is not supported.
const char* run_fused(const int64_t* problem, const int64_t* result, void* grad_input,
                      void* grad_weight, void* grad_bias) {
  const Problem read = read_problem(problem);
  const Signal to{nullptr, result[1], result[2], result[3], result[4], result[5]};
  const auto plan = FusedPlan::make(read, to);
  if (!plan) return answer("");
  emulator::launched.clear();
  PoisonedWorkspace workspace(kPoison);
  PoisonedShared memory;
  const cudaError_t error =
      launch(*plan, read.dtype, {grad_input, grad_weight, grad_bias}, workspace, nullptr);
  memory.check();
  const bool intact = workspace.intact() && memory.intact && error == cudaSuccess;
  return answer(std::to_string(plan->has_vectors) + ' ' + std::to_string(intact) +
                kernels_launched());
}

// Runs an update. The numbers are in the order of the problem's members. Returns the launched
// kernel.
const char* run_update(const int64_t* numbers) {
  const auto next = [&] { return *numbers++; };
  const auto address = [&] { return reinterpret_cast<void*>(next()); };
  UpdateProblem problem;
  problem.input = address();
  problem.input_batch_stride = next();
  problem.input_stride = next();
  problem.state = address();
  problem.state_batch_stride = next();
  problem.state_channel_stride = next();
  problem.state_stride = next();
  problem.weight = address();
  problem.weight_stride = next();
  problem.tap_stride = next();
  problem.bias = address();
  problem.bias_stride = next();
  problem.out = address();
  problem.dtype = static_cast<DType>(next());
  problem.batch = next();
  problem.channels = next();
  problem.taps = next();
  problem.state_size = next();
  problem.activation = static_cast<Activation>(next());
  emulator::launched.clear();
  return answer(update(problem, nullptr) == cudaSuccess ? kernels_launched() : " failed");
}

}  // extern "C"
