// The transposition that a copy between two tensors is, if it is one.
#pragma once

#include <optional>

#include "binding/plain.h"
#include "transpose/transpose_copy.h"

namespace gpuopt::transpose {

// Whether out.copy_(self) only moves bits, between memory that does not overlap.
inline bool only_moves_bits(const at::Tensor& out, const at::Tensor& self) {
  return out.scalar_type() == self.scalar_type() && out.sizes() == self.sizes() &&
         on_device_of(out, {self}) && is_plain(out) && is_plain(self) && !out.is_alias_of(self);
}

// Nothing if `out` is not dense, or if no two dimensions are exchanged.
inline std::optional<Problem> transposition_of(const at::Tensor& out, const at::Tensor& self) {
  const std::optional<Dims> dims =
      merged_dims(span_of(self.sizes()), span_of(out.strides()), span_of(self.strides()));
  if (!dims.has_value()) return std::nullopt;
  std::optional<Problem> problem = as_transposition(*dims);
  if (!problem.has_value()) return std::nullopt;
  problem->in = self.const_data_ptr();
  problem->out = out.mutable_data_ptr();
  problem->item = static_cast<int64_t>(self.element_size());
  return problem;
}

}  // namespace gpuopt::transpose
