// Makes a scan from plain arrays, for the C entry points that tests call.
#pragma once

#include "scan/scan_plan.h"

namespace gpuopt::scan {

struct Given {
  int64_t num_dims;
  const int64_t* sizes;  // innermost first, the scanned dimension included
  const int64_t* in_strides;
  const int64_t* out_strides;
  int64_t scanned, reverse, exclusive;
  uint64_t in, out;
  int64_t in_dtype, dtype;
};

inline Problem make_problem(const Given& given) {
  Problem problem;
  problem.in = reinterpret_cast<const void*>(given.in);
  problem.out = reinterpret_cast<void*>(given.out);
  problem.in_dtype = static_cast<DType>(given.in_dtype);
  problem.dtype = static_cast<DType>(given.dtype);
  problem.reverse = given.reverse != 0;
  problem.exclusive = given.exclusive != 0;
  for (int64_t d = 0; d < given.num_dims; ++d) {
    const Dim dim{given.sizes[d], given.in_strides[d], given.out_strides[d]};
    if (d == given.scanned) {
      problem.scanned = dim;
    } else {
      problem.dims[problem.num_dims++] = dim;
    }
  }
  return problem;
}

}  // namespace gpuopt::scan
