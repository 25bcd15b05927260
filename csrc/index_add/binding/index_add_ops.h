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

namespace index_add {

// How mode accurate adds on CUDA.
enum class Additions : uint8_t { kDirect, kInFloat32, kSorted };
Additions additions(const char* op, const at::Tensor& self, int64_t dim, const at::Tensor& index,
                    const at::Tensor& source);
// Adds slices of a half type to slices of a float32 tensor, in any order.
void add_to_float32(const char* op, const at::Tensor& self, int64_t dim, const at::Tensor& index,
                    const at::Tensor& source);

}  // namespace index_add
}  // namespace gpuopt
