// The CUDA implementation of gpuopt::matmul: 3xTF32 where it is faster than cuBLAS, ATen elsewhere.
#include <ATen/ATen.h>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "matmul/binding/matmul_problem.h"

namespace gpuopt::matmul {
namespace {

// wgmma is an instruction of compute capability 9.0 alone.
bool has_wgmma() {
  static const std::vector<bool> devices = [] {
    std::vector<bool> found;
    for (int device = 0; device < c10::cuda::device_count(); ++device) {
      int major = 0, minor = 0;
      C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
      C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
      found.push_back(major == 9 && minor == 0);
    }
    return found;
  }();
  return devices.at(c10::cuda::current_device());
}

// The product in 3xTF32 of float32 tensors. Undefined if cuBLAS is faster, or if this GPU has none.
Tensor in_three_tf32(const MatmulByPath& op) {
  if (op.self.numel() == 0 || op.other.numel() == 0) return {};
  const c10::cuda::CUDAGuard guard(op.self.device());
  if (!has_wgmma()) return {};
  const Lowered lowered = lower(op.self, op.other);
  const auto problem = problem_of(lowered.a, lowered.b);
  if (!problem.has_value()) return {};
  auto plan = make_plan(*problem, current_device());
  if (!plan.has_value() || !is_faster_than_cublas(*plan, current_device())) return {};
  const Tensor a = readable(lowered.a), b = readable(lowered.b);
  const Tensor out = unfilled(lowered.sizes, op.self.options());
  plan->problem.a = operand_of(a);
  plan->problem.b = operand_of(b);
  plan->problem.out = out.mutable_data_ptr<float>();
  TensorWorkspace workspace;
  check_launch(name_of<Matmul>(), launch(*plan, workspace, c10::cuda::getCurrentCUDAStream()));
  return out;
}

Tensor matmul_cuda(const Matmul& op) {
  check(op);
  check_memory(name_of<Matmul>(), {{"input", op.self}, {"other", op.other}});
  const at::ScalarType dtype = op.self.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(!at::isIntegralType(dtype, /*includeBool=*/true), name_of<Matmul>(),
                              " (CUDA) is not implemented for ", dtype,
                              ": expected input to be floating-point or complex");
  if (op.precision == "3xtf32" && dtype == at::kFloat) {
    if (const Tensor result = in_three_tf32({op.self, op.other}); result.defined()) return result;
  }
  return by_aten(op);
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<Matmul, matmul_cuda>(m);
  impl<MatmulByPath, in_three_tf32>(m);
}

}  // namespace
}  // namespace gpuopt::matmul
