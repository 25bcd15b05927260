// The reductions as operators of binding/op.h, and C++ functions that call them.
#pragma once

#include "binding/op.h"

namespace gpuopt {

struct ReduceSum {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "reduce_sum(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
      "ScalarType? dtype=None) -> Tensor";
  const at::Tensor& self;
  at::OptionalIntArrayRef dim;
  bool keepdim;
  std::optional<at::ScalarType> dtype;
};

struct ReduceMean {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "reduce_mean(Tensor self, int[1]? dim=None, bool keepdim=False, *, "
      "ScalarType? dtype=None) -> Tensor";
  const at::Tensor& self;
  at::OptionalIntArrayRef dim;
  bool keepdim;
  std::optional<at::ScalarType> dtype;
};

struct ReduceMax {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "reduce_max(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor";
  const at::Tensor& self;
  at::OptionalIntArrayRef dim;
  bool keepdim;
};

struct ReduceMin {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "reduce_min(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor";
  const at::Tensor& self;
  at::OptionalIntArrayRef dim;
  bool keepdim;
};

inline at::Tensor reduce_sum(const at::Tensor& self, at::OptionalIntArrayRef dim = std::nullopt,
                             bool keepdim = false,
                             std::optional<at::ScalarType> dtype = std::nullopt) {
  return call(ReduceSum{self, dim, keepdim, dtype});
}
inline at::Tensor reduce_mean(const at::Tensor& self, at::OptionalIntArrayRef dim = std::nullopt,
                              bool keepdim = false,
                              std::optional<at::ScalarType> dtype = std::nullopt) {
  return call(ReduceMean{self, dim, keepdim, dtype});
}
inline at::Tensor reduce_max(const at::Tensor& self, at::OptionalIntArrayRef dim = std::nullopt,
                             bool keepdim = false) {
  return call(ReduceMax{self, dim, keepdim});
}
inline at::Tensor reduce_min(const at::Tensor& self, at::OptionalIntArrayRef dim = std::nullopt,
                             bool keepdim = false) {
  return call(ReduceMin{self, dim, keepdim});
}

}  // namespace gpuopt
