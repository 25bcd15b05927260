// Gathers of rows as an operator of binding/op.h.
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "binding/op.h"

namespace gpuopt {

// Gathers rows of `self`, where index_select::row_size() finds rows.
struct GatherRows {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema = "_gather_rows(Tensor self, Tensor index) -> Tensor";
  const at::Tensor &self, &index;
};

namespace index_select {

// The elements of a row of the first dimension that has more than one. Nothing if that is not
// dimension `dim`, or if rows are not dense.
inline std::optional<int64_t> row_size(const at::Tensor& self, int64_t dim) {
  for (int64_t d = 0; d < dim; ++d) {
    if (self.size(d) != 1) return std::nullopt;
  }
  int64_t dense = 1;
  for (int64_t d = self.dim() - 1; d > dim; --d) {
    if (self.size(d) != 1 && self.stride(d) != dense) return std::nullopt;
    dense *= self.size(d);
  }
  return dense;
}

// The longest row, in elements.
constexpr int64_t kLongestRow = 1 << 27;

}  // namespace index_select
}  // namespace gpuopt
