// Makes a dot product from plain numbers, for the C entry points that tests call.
#pragma once

#include "dot/dot_plan.h"

namespace gpuopt::dot {

struct Given {
  int64_t self, self_stride, self_row_stride, self_conjugate;
  int64_t tensor, tensor_stride, tensor_row_stride, tensor_conjugate;
  int64_t out, dtype, rows, size, atomic;
};

inline Problem make_problem(const Given& given) {
  Problem problem;
  problem.self = {reinterpret_cast<const void*>(given.self), given.self_stride,
                  given.self_row_stride, given.self_conjugate != 0};
  problem.tensor = {reinterpret_cast<const void*>(given.tensor), given.tensor_stride,
                    given.tensor_row_stride, given.tensor_conjugate != 0};
  problem.out = reinterpret_cast<void*>(given.out);
  problem.dtype = static_cast<DType>(given.dtype);
  problem.rows = given.rows;
  problem.size = given.size;
  problem.atomic = given.atomic != 0;
  return problem;
}

}  // namespace gpuopt::dot
