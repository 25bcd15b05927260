// Reductions at an index as operators of binding/op.h.
#pragma once

#include <tuple>

#include "binding/op.h"

namespace gpuopt::scatter {

using at::Tensor;
using TensorPair = std::tuple<Tensor, Tensor>;

struct Scatter {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "scatter(Tensor src, int dim, Tensor index, SymInt bins, str reduce=\"sum\") -> Tensor";
  const Tensor& src;
  int64_t dim;
  const Tensor& index;
  c10::SymInt bins;
  std::string_view reduce;
};

// A maximum or minimum, and the int64 position along `dim` that each is from: -1 for a bin without
// entries.
struct ScatterArg {
  using Result = TensorPair;
  static constexpr std::string_view kSchema =
      "_scatter_arg(Tensor src, int dim, Tensor index, SymInt bins, str reduce) -> (Tensor, "
      "Tensor)";
  const Tensor& src;
  int64_t dim;
  const Tensor& index;
  c10::SymInt bins;
  std::string_view reduce;

  Scatter values() const { return {src, dim, index, bins, reduce}; }
};

using Ops = OpList<Scatter, ScatterArg>;

}  // namespace gpuopt::scatter
