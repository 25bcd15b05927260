// C entry points to the emulated kernels, for test_norm.py.
#include "../poisoned_workspace.h"
#include "norm/norm.h"

using namespace gpuopt;
using namespace gpuopt::norm;

struct Given {
  int64_t grad, input, mean, rstd, out, weight, bias, weight_grad, bias_grad;
  int64_t dtype, weight_dtype, is_rms, length;
  int64_t sizes[3], input_strides[3], grad_strides[3];
};

// What a test asserts of a plan.
struct Planned {
  int64_t access, path, lanes, groups, blocks, threads, parts;
};

constexpr int64_t kLongRows = 3;  // the others are a Width

static Rows rows_of(const Given& given) {
  RowDim dims[3];
  for (int d = 0; d < 3; ++d) {
    dims[d] = {given.sizes[d], given.input_strides[d], given.grad_strides[d]};
  }
  Rows rows;
  if (!set_rows(rows, dims, 3, given.length)) abort();
  return rows;
}

static Affine affine_of(const Given& given) {
  return {reinterpret_cast<const void*>(given.weight), reinterpret_cast<const void*>(given.bias),
          static_cast<DType>(given.weight_dtype)};
}

template <typename Args>
static void describe(Planned& planned, const RowsPlan<Args>& path) {
  planned.path = static_cast<int64_t>(path.width);
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
extern "C" int forward(const Given* given, double eps, int sms, int descending, Planned* planned) {
  Forward problem;
  problem.input = reinterpret_cast<const void*>(given->input);
  problem.out = reinterpret_cast<void*>(given->out);
  problem.mean = reinterpret_cast<void*>(given->mean);
  problem.rstd = reinterpret_cast<void*>(given->rstd);
  problem.affine = affine_of(*given);
  problem.rows = rows_of(*given);
  problem.dtype = static_cast<DType>(given->dtype);
  problem.eps = eps;
  problem.is_rms = given->is_rms != 0;
  const ForwardPlan plan = norm::plan(problem, Device{sms});
  planned->access = static_cast<int64_t>(plan.access);
  std::visit([&](const auto& path) { describe(*planned, path); }, plan.path);
  PoisonedWorkspace workspace(char(0xff));
  emulator::descending = descending != 0;
  return finish(launch(plan, workspace, nullptr), workspace);
}

extern "C" int backward(const Given* given, int sms, int descending, Planned* planned) {
  Backward problem;
  problem.grad = reinterpret_cast<const void*>(given->grad);
  problem.input = reinterpret_cast<const void*>(given->input);
  problem.mean = reinterpret_cast<const void*>(given->mean);
  problem.rstd = reinterpret_cast<const void*>(given->rstd);
  problem.input_grad = reinterpret_cast<void*>(given->out);
  problem.weight_grad = reinterpret_cast<void*>(given->weight_grad);
  problem.bias_grad = reinterpret_cast<void*>(given->bias_grad);
  problem.affine = affine_of(*given);
  problem.rows = rows_of(*given);
  problem.dtype = static_cast<DType>(given->dtype);
  const BackwardPlan plan = norm::plan(problem, Device{sms});
  planned->access = static_cast<int64_t>(plan.access);
  if (plan.rows) describe(*planned, *plan.rows);
  if (plan.long_rows) describe(*planned, *plan.long_rows);
  PoisonedWorkspace workspace(char(0xff));
  emulator::descending = descending != 0;
  return finish(launch(plan, workspace, nullptr), workspace);
}
