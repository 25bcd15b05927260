// The CUDA kernels of transposes.
#include <ATen/ATen.h>

#include "binding/unfilled.h"
#include "spmm/binding/spmm_launch.h"
#include "spmm/binding/spmm_reference.h"
#include "spmm/binding/spmm_transpose.h"

namespace gpuopt::spmm {
namespace {

TransposeProblem problem_of(const Tensor& ptr, const Tensor& index, const TransposedRows& rows) {
  TransposeProblem problem;
  problem.matrix.ptr = ptr.const_data_ptr();
  problem.matrix.index = index.const_data_ptr();
  problem.matrix.is_long = ptr.scalar_type() == at::kLong;
  problem.matrix.rows = ptr.numel() - 1;
  problem.matrix.columns = rows.ptr.numel() - 1;
  problem.matrix.entries = index.numel();
  problem.ptr = rows.ptr.mutable_data_ptr();
  problem.index = rows.index.mutable_data_ptr();
  problem.entry = rows.entry.mutable_data_ptr();
  return problem;
}

void run(const char* op, const TransposeProblem& problem) {
  TensorWorkspace workspace;
  check_launch(
      op, launch(plan(problem, current_device()), workspace, c10::cuda::getCurrentCUDAStream()));
}

Transpose::Result transpose_cuda(const Transpose& op) {
  check(op);
  const c10::cuda::CUDAGuard guard(op.ptr.device());
  const Tensor ptr = op.ptr.contiguous(), index = op.index.contiguous();
  const char* name = name_of<Transpose>();
  check_memory(name, {{"ptr", ptr}, {"index", index}});
  const auto vector = [&](int64_t size) { return unfilled({size}, ptr.options()); };
  const TransposedRows rows{vector(known(op.columns) + 1), vector(index.numel()),
                            vector(index.numel())};
  const TransposeProblem problem = problem_of(ptr, index, rows);
  if (!is_supported(problem)) return transpose_by_aten(op);
  run(name, problem);
  return {rows.ptr, rows.index, rows.entry};
}

Tensor& kept_cuda(const TransposeKept& op) {
  check(op);
  const c10::cuda::CUDAGuard guard(op.ptr.device());
  const Tensor ptr = op.ptr.contiguous(), index = op.index.contiguous();
  const char* name = name_of<TransposeKept>();
  check_memory(name, {{"ptr", ptr}, {"index", index}, {"kept", op.kept}});
  const TransposedRows rows = parts_of(op.kept, index, op.columns);
  const TransposeProblem problem = problem_of(ptr, index, rows);
  if (!is_supported(problem)) {
    const auto [t_ptr, t_index, t_entry] = transpose_by_aten({ptr, index, op.columns});
    rows.ptr.copy_(t_ptr);
    rows.index.copy_(t_index);
    rows.entry.copy_(t_entry);
    return op.kept;
  }
  if (op.is_new) run(name, problem);
  const KeptPlan kept = plan_kept(problem, static_cast<Fingerprint*>(op.kept.mutable_data_ptr()),
                                  reinterpret_cast<int64_t*>(op.changes), current_device());
  const auto stream = c10::cuda::getCurrentCUDAStream();
  check_launch(name, op.is_new ? launch(kept.compare, stream) : launch(kept, stream));
  return op.kept;
}

Tensor& same_cuda(const SameNumbers& op) {
  check(op);
  const c10::cuda::CUDAGuard guard(op.numbers.device());
  const Tensor numbers = op.numbers.contiguous();
  const char* name = name_of<SameNumbers>();
  check_memory(name, {{"numbers", numbers}, {"state", op.state}});
  const bool is_long = numbers.scalar_type() == at::kLong;
  const FingerprintPlan same =
      plan_fingerprint({numbers.const_data_ptr(), nullptr, numbers.numel(), 0, is_long},
                       static_cast<Fingerprint*>(op.state.mutable_data_ptr()),
                       /*must_match=*/true, current_device());
  check_launch(name, launch(same, c10::cuda::getCurrentCUDAStream()));
  return op.state;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<Transpose, transpose_cuda>(m);
  impl<TransposeKept, kept_cuda>(m);
  impl<SameNumbers, same_cuda>(m);
}

}  // namespace
}  // namespace gpuopt::spmm
