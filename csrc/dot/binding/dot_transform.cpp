// Dot products under torch.vmap, functionalization and autocast.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <utility>

#include "binding/functionalize.h"
#include "binding/vmap.h"
#include "dot/binding/dot_check.h"
#include "dot/binding/dot_ops.h"

namespace gpuopt::dot {
namespace {

using at::Tensor;
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

// Moves the batch dimension to the front. An operand that all examples share is expanded, without a
// copy.
Tensor batched(const Operand& operand, const SymInt& examples) {
  if (operand.batch_dim.has_value()) return operand.value.movedim(*operand.batch_dim, 0);
  auto sizes = operand.value.sym_sizes().vec();
  sizes.insert(sizes.begin(), examples);
  return operand.value.unsqueeze(0).expand_symint(sizes);
}

// The batching rule of operators on vectors: all examples are the rows of one call of dot_rows.
template <typename Op>
Tensor vector_vmap(const Op& op, bool conjugate_self, const Tensor& self, const Tensor& other) {
  const VmapLevel level;
  const Operand x = level.unwrap(self), y = level.unwrap(other);
  const auto examples = examples_of(x, y);
  if (!examples.has_value()) return level.wrap(op.call(x.value, y.value), std::nullopt);
  const Tensor rows = batched(x, *examples);
  const Tensor result =
      ops::dot_rows().call(conjugate_self ? rows.conj() : rows, batched(y, *examples));
  return level.wrap(result, 0);
}

Tensor dot_vmap(const Tensor& given_self, const Tensor& given_tensor) {
  const auto [self, tensor] = cast_under_autocast(given_self, given_tensor);
  check_dot(self, tensor);
  return vector_vmap(ops::dot(), /*conjugate_self=*/false, self, tensor);
}

Tensor vdot_vmap(const Tensor& given_self, const Tensor& given_other) {
  const auto [self, other] = cast_under_autocast(given_self, given_other);
  check_vdot(self, other);
  return vector_vmap(ops::vdot(), /*conjugate_self=*/true, self, other);
}

Tensor dot_fast_atomic_vmap(const Tensor& given_self, const Tensor& given_tensor) {
  const auto [self, tensor] = cast_under_autocast(given_self, given_tensor);
  check_dot_fast_atomic(self, tensor);
  return vector_vmap(ops::dot_fast_atomic(), /*conjugate_self=*/false, self, tensor);
}

// The batching rule of dot_rows: the rows of all examples are the rows of one call.
Tensor dot_rows_vmap(const Tensor& given_self, const Tensor& given_tensor) {
  const auto [self, tensor] = cast_under_autocast(given_self, given_tensor);
  check_dot_rows(self, tensor);
  const VmapLevel level;
  const Operand x = level.unwrap(self), y = level.unwrap(tensor);
  const auto examples = examples_of(x, y);
  if (!examples.has_value()) {
    return level.wrap(ops::dot_rows().call(x.value, y.value), std::nullopt);
  }
  const Tensor left = batched(x, *examples), right = batched(y, *examples);
  const Tensor result = ops::dot_rows().call(left.flatten(0, 1), right.flatten(0, 1));
  return level.wrap(result.unflatten_symint(0, std::array<SymInt, 2>{*examples, left.sym_size(1)}),
                    0);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  m.impl("dot", dot_vmap);
  m.impl("vdot", vdot_vmap);
  m.impl("dot_rows", dot_rows_vmap);
  m.impl("dot_fast_atomic", dot_fast_atomic_vmap);
}

// ---------------------------------------------------------------- functionalization

Tensor& dot_out_functional(const Tensor& self, const Tensor& tensor, Tensor& out) {
  check_dot_out(self, tensor, out);
  return functionalize_write(
      "gpuopt::dot", out, {self, tensor},
      [&] { return ops::dot().call(functional_value(self), functional_value(tensor)); },
      [&] { ops::dot_out().call(self, tensor, out); });
}

Tensor& vdot_out_functional(const Tensor& self, const Tensor& other, Tensor& out) {
  check_vdot_out(self, other, out);
  return functionalize_write(
      "gpuopt::vdot", out, {self, other},
      [&] { return ops::vdot().call(functional_value(self), functional_value(other)); },
      [&] { ops::vdot_out().call(self, other, out); });
}

TORCH_LIBRARY_IMPL(gpuopt, Functionalize, m) {
  m.impl("dot.out", dot_out_functional);
  m.impl("vdot.out", vdot_out_functional);
}

// ---------------------------------------------------------------- autocast

template <typename Op>
Tensor call_promoted(const Op& op, const Tensor& self, const Tensor& other) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCUDA);
  const auto [x, y] = promoted(self, other);
  return op.call(x, y);
}

Tensor dot_autocast(const Tensor& self, const Tensor& tensor) {
  return call_promoted(ops::dot(), self, tensor);
}

Tensor vdot_autocast(const Tensor& self, const Tensor& other) {
  return call_promoted(ops::vdot(), self, other);
}

Tensor dot_rows_autocast(const Tensor& self, const Tensor& tensor) {
  return call_promoted(ops::dot_rows(), self, tensor);
}

Tensor dot_fast_atomic_autocast(const Tensor& self, const Tensor& tensor) {
  return call_promoted(ops::dot_fast_atomic(), self, tensor);
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) {
  m.impl("dot", dot_autocast);
  m.impl("vdot", vdot_autocast);
  m.impl("dot_rows", dot_rows_autocast);
  m.impl("dot_fast_atomic", dot_fast_atomic_autocast);
}

}  // namespace
}  // namespace gpuopt::dot
