// The reductions as operators of binding/op.h, and a C++ function that calls reduce_sum.
#pragma once

#include "binding/op.h"

namespace gpuopt {

template <bool mean>
struct ReduceValues {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      mean ? "reduce_mean(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
             "ScalarType? dtype=None) -> Tensor"
           : "reduce_sum(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
             "ScalarType? dtype=None) -> Tensor";
  const at::Tensor& self;
  at::OptionalIntArrayRef dim;
  bool keepdim;
  std::optional<at::ScalarType> dtype;
};
using ReduceSum = ReduceValues<false>;
using ReduceMean = ReduceValues<true>;

template <bool max>
struct ReduceExtremum {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      max ? "reduce_max(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor"
          : "reduce_min(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor";
  const at::Tensor& self;
  at::OptionalIntArrayRef dim;
  bool keepdim;
};
using ReduceMax = ReduceExtremum<true>;
using ReduceMin = ReduceExtremum<false>;

inline at::Tensor reduce_sum(const at::Tensor& self, at::OptionalIntArrayRef dim = std::nullopt,
                             bool keepdim = false,
                             std::optional<at::ScalarType> dtype = std::nullopt) {
  return call(ReduceSum{self, dim, keepdim, dtype});
}

}  // namespace gpuopt
