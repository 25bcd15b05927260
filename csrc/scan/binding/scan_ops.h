// The scans as operators of binding/op.h.
#pragma once

#include "binding/op.h"

namespace gpuopt {

struct Cumsum {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "cumsum(Tensor self, int dim, *, ScalarType? dtype=None, bool reverse=False, "
      "bool exclusive=False) -> Tensor";
  const at::Tensor& self;
  int64_t dim;
  std::optional<at::ScalarType> dtype;
  bool reverse, exclusive;
};

// h_t = a_t h_(t-1) + b_t, or with the factor a_(t-1) if `shifted`.
struct LinearRecurrence {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "linear_recurrence(Tensor a, Tensor b, int dim, Tensor? initial=None, bool reverse=False, "
      "*, bool shifted=False) -> Tensor";
  const at::Tensor &a, &b;
  int64_t dim;
  const std::optional<at::Tensor>& initial;
  bool reverse, shifted;
};

}  // namespace gpuopt
