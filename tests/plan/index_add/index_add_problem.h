// Makes an index_add from plain arrays, for the C entry points that tests call. `dim` is the
// indexed dimension.
#pragma once

#include "index_add/index_add_problem.h"

namespace gpuopt::index_add {

inline Problem make_problem(int num_dims, int dim, const int64_t* sizes, int64_t entries,
                            const int64_t* self_strides, const int64_t* source_strides,
                            uint64_t self, uint64_t source, uint64_t index, int64_t index_stride,
                            int long_index, int dtype, int mode, int64_t alpha) {
  Problem problem;
  problem.self = reinterpret_cast<void*>(self);
  problem.source = reinterpret_cast<const void*>(source);
  problem.index = reinterpret_cast<const void*>(index);
  problem.dtype = static_cast<DType>(dtype);
  problem.long_index = long_index != 0;
  problem.mode = static_cast<Mode>(mode);
  problem.alpha = {static_cast<double>(alpha), 0, alpha};
  problem.bins = sizes[dim];
  problem.entries = entries;
  problem.bin_stride = self_strides[dim];
  problem.entry_stride = source_strides[dim];
  problem.index_stride = index_stride;
  for (int d = 0; d < num_dims; ++d) {
    if (d == dim) continue;
    problem.dims[problem.num_dims++] = {sizes[d], self_strides[d], source_strides[d]};
  }
  return problem;
}

}  // namespace gpuopt::index_add
