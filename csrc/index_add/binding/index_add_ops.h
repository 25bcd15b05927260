// index_add as an operator of binding/op.h.
#pragma once

#include "binding/op.h"

namespace gpuopt {

// self, with alpha times the slices of source added to the slices of dimension dim that index names
struct IndexAdd {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1, "
      "str mode=\"fast\") -> Tensor";
  const at::Tensor& self;
  int64_t dim;
  const at::Tensor &index, &source;
  const at::Scalar& alpha;
  std::string_view mode;
};

}  // namespace gpuopt
