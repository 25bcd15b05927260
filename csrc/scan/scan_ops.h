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
}  // namespace ops

inline at::Tensor cumsum(const at::Tensor& self, int64_t dim,
                         std::optional<at::ScalarType> dtype = std::nullopt, bool reverse = false,
                         bool exclusive = false) {
  return ops::cumsum().call(self, dim, dtype, reverse, exclusive);
}

}  // namespace gpuopt
