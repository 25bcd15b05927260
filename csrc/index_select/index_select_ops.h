// index_select from C++: the handle calls through the dispatcher, so autograd, vmap and tracing see
// the calls.
#pragma once

#include "binding/op_handle.h"

namespace gpuopt::ops {

GPUOPT_OP(index_select, "index_select", "",
          at::Tensor(const at::Tensor&, int64_t, const at::Tensor&))

}  // namespace gpuopt::ops
