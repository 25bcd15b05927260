// The CUDA kernels of transposes.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

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
  TensorWorkspace workspace;
  check_launch(
      name, launch(plan(problem, current_device()), workspace, c10::cuda::getCurrentCUDAStream()));
  return {rows.ptr, rows.index, rows.entry};
}

void refuse_writes(const Tensor& fingerprint, at::TensorList sources) {
  const c10::cuda::CUDAGuard guard(fingerprint.device());
  const Tensor first = sources.front().contiguous(), last = sources.back().contiguous();
  Numbers numbers{first.const_data_ptr(), nullptr, first.numel(), 0,
                  first.scalar_type() == at::kLong};
  if (sources.size() > 1) {
    numbers.second = last.const_data_ptr();
    numbers.second_count = last.numel();
  }
  const FingerprintPlan plan =
      plan_fingerprint(numbers, static_cast<Fingerprint*>(fingerprint.mutable_data_ptr()),
                       /*must_match=*/true, current_device());
  check_launch("gpuopt::_structure_find", launch(plan, c10::cuda::getCurrentCUDAStream()));
}

void update(const KeptTranspose& transpose) {
  const auto& [ptr_, index_, fingerprint, rows, changes] = transpose;
  const c10::cuda::CUDAGuard guard(ptr_.device());
  const Tensor ptr = ptr_.contiguous(), index = index_.contiguous();
  const TransposeProblem problem = problem_of(ptr, index, rows);
  if (!is_supported(problem)) {
    return copy(transpose_by_aten({ptr, index, rows.ptr.numel() - 1}), rows);
  }
  const KeptPlan plan =
      plan_kept(problem, static_cast<Fingerprint*>(fingerprint.mutable_data_ptr()), changes,
                current_device());
  check_launch(name_of<Transpose>(), launch(plan, c10::cuda::getCurrentCUDAStream()));
}

bool is_capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

constexpr StructureKernels kKernels{is_capturing, refuse_writes, update};
[[maybe_unused]] const bool is_set = (structure_kernels[1] = &kKernels, true);

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) { impl<Transpose, transpose_cuda>(m); }

}  // namespace
}  // namespace gpuopt::spmm
