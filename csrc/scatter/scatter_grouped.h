// The way that takes every reduction, dtype and device: the slices are grouped by bin, and the
// groups are segments.
#pragma once

#include "index_select/index_select_ops.h"
#include "scatter/scatter_check.h"
#include "segment/segment_ops.h"

namespace gpuopt::scatter {

struct Grouped {
  Tensor ptr, perm, slices;

  explicit Grouped(const Scatter& op, int64_t dim) {
    std::tie(ptr, perm) = call(segment::GroupBy{op.index, op.bins, std::nullopt});
    slices = call(IndexSelect{op.src.movedim(dim, 0), 0, perm});
  }
};

// Moves the bins to dimension `dim`, in a tensor with the strides of a new one. contiguous() would
// keep other strides of dimensions of size 1.
inline Tensor in_dimension(const Tensor& of_segments, int64_t dim) {
  if (dim == 0) return of_segments;
  return of_segments.movedim(0, dim).clone(at::MemoryFormat::Contiguous);
}

inline Tensor by_groups(const Scatter& op, int64_t dim) {
  const Grouped grouped(op, dim);
  return in_dimension(
      call(segment::SegmentReduce{grouped.slices, grouped.ptr, op.reduce, std::nullopt}), dim);
}

inline TensorPair by_groups(const ScatterArg& op, int64_t dim) {
  const Grouped grouped(op.values(), dim);
  const auto [out, arg] =
      call(segment::SegmentReduceArg{grouped.slices, grouped.ptr, op.reduce, std::nullopt});
  // Bins without entries have entry -1, which becomes the first of these.
  const Tensor positions = at::cat({grouped.perm.new_full({1}, -1), grouped.perm}).to(at::kLong);
  const Tensor numbers =
      call(IndexSelect{positions, 0, arg.flatten().add(1)}).view_symint(arg.sym_sizes());
  return {in_dimension(out, dim), in_dimension(numbers, dim)};
}

}  // namespace gpuopt::scatter
