// C++ functions for scans. They call through the dispatcher, so that autograd, vmap, autocast and
// tracing see the calls.
#pragma once

#include <optional>

#include "binding/op_handle.h"

namespace gpuopt {

namespace ops {
GPUOPT_OP(cumsum, "cumsum", "",
          at::Tensor(const at::Tensor&, int64_t, std::optional<at::ScalarType>, bool, bool))
GPUOPT_OP(cumsum_out, "cumsum", "out",
          at::Tensor&(const at::Tensor&, int64_t, std::optional<at::ScalarType>, bool, bool,
                      at::Tensor&))
GPUOPT_OP(cumsum_inplace, "cumsum_", "",
          at::Tensor&(at::Tensor&, int64_t, std::optional<at::ScalarType>, bool, bool))
GPUOPT_OP(linear_recurrence, "linear_recurrence", "",
          at::Tensor(const at::Tensor&, const at::Tensor&, int64_t,
                     const std::optional<at::Tensor>&, bool, bool))
}  // namespace ops

inline at::Tensor cumsum(const at::Tensor& self, int64_t dim,
                         std::optional<at::ScalarType> dtype = std::nullopt, bool reverse = false,
                         bool exclusive = false) {
  return ops::cumsum().call(self, dim, dtype, reverse, exclusive);
}

inline at::Tensor linear_recurrence(const at::Tensor& a, const at::Tensor& b, int64_t dim,
                                    const std::optional<at::Tensor>& initial = std::nullopt,
                                    bool reverse = false, bool shifted = false) {
  return ops::linear_recurrence().call(a, b, dim, initial, reverse, shifted);
}

}  // namespace gpuopt
