// C entry points to the emulated kernels, for test_norm.py.
#include "../poisoned_workspace.h"
#include "norm/norm.h"

namespace gpuopt::norm {
alignas(16) uint4 staged_memory[((227 << 10) + kGuard) / sizeof(uint4)];
}  // namespace gpuopt::norm

using namespace gpuopt;
using namespace gpuopt::norm;

struct GivenRows {
  int64_t grad, input, residual, sum, sum_grad, mean, rstd, out, weight, bias, weight_grad,
      bias_grad;
  int64_t dtype, weight_dtype, is_rms, length;
  int64_t sizes[3], input_strides[3], other_strides[3];
};

// What a test asserts of a plan.
struct Planned {
  int64_t access, path, lanes, groups, blocks, threads, parts;
};

constexpr int kSharedBytes = 227 << 10;
constexpr int64_t kLongRows = 0;  // otherwise the units of a thread

static Rows rows_of(const GivenRows& given) {
  RowDim dims[3];
  for (int d = 0; d < 3; ++d) {
    dims[d] = {given.sizes[d], given.input_strides[d], given.other_strides[d]};
  }
  Rows rows;
  if (!set_rows(rows, dims, 3, given.length)) abort();
  return rows;
}

static Affine affine_of(const GivenRows& given) {
  return {reinterpret_cast<const void*>(given.weight), reinterpret_cast<const void*>(given.bias),
          static_cast<DType>(given.weight_dtype)};
}

template <typename Args>
static void describe(Planned& planned, const RowsPlan<Args>& path) {
  planned.path = path.slots;
  planned.lanes = path.args.tiling.lanes.divisor;
  planned.groups = path.args.tiling.groups;
  planned.blocks = path.shape.blocks;
  planned.threads = path.shape.threads;
}
template <typename Args>
static void describe(Planned& planned, const LongPlan<Args>& path) {
  planned.path = kLongRows;
  planned.parts = path.parts.count.divisor;
  planned.blocks = path.shape.blocks;
  planned.threads = path.shape.threads;
}

static int finish(cudaError_t error, PoisonedWorkspace& workspace) {
  return error != cudaSuccess ? 1 : workspace.intact() ? 0 : 2;
}

// Both return 0, 1 for an error of a launch, or 2 for a write behind the workspace.
extern "C" int forward(const GivenRows* given, double eps, int sms, int descending,
                       Planned* planned) {
  Forward problem;
  problem.input = reinterpret_cast<const void*>(given->input);
  problem.residual = reinterpret_cast<const void*>(given->residual);
  problem.sum = reinterpret_cast<void*>(given->sum);
  problem.out = reinterpret_cast<void*>(given->out);
  problem.mean = reinterpret_cast<void*>(given->mean);
  problem.rstd = reinterpret_cast<void*>(given->rstd);
  problem.affine = affine_of(*given);
  problem.rows = rows_of(*given);
  problem.dtype = static_cast<DType>(given->dtype);
  problem.eps = eps;
  problem.is_rms = given->is_rms != 0;
  const ForwardPlan plan = norm::plan(problem, Device{sms, kSharedBytes});
  planned->access = static_cast<int64_t>(plan.access);
  std::visit([&](const auto& path) { describe(*planned, path); }, plan.path);
  PoisonedWorkspace workspace(char(0xff));
  emulator::descending = descending != 0;
  return finish(launch(plan, workspace, nullptr), workspace);
}

extern "C" int backward(const GivenRows* given, int sms, int descending, Planned* planned) {
  Backward problem;
  problem.grad = reinterpret_cast<const void*>(given->grad);
  problem.input = reinterpret_cast<const void*>(given->input);
  problem.sum_grad = reinterpret_cast<const void*>(given->sum_grad);
  problem.mean = reinterpret_cast<const void*>(given->mean);
  problem.rstd = reinterpret_cast<const void*>(given->rstd);
  problem.input_grad = reinterpret_cast<void*>(given->out);
  problem.weight_grad = reinterpret_cast<void*>(given->weight_grad);
  problem.bias_grad = reinterpret_cast<void*>(given->bias_grad);
  problem.affine = affine_of(*given);
  problem.rows = rows_of(*given);
  problem.dtype = static_cast<DType>(given->dtype);
  const BackwardPlan plan = norm::plan(problem, Device{sms, kSharedBytes});
  planned->access = static_cast<int64_t>(plan.access);
  if (plan.rows) describe(*planned, *plan.rows);
  if (plan.long_rows) describe(*planned, *plan.long_rows);
  PoisonedWorkspace workspace(char(0xff));
  emulator::descending = descending != 0;
  return finish(launch(plan, workspace, nullptr), workspace);
}

// ---------------------------------------------------------------- group and batch norm

struct GivenChannels {
  int64_t grad, input, mean, rstd, variance, out, weight, bias, weight_grad, bias_grad;
  int64_t given_mean, given_variance, given_dtype;  // running statistics
  int64_t running_mean, running_variance;           // of the dtype of weights, that change
  int64_t dtype, weight_dtype, activation, is_given;
  int64_t samples, channels, positions, groups, is_over_samples, is_channels_last;
};

struct PlannedChannels {
  int64_t values, walking, is_staged, blocks, threads;
};

static Channels channels_of(const GivenChannels& given) {
  return {given.samples,
          given.channels,
          given.positions,
          given.groups,
          given.is_over_samples != 0,
          given.is_channels_last != 0};
}

template <typename Problem>
static void set_channels(Problem& problem, const GivenChannels& given) {
  problem.input = reinterpret_cast<const void*>(given.input);
  problem.affine = {
      reinterpret_cast<const void*>(given.weight), reinterpret_cast<const void*>(given.bias),
      static_cast<DType>(given.weight_dtype), static_cast<Activation>(given.activation)};
  problem.shape = channels_of(given);
  problem.dtype = static_cast<DType>(given.dtype);
}

template <typename Plan>
static int run_channels(const Plan& plan, const LaunchShape& shape, int descending,
                        PlannedChannels* planned) {
  *planned = {plan.is_wide_access, static_cast<int64_t>(plan.walking), plan.staged.has_value(),
              shape.blocks, shape.threads};
  PoisonedWorkspace workspace(char(0xff));
  emulator::descending = descending != 0;
  auto* staged = reinterpret_cast<char*>(staged_memory);
  std::fill_n(staged, sizeof(staged_memory), workspace.poison);
  const int result = finish(launch(plan, workspace, nullptr), workspace);
  const size_t used = plan.staged ? plan.staged->shape.shared_bytes : 0;
  const bool is_intact = is_filled(staged + used, sizeof(staged_memory) - used, workspace.poison);
  return is_intact ? result : 2;
}

extern "C" int forward_channels(const GivenChannels* given, double eps, int sms, int shared_bytes,
                                int descending, PlannedChannels* planned) {
  ChannelForward problem;
  set_channels(problem, *given);
  problem.out = reinterpret_cast<void*>(given->out);
  problem.mean = reinterpret_cast<void*>(given->mean);
  problem.rstd = reinterpret_cast<void*>(given->rstd);
  problem.variance = reinterpret_cast<void*>(given->variance);
  problem.given = {reinterpret_cast<const void*>(given->given_mean),
                   reinterpret_cast<const void*>(given->given_variance),
                   static_cast<DType>(given->given_dtype)};
  problem.running = {reinterpret_cast<void*>(given->running_mean),
                     reinterpret_cast<void*>(given->running_variance),
                     static_cast<DType>(given->weight_dtype), /*momentum=*/0.25};
  problem.eps = eps;
  const ChannelForwardPlan plan = norm::plan(problem, Device{sms, shared_bytes});
  return run_channels(plan, plan.staged ? plan.staged->shape : plan.apply->shape, descending,
                      planned);
}

extern "C" int backward_channels(const GivenChannels* given, int sms, int shared_bytes,
                                 int descending, PlannedChannels* planned) {
  ChannelBackward problem;
  set_channels(problem, *given);
  problem.grad = reinterpret_cast<const void*>(given->grad);
  problem.mean = reinterpret_cast<const void*>(given->mean);
  problem.rstd = reinterpret_cast<const void*>(given->rstd);
  problem.input_grad = reinterpret_cast<void*>(given->out);
  problem.weight_grad = reinterpret_cast<void*>(given->weight_grad);
  problem.bias_grad = reinterpret_cast<void*>(given->bias_grad);
  problem.is_given = given->is_given != 0;
  const ChannelBackwardPlan plan = norm::plan(problem, Device{sms, shared_bytes});
  const LaunchShape shape = plan.staged  ? plan.staged->shape
                            : plan.apply ? plan.apply->shape
                            : plan.sums  ? plan.sums->shape
                                         : LaunchShape{};
  return run_channels(plan, shape, descending, planned);
}
