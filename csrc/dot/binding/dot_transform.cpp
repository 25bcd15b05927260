// Dot products under torch.vmap, functionalization and autocast.
#include <array>
#include <utility>

#include "binding/autocast.h"
#include "binding/vmap.h"
#include "binding/writing.h"
#include "dot/binding/dot_check.h"

namespace gpuopt::dot {
namespace {

using c10::SymInt;

// The wider of the operands' dtypes. torch.dot and torch.vdot cast to it under autocast on CUDA,
// but not on the CPU.
constexpr auto promoted = [](const auto& op, c10::DeviceType device) {
  const auto lower = at::autocast::get_lower_precision_fp_from_device_type(device);
  return at::autocast::promote_type(lower, device, op.self, op.other);
};

// ---------------------------------------------------------------- vmap

// vmap's rules run before autocast's. They cast the operands here, before they check the dtypes.
template <typename Op>
std::pair<Tensor, Tensor> cast_under_autocast(const Op& op) {
  constexpr auto device = c10::DeviceType::CUDA;
  if (!op.self.is_cuda() || !at::autocast::is_autocast_enabled(device)) return {op.self, op.other};
  const auto dtype = promoted(op, device);
  return {at::autocast::cached_cast(dtype, op.self, device),
          at::autocast::cached_cast(dtype, op.other, device)};
}

// Operators on vectors: all examples are the rows of one call of dot_rows.
template <typename Op>
Tensor dot_vmap(const Op& given) {
  const auto [self, other] = cast_under_autocast(given);
  const Op op{self, other};
  check(op);
  const VmapLevel level;
  const auto examples = level.examples_of(op);
  if (!examples.has_value()) return level.pass_on(op);
  const Tensor rows = level.unwrap(self).in_front(*examples);
  const Tensor others = level.unwrap(other).in_front(*examples);
  return level.wrap(call(DotRows{std::is_same_v<Op, Vdot> ? rows.conj() : rows, others}), 0);
}

// The rows of all examples are the rows of one call.
Tensor dot_rows_vmap(const DotRows& given) {
  const auto [self, other] = cast_under_autocast(given);
  const DotRows op{self, other};
  check(op);
  const VmapLevel level;
  const auto examples = level.examples_of(op);
  if (!examples.has_value()) return level.pass_on(op);
  const Tensor left = level.unwrap(self).in_front(*examples);
  const Tensor right = level.unwrap(other).in_front(*examples);
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

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) {
  OpList<Dot, Vdot, DotRows, DotFastAtomic>::for_each(
      [&]<typename Op>() { impl_autocast<Op, c10::DeviceType::CUDA, promoted>(m); });
}

}  // namespace
}  // namespace gpuopt::dot
