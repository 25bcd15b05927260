// C++ functions for the reductions. They call through the dispatcher, so that autograd, vmap,
// autocast and tracing see the calls.
#pragma once

#include <optional>

#include "binding/op_handle.h"

namespace gpuopt {

namespace ops {
GPUOPT_OP(reduce_sum, "reduce_sum", "",
          at::Tensor(const at::Tensor&, at::OptionalIntArrayRef, bool,
                     std::optional<at::ScalarType>))
GPUOPT_OP(reduce_sum_out, "reduce_sum", "out",
          at::Tensor&(const at::Tensor&, at::OptionalIntArrayRef, bool,
                      std::optional<at::ScalarType>, at::Tensor&))
GPUOPT_OP(reduce_mean, "reduce_mean", "",
          at::Tensor(const at::Tensor&, at::OptionalIntArrayRef, bool,
                     std::optional<at::ScalarType>))
GPUOPT_OP(reduce_mean_out, "reduce_mean", "out",
          at::Tensor&(const at::Tensor&, at::OptionalIntArrayRef, bool,
                      std::optional<at::ScalarType>, at::Tensor&))
GPUOPT_OP(reduce_max, "reduce_max", "",
          at::Tensor(const at::Tensor&, at::OptionalIntArrayRef, bool))
GPUOPT_OP(reduce_max_out, "reduce_max", "out",
          at::Tensor&(const at::Tensor&, at::OptionalIntArrayRef, bool, at::Tensor&))
GPUOPT_OP(reduce_min, "reduce_min", "",
          at::Tensor(const at::Tensor&, at::OptionalIntArrayRef, bool))
GPUOPT_OP(reduce_min_out, "reduce_min", "out",
          at::Tensor&(const at::Tensor&, at::OptionalIntArrayRef, bool, at::Tensor&))
}  // namespace ops

inline at::Tensor reduce_sum(const at::Tensor& self, at::OptionalIntArrayRef dim = std::nullopt,
                             bool keepdim = false,
                             std::optional<at::ScalarType> dtype = std::nullopt) {
  return ops::reduce_sum().call(self, dim, keepdim, dtype);
}
inline at::Tensor reduce_mean(const at::Tensor& self, at::OptionalIntArrayRef dim = std::nullopt,
                              bool keepdim = false,
                              std::optional<at::ScalarType> dtype = std::nullopt) {
  return ops::reduce_mean().call(self, dim, keepdim, dtype);
}
inline at::Tensor reduce_max(const at::Tensor& self, at::OptionalIntArrayRef dim = std::nullopt,
                             bool keepdim = false) {
  return ops::reduce_max().call(self, dim, keepdim);
}
inline at::Tensor reduce_min(const at::Tensor& self, at::OptionalIntArrayRef dim = std::nullopt,
                             bool keepdim = false) {
  return ops::reduce_min().call(self, dim, keepdim);
}

}  // namespace gpuopt
