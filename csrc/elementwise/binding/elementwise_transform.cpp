// Element-wise operators under torch.vmap and under functionalization.
#include <ATen/native/TypeProperties.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "binding/functionalize.h"
#include "binding/vmap.h"
#include "elementwise/binding/elementwise_check.h"
#include "elementwise/binding/elementwise_ops.h"

namespace gpuopt::elementwise {
namespace {

using at::Tensor;

// ---------------------------------------------------------------- vmap

// Aligns operands so that their batch dimensions match. A batched scalar has no dimensions to the
// caller and one to the kernel, which can change type promotion. Such operands are cast to the
// dtype to which the caller's operands promote.
std::vector<Tensor> align(const std::vector<Tensor>& logical,
                          const std::vector<VmapLevel::Operand>& operands) {
  int64_t rank = 0;
  for (const auto& operand : operands) rank = std::max(rank, operand.logical_dim());
  std::vector<Tensor> aligned;
  for (const auto& operand : operands) aligned.push_back(operand.aligned(rank));
  const auto dtype = at::native::result_type(logical);
  if (at::native::result_type(aligned) != dtype) {
    for (size_t k = 0; k < operands.size(); ++k) {
      if (operands[k].logical_dim() == 0) aligned[k] = aligned[k].to(dtype);
    }
  }
  return aligned;
}

template <typename Call>
Tensor batched(const std::vector<Tensor>& logical, Call call) {
  const VmapLevel level;
  std::vector<VmapLevel::Operand> operands;
  std::optional<int64_t> batch_dim;  // none if only another level maps over the operands
  for (const Tensor& tensor : logical) {
    operands.push_back(level.unwrap(tensor));
    if (operands.back().batch_dim.has_value()) batch_dim = 0;
  }
  return level.wrap(call(align(logical, operands)), batch_dim);
}

Tensor mul_vmap(const Tensor& self, const Tensor& other) {
  return batched({self, other}, [](const auto& in) { return gpuopt::mul(in[0], in[1]); });
}

Tensor mul_scalar_vmap(const Tensor& self, const at::Scalar& other) {
  // at::result_type dispatches, so it is called before this level is entered.
  const auto dtype = at::result_type(self, known_number(other));
  const VmapLevel level;
  const VmapLevel::Operand operand = level.unwrap(self);
  // A batched scalar must promote like the 0-d tensor that the caller sees.
  const Tensor value = operand.logical_dim() == 0 ? operand.value.to(dtype) : operand.value;
  return level.wrap(gpuopt::mul(value, other), operand.batch_dim);
}

Tensor axpy_vmap(const Tensor& x, const Tensor& y, const at::Scalar& alpha) {
  return batched({x, y}, [&](const auto& in) { return gpuopt::axpy(in[0], in[1], alpha); });
}

Tensor fma_vmap(const Tensor& a, const Tensor& b, const Tensor& c) {
  // The order c, a, b is the one in which the operands promote.
  return batched({c, a, b}, [](const auto& in) { return gpuopt::fma(in[1], in[2], in[0]); });
}

Tensor& mul_inplace_vmap(Tensor& self, const Tensor& other) {
  // at::result_type dispatches, so it is called before this level is entered.
  const auto dtype = at::result_type(self, other);
  const VmapLevel level;
  const VmapLevel::Operand written = level.unwrap(self), factor = level.unwrap(other);
  TORCH_CHECK(written.batch_dim.has_value() || !factor.batch_dim.has_value(),
              "gpuopt::mul_: self must be batched by torch.vmap when other is: expected a self "
              "that vmap maps over, got one shared by all examples");
  TORCH_CHECK(factor.logical_dim() <= written.logical_dim(),
              "gpuopt::mul_: other must broadcast to self's shape: expected at most ",
              written.logical_dim(), " dimensions, got ", factor.logical_dim());
  check_castable("gpuopt::mul_", "self", dtype, self.scalar_type());
  Tensor aligned = factor.aligned(written.logical_dim());
  if (factor.logical_dim() == 0) aligned = aligned.to(dtype);
  Tensor view = written.aligned(written.logical_dim());
  ops::mul_inplace_tensor().call(view, aligned);
  return self;
}

Tensor& mul_inplace_scalar_vmap(Tensor& self, const at::Scalar& other) {
  check_castable("gpuopt::mul_", "self", at::result_type(self, known_number(other)),
                 self.scalar_type());
  const VmapLevel level;
  Tensor value = level.unwrap(self).value;
  ops::mul_inplace_scalar().call(value, other);
  return self;
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  m.impl("mul.Tensor", mul_vmap);
  m.impl("mul.Scalar", mul_scalar_vmap);
  m.impl("mul_.Tensor", mul_inplace_vmap);
  m.impl("mul_.Scalar", mul_inplace_scalar_vmap);
  m.impl("axpy", axpy_vmap);
  m.impl("fma", fma_vmap);
}

// ---------------------------------------------------------------- functionalization

Tensor& mul_inplace_functional(Tensor& self, const Tensor& other) {
  check_inplace("gpuopt::mul_", self, other);
  return functionalize_write(
      "gpuopt::mul_", self, {other},
      [&] { return gpuopt::mul(functional_value(self), functional_value(other)); },
      [&] { ops::mul_inplace_tensor().call(self, other); });
}

Tensor& mul_inplace_scalar_functional(Tensor& self, const at::Scalar& other) {
  check_inplace("gpuopt::mul_", self, other);
  return functionalize_write(
      "gpuopt::mul_", self, {}, [&] { return gpuopt::mul(functional_value(self), other); },
      [&] { ops::mul_inplace_scalar().call(self, other); });
}

Tensor& mul_out_functional(const Tensor& self, const Tensor& other, Tensor& out) {
  check_out("gpuopt::mul", self, other, out);
  return functionalize_write(
      "gpuopt::mul", out, {self, other},
      [&] { return gpuopt::mul(functional_value(self), functional_value(other)); },
      [&] { ops::mul_out().call(self, other, out); });
}

Tensor& mul_scalar_out_functional(const Tensor& self, const at::Scalar& other, Tensor& out) {
  check_out("gpuopt::mul", self, other, out);
  return functionalize_write(
      "gpuopt::mul", out, {self}, [&] { return gpuopt::mul(functional_value(self), other); },
      [&] { ops::mul_scalar_out().call(self, other, out); });
}

TORCH_LIBRARY_IMPL(gpuopt, Functionalize, m) {
  m.impl("mul.out", mul_out_functional);
  m.impl("mul.Scalar_out", mul_scalar_out_functional);
  m.impl("mul_.Tensor", mul_inplace_functional);
  m.impl("mul_.Scalar", mul_inplace_scalar_functional);
}

}  // namespace
}  // namespace gpuopt::elementwise
