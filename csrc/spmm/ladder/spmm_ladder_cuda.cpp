// The CUDA kernel of gpuopt_ladder::spmm.
#include "binding/ladder_cuda.h"
#include "spmm/binding/spmm_check.h"
#include "spmm/ladder/spmm_ladder.h"

namespace gpuopt::spmm {
namespace {

using at::Tensor;

void check_operands(const LadderCall& call, const Tensor& ptr, const Tensor& index,
                    const TensorOption& value, const Tensor& dense) {
  const char* op = call.op();
  check_ptr(op, ptr);
  check_numbers(op, {"index", index}, ptr, "(entries)", std::nullopt);
  check_device_of(op, {"dense", dense}, {"ptr", ptr});
  TORCH_CHECK(dense.dim() == 2, op,
              ": dense must be (columns, features): expected 2 dimensions, got shape ",
              dense.sizes());
  call.check_operand({"ptr", ptr}, {at::kInt});
  call.check_operand({"index", index}, {at::kInt});
  call.check_operand({"dense", dense}, {at::kFloat, at::kBFloat16});
  if (!is_given(value)) return;
  check_like(op, {"value", *value}, {"dense", dense});
  TORCH_CHECK(value->sizes() == index.sizes(), op,
              ": value must have one number for each entry: expected shape ", index.sizes(),
              ", got ", value->sizes());
  call.check_operand({"value", *value}, {dense.scalar_type()});
}

int64_t l2_bytes() {
  int size = 0;
  C10_CUDA_CHECK(
      cudaDeviceGetAttribute(&size, cudaDevAttrL2CacheSize, c10::cuda::current_device()));
  return size;
}

Tensor spmm_step(const LadderCall& call, const Tensor& ptr, const Tensor& index,
                 const TensorOption& value, const Tensor& dense) {
  check_operands(call, ptr, index, value, dense);
  LadderProblem problem;
  problem.ptr = ptr.const_data_ptr<int32_t>();
  problem.index = index.const_data_ptr<int32_t>();
  problem.value = is_given(value) ? value->const_data_ptr() : nullptr;
  problem.dense = dense.const_data_ptr();
  problem.dtype = to_dtype(call.op(), dense.scalar_type());
  problem.rows = ptr.size(0) - 1;
  problem.columns = dense.size(0);
  problem.entries = index.size(0);
  problem.features = dense.size(1);
  problem.l2_bytes = l2_bytes();
  const Tensor out = at::empty({problem.rows, problem.features}, dense.options());
  problem.out = out.mutable_data_ptr();
  launch_step(call, ladder_spmm, problem);
  return out;
}

Tensor spmm_production(const Tensor& ptr, const Tensor& index, const TensorOption& value,
                       const Tensor& dense) {
  const TensorOption none;
  return gpuopt::call(Spmm{ptr, index, none, value, dense, "sum", none, none, none});
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) { impl_ladder(m, "spmm", spmm_production, spmm_step); }

}  // namespace
}  // namespace gpuopt::spmm
