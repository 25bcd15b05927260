// C entry points to the emulated products of matmul and to their plans, for test_matmul_kernels.py.
#include "../ladder_shim.h"
#include "matmul/matmul_plan.h"

using namespace gpuopt;
using namespace gpuopt::matmul;

alignas(1024) uint4 matmul_memory[(227 << 10) / sizeof(uint4)];

// `sizes` are batch, m, n, k, and the row, column and batch strides of a and of b.
static Problem problem_of(const void* a, const void* b, void* out, const int64_t* sizes) {
  Problem problem;
  problem.a = {static_cast<const float*>(a), sizes[4], sizes[5], sizes[6]};
  problem.b = {static_cast<const float*>(b), sizes[7], sizes[8], sizes[9]};
  problem.out = static_cast<float*>(out);
  problem.batch = sizes[0];
  problem.m = static_cast<int32_t>(sizes[1]);
  problem.n = static_cast<int32_t>(sizes[2]);
  problem.k = static_cast<int32_t>(sizes[3]);
  return problem;
}

extern "C" int run(const void* a, const void* b, void* out, const int64_t* sizes, int parts) {
  PoisonedBlocks workspace;
  Plan plan{problem_of(a, b, out, sizes), parts, static_cast<int32_t>(sizes[3])};
  if (parts > 1) {
    plan.part_k = ceil_div(ceil_div(plan.problem.k, kSliceK), parts) * kSliceK;
    plan.parts = ceil_div(plan.problem.k, plan.part_k);
  }
  memset(matmul_memory, 0xff, sizeof(matmul_memory));  // NaN
  const cudaError_t error = launch(plan, workspace, nullptr);
  return workspace.intact() ? error : -1;
}

extern "C" bool readable(const void* data, const int64_t* rows_columns_strides) {
  const int64_t* const x = rows_columns_strides;
  return is_readable({static_cast<const float*>(data), x[2], x[3], x[4]}, x[0], x[1]);
}

// The number of parts of the plan, or 0 if cuBLAS is chosen.
extern "C" int parts(const int64_t* sizes, int sms) {
  Device device;
  device.sms = sms;
  const auto plan = make_plan(problem_of(nullptr, nullptr, nullptr, sizes), device);
  return plan.has_value() && is_faster_than_cublas(*plan, device) ? plan->parts : 0;
}
