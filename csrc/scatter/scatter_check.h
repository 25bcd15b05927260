// Checks the arguments of reductions at an index. The CUDA, CPU and Meta kernels and the batching
// rules all call these functions.
#pragma once

#include "binding/check.h"
#include "scatter/scatter_ops.h"
#include "segment/segment_check.h"

namespace gpuopt::scatter {

struct Call {
  int64_t dim;  // counted from the front
  rows::Reduce reduce;
};

inline Call check(const char* op, const Scatter& call) {
  const auto& [src, dim, index, bins, reduce] = call;
  TORCH_CHECK_INDEX(src.dim() > 0, op,
                    ": src must have entries: expected at least 1 dimension, got shape []");
  const int64_t from_front = checked_dim(op, dim, src.dim());
  const rows::Reduce checked = segment::check_reduce(op, reduce);
  TORCH_CHECK_TYPE(segment::is_real_float(src) || segment::is_signed_or_byte(src), op,
                   ": src must be real numbers: expected a floating-point or integer dtype, got ",
                   src.scalar_type());
  check_device_of(op, {"index", index}, {"src", src});
  check_index_dtype(op, "index", index.scalar_type());
  TORCH_CHECK(index.dim() == 1, op, ": index must be a vector: expected 1 dimension, got shape ",
              index.sym_sizes());
  TORCH_SYM_CHECK(index.sym_numel().sym_eq(src.sym_size(from_front)), op,
                  ": index must have an entry for each slice of dimension ", from_front,
                  " of src: expected ", src.sym_size(from_front), ", got ", index.sym_numel());
  TORCH_CHECK(TORCH_GUARD_OR_TRUE(bins.sym_ge(0)), op,
              ": bins must not be negative: expected at least 0, got ", bins);
  return {from_front, checked};
}

inline Call check(const Scatter& call) { return check(name_of<Scatter>(), call); }

inline Call check(const ScatterArg& call) {
  const char* op = name_of<ScatterArg>();
  const Call checked = check(op, call.values());
  TORCH_CHECK_VALUE(segment::is_extremum(checked.reduce), op,
                    ": reduce must select an entry: expected \"max\" or \"min\", got \"",
                    call.reduce, "\"");
  return checked;
}

}  // namespace gpuopt::scatter
