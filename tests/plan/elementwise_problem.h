// Makes a problem from plain arrays, for the C entry points that tests call.
#pragma once

#include "elementwise/elementwise_plan.h"

namespace gpuopt::elementwise {

// Limits that small problems reach. set_limits() gives others.
inline Limits test_limits{.small = 0, .tile_side = 8};

inline Problem make_problem(int num_inputs, int num_dims, const int64_t* sizes,
                            const int64_t* strides, const int* dtypes, const uint64_t* addresses,
                            int dtype) {
  Problem problem;
  problem.num_inputs = num_inputs;
  problem.num_dims = num_dims;
  problem.dtype = static_cast<DType>(dtype);
  problem.limits = test_limits;
  for (int d = 0; d < num_dims; ++d) problem.sizes[d] = sizes[d];
  for (int k = 0; k <= num_inputs; ++k) {
    problem.operands[k].data = reinterpret_cast<void*>(addresses[k]);
    problem.operands[k].dtype = static_cast<DType>(dtypes[k]);
    for (int d = 0; d < num_dims; ++d) problem.operands[k].strides[d] = strides[k * num_dims + d];
  }
  return problem;
}

}  // namespace gpuopt::elementwise
