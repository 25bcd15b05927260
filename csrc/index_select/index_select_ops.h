// index_select as an operator of binding/op.h.
#pragma once

#include "binding/op.h"

namespace gpuopt {

struct IndexSelect {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "index_select(Tensor self, int dim, Tensor index) -> Tensor";
  const at::Tensor& self;
  int64_t dim;
  const at::Tensor& index;
};

// at::gather with an index that was expanded from one entry for each row, for torch_ops.override.
struct GatherRows {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "_gather_rows(Tensor self, int dim, Tensor index) -> Tensor";
  const at::Tensor& self;
  int64_t dim;
  const at::Tensor& index;
};

}  // namespace gpuopt
