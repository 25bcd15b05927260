// The CUDA implementations of gpuopt::dot, vdot, dot_rows and dot_fast_atomic. Each checks its
// arguments, describes them as a Problem, and launches its plan.
#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "binding/cuda_launch.h"
#include "binding/unfilled.h"
#include "dot/binding/dot_check.h"
#include "dot/dot.h"
#include "dot/dot_plan.h"

namespace gpuopt::dot {
namespace {

// Describes a vector as one row.
Operand make_operand(const Tensor& tensor, bool conjugate) {
  Operand operand;
  operand.data = tensor.const_data_ptr();
  operand.stride = tensor.stride(-1);
  operand.row_stride = tensor.dim() == 2 ? tensor.stride(0) : 0;
  operand.conjugate = conjugate;
  return operand;
}

// Whether the kernel conjugates self's stored values. vdot of a conjugated view takes them as they
// are.
template <typename Op>
bool conjugates_self(const Tensor& self) {
  return std::is_same_v<Op, Vdot> ? self.is_complex() && !self.is_conj() : self.is_conj();
}

template <typename Op>
Problem make_problem(const Op& op, const Tensor& out) {
  const char* name = name_of<Op>();
  const auto& [self, other] = op;
  check_memory(name, {{"input", self}, {Op::kOther, other}, {"out", out}});
  Problem problem;
  problem.self = make_operand(self, conjugates_self<Op>(self));
  problem.tensor = make_operand(other, other.is_conj());
  problem.out = out.mutable_data_ptr();
  problem.dtype = to_dtype(name, self.scalar_type());
  problem.rows = self.dim() == 2 ? self.size(0) : 1;
  problem.size = self.size(-1);
  problem.atomic = std::is_same_v<Op, DotFastAtomic>;
  return problem;
}

// Writes the dot product of each row to out. There may be no rows, and rows may be empty. out must
// be contiguous and share no memory with the operands.
template <typename Op>
void dot_into(const Op& op, const Tensor& out) {
  if (out.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(op.self.device());
  if (op.self.numel() == 0) {
    out.zero_();
    return;
  }
  TensorWorkspace workspace;
  const Problem problem = make_problem(op, out);
  record("dot", problem);
  const Plan plan = make_plan(problem, current_device());
  check_launch(name_of<Op>(), launch(plan, workspace, c10::cuda::getCurrentCUDAStream()));
}

template <typename Op>
Tensor dot_cuda(const Op& op) {
  check(op);
  const Tensor out = unfilled(op.self.sizes().slice(0, op.self.dim() - 1), op.self.options());
  dot_into(op, out);
  return out;
}

template <typename Op>
Tensor& dot_out_cuda(const Out<Op>& call) {
  const Op op = checked(call);
  Tensor& out = call.out;
  const bool is_apart = !out.is_conj() && !out.is_alias_of(op.self) && !out.is_alias_of(op.other);
  return write_out(out, {}, is_apart, [&](const Tensor& result) { dot_into(op, result); });
}

Tensor dot_fast_atomic_cuda(const DotFastAtomic& op) {
  check(op);
  at::globalContext().alertNotDeterministic(name_of<DotFastAtomic>());
  // f16 and bf16 are added in aligned pairs, and the result is the first value of a pair.
  const bool half = op.self.element_size() == 2;
  const auto options = op.self.options();
  const Tensor out = half ? unfilled({2}, options).select(0, 0) : unfilled({}, options);
  dot_into(op, out);
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<Dot, dot_cuda<Dot>>(m);
  impl<Out<Dot>, dot_out_cuda<Dot>>(m);
  impl<Vdot, dot_cuda<Vdot>>(m);
  impl<Out<Vdot>, dot_out_cuda<Vdot>>(m);
  impl<DotRows, dot_cuda<DotRows>>(m);
  impl<DotFastAtomic, dot_fast_atomic_cuda>(m);
}

}  // namespace
}  // namespace gpuopt::dot
