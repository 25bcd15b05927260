// Element-wise operators under torch.vmap and under functionalization.
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/result_type_native.h>

#include <algorithm>

#include "binding/vmap.h"
#include "binding/writing.h"
#include "elementwise/binding/elementwise_check.h"

namespace gpuopt::elementwise {
namespace {

using at::Tensor;

// Aligns operands so that their batch dimensions match. A batched scalar has no dimensions to the
// caller and one to the kernel, which can change type promotion. Such operands are cast to the
// dtype to which the caller's operands promote.
template <typename Op>
Tensor on_examples(const Op& op, const VmapLevel& level, const c10::SymInt&) {
  auto values = in_atens_order(op);
  const auto dtype = at::native::result_type(values);
  int64_t rank = 0;
  for (Tensor& value : values) {
    const VmapLevel::Operand operand = level.unwrap(value);
    rank = std::max(rank, operand.logical_dim());
    value = operand.value;
  }
  const bool casts = at::native::result_type(values) != dtype;
  const auto align = [&](const Tensor& tensor) {
    const Tensor aligned = level.unwrap(tensor).aligned(rank);
    return casts && tensor.dim() == 0 ? aligned.to(dtype) : aligned;
  };
  return level.wrap(call_mapped(op, align), 0);
}

template <>
Tensor on_examples(const MulScalar& op, const VmapLevel& level, const c10::SymInt&) {
  // at::result_type would dispatch, and this level is entered already.
  const auto dtype = at::native::result_type(op.self, known_number(op.other));
  const VmapLevel::Operand operand = level.unwrap(op.self);
  // A batched scalar must promote like the 0-d tensor that the caller sees.
  const Tensor value = operand.logical_dim() == 0 ? operand.value.to(dtype) : operand.value;
  return level.wrap(gpuopt::mul(value, op.other), operand.batch_dim);
}

Tensor& mul_inplace_vmap(const Inplace<MulTensor>& call) {
  const char* op = name_of<Inplace<MulTensor>>();
  const auto& [self, other] = call.in;
  // at::result_type dispatches, so it is called before this level is entered.
  const auto dtype = at::result_type(self, other);
  const VmapLevel level;
  const VmapLevel::Operand written = level.unwrap(self), factor = level.unwrap(other);
  TORCH_CHECK(written.batch_dim.has_value() || !factor.batch_dim.has_value(), op,
              ": input must be batched by torch.vmap when other is: expected an input "
              "that vmap maps over, got one shared by all examples");
  TORCH_CHECK(factor.logical_dim() <= written.logical_dim(), op,
              ": other must broadcast to input's shape: expected at most ", written.logical_dim(),
              " dimensions, got ", factor.logical_dim());
  check_castable(op, "input", dtype, self.scalar_type());
  Tensor aligned = factor.aligned(written.logical_dim());
  if (factor.logical_dim() == 0) aligned = aligned.to(dtype);
  Tensor view = written.aligned(written.logical_dim());
  handle<Inplace<MulTensor>>().call(view, aligned);
  return call.self;
}

Tensor& mul_inplace_scalar_vmap(const Inplace<MulScalar>& call) {
  const auto& [self, other] = call.in;
  check_castable(name_of<Inplace<MulScalar>>(), "input", at::result_type(self, known_number(other)),
                 self.scalar_type());
  const VmapLevel level;
  Tensor value = level.unwrap(self).value;
  handle<Inplace<MulScalar>>().call(value, other);
  return call.self;
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  for_each_operator([&]<typename Op>() { impl_vmap<Op, on_examples<Op>>(m); });
  impl<Inplace<MulTensor>, mul_inplace_vmap>(m);
  impl<Inplace<MulScalar>, mul_inplace_scalar_vmap>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, Functionalize, m) {
  impl_out_functional<MulTensor, checked<Out<MulTensor>>>(m);
  impl_out_functional<MulScalar, checked<Out<MulScalar>>>(m);
  impl_inplace_functional<MulTensor, checked<Inplace<MulTensor>>>(m);
  impl_inplace_functional<MulScalar, checked<Inplace<MulScalar>>>(m);
}

}  // namespace
}  // namespace gpuopt::elementwise
