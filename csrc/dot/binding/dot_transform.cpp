// Dot products under torch.vmap, functionalization and autocast.
#include <ATen/autocast_mode.h>

#include <array>
#include <optional>
#include <utility>

#include "binding/vmap.h"
#include "binding/writing.h"
#include "dot/binding/dot_check.h"

namespace gpuopt::dot {
namespace {

using c10::SymInt;
using Operand = VmapLevel::Operand;

// Casts the operands to the wider of their dtypes. torch.dot and torch.vdot do so under autocast on
// CUDA, but not on the CPU.
std::pair<Tensor, Tensor> promoted(const Tensor& self, const Tensor& other) {
  constexpr auto device = c10::DeviceType::CUDA;
  const auto dtype = at::autocast::promote_type(
      at::autocast::get_lower_precision_fp_from_device_type(device), device, self, other);
  return {at::autocast::cached_cast(dtype, self, device),
          at::autocast::cached_cast(dtype, other, device)};
}

// ---------------------------------------------------------------- vmap

// vmap's rules run before autocast's. They cast the operands here, before they check the dtypes.
std::pair<Tensor, Tensor> cast_under_autocast(const Tensor& self, const Tensor& other) {
  const bool casts = self.is_cuda() && at::autocast::is_autocast_enabled(c10::DeviceType::CUDA);
  return casts ? promoted(self, other) : std::pair(self, other);
}

// The number of examples, or nothing if only another level maps over the operands.
std::optional<SymInt> examples_of(const Operand& self, const Operand& other) {
  for (const Operand* operand : {&self, &other}) {
    if (operand->batch_dim.has_value()) return operand->value.sym_size(*operand->batch_dim);
  }
  return std::nullopt;
}

// Operators on vectors: all examples are the rows of one call of dot_rows.
template <typename Op>
Tensor dot_vmap(const Op& given) {
  const auto [self, other] = cast_under_autocast(given.self, given.other);
  check(Op{self, other});
  const VmapLevel level;
  const Operand x = level.unwrap(self), y = level.unwrap(other);
  const auto examples = examples_of(x, y);
  if (!examples.has_value()) return level.wrap(call(Op{x.value, y.value}), std::nullopt);
  const Tensor rows = x.in_front(*examples), others = y.in_front(*examples);
  return level.wrap(call(DotRows{std::is_same_v<Op, Vdot> ? rows.conj() : rows, others}), 0);
}

// The rows of all examples are the rows of one call.
Tensor dot_rows_vmap(const DotRows& given) {
  const auto [self, tensor] = cast_under_autocast(given.self, given.other);
  check(DotRows{self, tensor});
  const VmapLevel level;
  const Operand x = level.unwrap(self), y = level.unwrap(tensor);
  const auto examples = examples_of(x, y);
  if (!examples.has_value()) return level.wrap(call(DotRows{x.value, y.value}), std::nullopt);
  const Tensor left = x.in_front(*examples), right = y.in_front(*examples);
  const Tensor result = call(DotRows{left.flatten(0, 1), right.flatten(0, 1)});
  return level.wrap(result.unflatten_symint(0, std::array<SymInt, 2>{*examples, left.sym_size(1)}),
                    0);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl<Dot, dot_vmap<Dot>>(m);
  impl<Vdot, dot_vmap<Vdot>>(m);
  impl<DotRows, dot_rows_vmap>(m);
  impl<DotFastAtomic, dot_vmap<DotFastAtomic>>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, Functionalize, m) {
  impl_out_functional<Dot, checked<Dot>>(m);
  impl_out_functional<Vdot, checked<Vdot>>(m);
}

// ---------------------------------------------------------------- autocast

template <typename Op>
Tensor dot_autocast(const Op& op) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  const auto [self, other] = promoted(op.self, op.other);
  return call(Op{self, other});
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) {
  impl<Dot, dot_autocast<Dot>>(m);
  impl<Vdot, dot_autocast<Vdot>>(m);
  impl<DotRows, dot_autocast<DotRows>>(m);
  impl<DotFastAtomic, dot_autocast<DotFastAtomic>>(m);
}

}  // namespace
}  // namespace gpuopt::dot
