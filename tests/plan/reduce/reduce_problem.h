// Makes a reduction from plain arrays, for the C entry points that tests call.
#pragma once

#include "reduce/reduce_problem.h"

namespace gpuopt::reduce {

inline Problem make_problem(Operation operation, int num_dims, const int64_t* sizes,
                            const int64_t* in_strides, const int64_t* out_strides,
                            const int* reduced, uint64_t in, uint64_t out, int in_dtype,
                            int dtype) {
  Problem problem;
  problem.operation = operation;
  problem.in = reinterpret_cast<const void*>(in);
  problem.out = reinterpret_cast<void*>(out);
  problem.in_dtype = static_cast<DType>(in_dtype);
  problem.dtype = static_cast<DType>(dtype);
  problem.num_dims = num_dims;
  for (int d = 0; d < num_dims; ++d) {
    problem.dims[d] = {sizes[d], in_strides[d], reduced[d] ? 0 : out_strides[d], reduced[d] != 0};
  }
  return problem;
}

}  // namespace gpuopt::reduce
