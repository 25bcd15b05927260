// The CUDA implementations of gpuopt::dot, vdot, dot_rows and dot_fast_atomic. Each checks its
// arguments, describes them as a Problem, and calls a launcher.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "dot/binding/dot_check.h"
#include "dot/dot.h"

namespace gpuopt::dot {
namespace {

using at::Tensor;

// Describes a vector as one row.
Operand make_operand(const Tensor& tensor, bool conjugate) {
  Operand operand;
  operand.data = tensor.const_data_ptr();
  operand.stride = tensor.stride(-1);
  operand.row_stride = tensor.dim() == 2 ? tensor.stride(0) : 0;
  operand.conjugate = conjugate;
  return operand;
}

Problem make_problem(const char* op, const Tensor& self, bool conjugate_self, const Tensor& tensor,
                     const Tensor& out) {
  const bool vdot = std::string_view(op) == "gpuopt::vdot";
  check_memory(op, {{"self", self}, {vdot ? "other" : "tensor", tensor}, {"out", out}});
  Problem problem;
  problem.self = make_operand(self, conjugate_self);
  problem.tensor = make_operand(tensor, tensor.is_conj());
  problem.out = out.mutable_data_ptr();
  problem.dtype = to_dtype(op, self.scalar_type());
  problem.rows = self.dim() == 2 ? self.size(0) : 1;
  problem.size = self.size(-1);
  return problem;
}

// Writes the dot product of each row to out. There may be no rows, and rows may be empty. out must
// be contiguous and share no memory with the operands.
void dot_into(const char* op, const Tensor& self, bool conjugate_self, const Tensor& tensor,
              const Tensor& out) {
  if (out.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(self.device());
  if (self.numel() == 0) {
    out.zero_();
    return;
  }
  TensorWorkspace workspace;
  const Problem problem = make_problem(op, self, conjugate_self, tensor, out);
  check_launch(op, dot(problem, Device{sm_count()}, workspace, c10::cuda::getCurrentCUDAStream()));
}

// Writes to out. If out shares memory with an operand, the result is computed first and then
// copied.
void dot_to_out(const char* op, const Tensor& self, bool conjugate_self, const Tensor& tensor,
                Tensor& out) {
  if (!out.is_conj() && !out.is_alias_of(self) && !out.is_alias_of(tensor)) {
    at::native::resize_output(out, {});
    dot_into(op, self, conjugate_self, tensor, out);
    return;
  }
  const Tensor result = unfilled({}, self.options());
  dot_into(op, self, conjugate_self, tensor, result);
  at::native::resize_output(out, {});
  out.copy_(result);
}

// Whether the kernel conjugates self's stored values in vdot. The values of a conjugated view are
// not conjugated a second time.
bool conjugates_self(const Tensor& self) { return self.is_complex() && !self.is_conj(); }

Tensor dot_cuda(const Tensor& self, const Tensor& tensor) {
  check_dot(self, tensor);
  const Tensor out = unfilled({}, self.options());
  dot_into("gpuopt::dot", self, self.is_conj(), tensor, out);
  return out;
}

Tensor& dot_out_cuda(const Tensor& self, const Tensor& tensor, Tensor& out) {
  check_dot_out(self, tensor, out);
  dot_to_out("gpuopt::dot", self, self.is_conj(), tensor, out);
  return out;
}

Tensor vdot_cuda(const Tensor& self, const Tensor& other) {
  check_vdot(self, other);
  const Tensor out = unfilled({}, self.options());
  dot_into("gpuopt::vdot", self, conjugates_self(self), other, out);
  return out;
}

Tensor& vdot_out_cuda(const Tensor& self, const Tensor& other, Tensor& out) {
  check_vdot_out(self, other, out);
  dot_to_out("gpuopt::vdot", self, conjugates_self(self), other, out);
  return out;
}

Tensor dot_rows_cuda(const Tensor& self, const Tensor& tensor) {
  check_dot_rows(self, tensor);
  const Tensor out = unfilled({self.size(0)}, self.options());
  dot_into("gpuopt::dot_rows", self, self.is_conj(), tensor, out);
  return out;
}

Tensor dot_fast_atomic_cuda(const Tensor& self, const Tensor& tensor) {
  constexpr const char* op = "gpuopt::dot_fast_atomic";
  check_dot_fast_atomic(self, tensor);
  at::globalContext().alertNotDeterministic(op);
  const c10::cuda::CUDAGuard guard(self.device());
  // f16 and bf16 are added in aligned pairs, and the result is the first value of a pair.
  const bool half = self.element_size() == 2;
  const Tensor out =
      half ? unfilled({2}, self.options()).select(0, 0) : unfilled({}, self.options());
  if (self.numel() == 0) return out.zero_();
  const Problem problem = make_problem(op, self, /*conjugate_self=*/false, tensor, out);
  check_launch(op, dot_fast_atomic(problem, Device{sm_count()}, c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  m.impl("dot", dot_cuda);
  m.impl("dot.out", dot_out_cuda);
  m.impl("vdot", vdot_cuda);
  m.impl("vdot.out", vdot_out_cuda);
  m.impl("dot_rows", dot_rows_cuda);
  m.impl("dot_fast_atomic", dot_fast_atomic_cuda);
}

}  // namespace
}  // namespace gpuopt::dot
