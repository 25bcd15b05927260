// index_add from C++: handles that call through the dispatcher, so autograd, vmap, autocast and
// tracing all see them.
#pragma once

#include <string_view>

#include "binding/op_handle.h"

namespace gpuopt::ops {

GPUOPT_OP(index_add, "index_add", "",
          at::Tensor(const at::Tensor&, int64_t, const at::Tensor&, const at::Tensor&,
                     const at::Scalar&, std::string_view))
GPUOPT_OP(index_add_inplace, "index_add_", "",
          at::Tensor&(at::Tensor&, int64_t, const at::Tensor&, const at::Tensor&, const at::Scalar&,
                      std::string_view))
GPUOPT_OP(index_add_out, "index_add", "out",
          at::Tensor&(const at::Tensor&, int64_t, const at::Tensor&, const at::Tensor&,
                      const at::Scalar&, std::string_view, at::Tensor&))

}  // namespace gpuopt::ops
