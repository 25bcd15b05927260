// mul of two tensors. ATen's kernel is at the limit for operands of one layout.
#pragma once

#include <ATen/ops/mul_ops.h>

#include "elementwise/binding/elementwise_ops.h"
#include "override/policy.h"
#include "override/predicates.h"

namespace gpuopt::overriding {

// Both operands expanded to the shape of the product. Returns nothing if they do not broadcast, or
// have more dimensions than Dims holds.
inline std::optional<Dims> expanded_dims(const Tensor& self, const Tensor& other) {
  Dims dims;
  const int64_t rank = std::max(self.dim(), other.dim());
  const auto at = [](const Tensor& tensor, int64_t last) -> std::pair<int64_t, int64_t> {
    const int64_t d = tensor.dim() - 1 - last;
    if (d < 0 || tensor.size(d) == 1) return {1, 0};
    return {tensor.size(d), tensor.stride(d)};
  };
  for (int64_t last = 0; last < rank; ++last) {
    const auto [size_a, a] = at(self, last);
    const auto [size_b, b] = at(other, last);
    if (size_a != size_b && size_a != 1 && size_b != 1) return std::nullopt;
    const int64_t size = std::max(size_a, size_b);
    if (size != 1 && !dims.push({size, a, b})) return std::nullopt;
  }
  dims.merge();
  return dims;
}

inline int64_t values_of(const Dims& dims) {
  int64_t values = 1;
  for (const Dim& dim : dims) values *= dim.size;
  return values;
}

inline Reason decide_mul(const Tensor& self, const Tensor& other) {
  // Numbers arrive as tensors without dimensions.
  if (self.dim() == 0 || other.dim() == 0) return Reason::kAtenIsFaster;
  const bool same_shape = self.sizes() == other.sizes();
  if (same_shape && self.strides() == other.strides() && !takes_always()) {
    return Reason::kAtenIsFaster;
  }
  // The product has at most this many values. Most calls of a model that is bound by the host end
  // here.
  const double most = static_cast<double>(self.numel()) * static_cast<double>(other.numel());
  if (most < policy::kSmallestProduct && !takes_always()) return Reason::kSize;
  const at::ScalarType a = self.scalar_type(), b = other.scalar_type();
  if (!is_measured(a) || !is_measured(b)) return Reason::kDtype;
  if (!is_plain(self) || !is_plain(other) || !on_device_of(self, {other})) {
    return Reason::kUnsupported;
  }
  const std::optional<Dims> dims = expanded_dims(self, other);
  if (!dims.has_value()) return Reason::kUnsupported;
  return unless_always([&] {
    const auto item = static_cast<int64_t>(c10::elementSize(c10::promoteTypes(a, b)));
    return policy::mul(*dims, bytes_of(self) + bytes_of(other) + values_of(*dims) * item);
  });
}

using Mul = Same<at::_ops::mul_Tensor, operator_named("mul"), MulTensor, decide_mul>;

}  // namespace gpuopt::overriding
