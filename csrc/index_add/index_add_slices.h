// Splits problems into parts for one launch each. Plain host C++, as the plan.
#pragma once

#include "index_add/paths/index_add_sorted.h"

namespace gpuopt::index_add {

// The part of a problem that has indices first to first + size - 1 of dimension `dim`.
inline Problem slice(const Problem& problem, int dim, int64_t first, int64_t size) {
  Problem part = problem;
  const Dim& whole = problem.dims[dim];
  part.self = moved(problem.self, first * whole.self_stride, self_dtype(problem));
  part.source = moved(problem.source, first * whole.source_stride, problem.dtype);
  part.dims[dim].size = size;
  return part;
}

// Calls f(slice, its layout) for slices that one launch supports: at most kMaxOuterDims outer
// dimensions, and a limited number of values. Stops at the first error of f.
template <typename F>
auto for_each_slice(const Problem& problem, const Layout& layout, const Tuning& tuning, F&& f)
    -> decltype(f(problem, layout)) {
  const bool many_dims = layout.num_outer > kMaxOuterDims;
  const double size_of_entry =
      static_cast<double>(layout.inner.size) * static_cast<double>(layout.outer_size);
  const bool many_values = size_of_entry > static_cast<double>(tuning.launch_size) ||
                           size_of_entry * static_cast<double>(problem.entries) >
                               static_cast<double>(tuning.launch_values);
  if (!many_dims && !many_values) return f(problem, layout);
  Problem merged = problem;
  merged.num_dims = 0;
  merged.dims[merged.num_dims++] = layout.inner;
  // With too many dimensions, the smallest outer dimension is split, else the largest dimension.
  // The innermost outer dimension is never the smallest here, so that the layout stays the one that
  // the path was chosen for.
  int smallest = 2, largest = 0;
  for (int d = 0; d < layout.num_outer; ++d) {
    const int own = merged.num_dims++;
    merged.dims[own] = layout.outer[d];
    if (own > 1 && merged.dims[own].size < merged.dims[smallest].size) smallest = own;
    if (merged.dims[own].size > merged.dims[largest].size) largest = own;
  }
  const int dim = many_dims ? smallest : largest;
  const int64_t size = merged.dims[dim].size;
  if (size == 1) return f(merged, layout);
  const int64_t step = many_dims ? 1 : ceil_div<int64_t>(size, 2);
  for (int64_t first = 0; first < size; first += step) {
    const Problem part = slice(merged, dim, first, std::min(step, size - first));
    const auto error = for_each_slice(part, make_layout(part), tuning, f);
    if (error != decltype(error){}) return error;
  }
  return {};
}

// Calls f(part, its layout) for all parts of a problem: slices of ranges of the index. The
// positions in a range fit into a sorted entry.
template <typename F>
auto for_each_part(const Problem& problem, const Layout& layout, const Tuning& tuning, F&& f)
    -> decltype(f(problem, layout)) {
  const int64_t most = int64_t{1} << position_bits_for(problem.bins, tuning);
  for (int64_t first = 0; first < problem.entries; first += most) {
    Problem part = problem;
    part.entries = std::min(most, problem.entries - first);
    part.index = moved(problem.index, first * problem.index_stride,
                       problem.long_index ? DType::kInt64 : DType::kInt32);
    part.source = moved(problem.source, first * problem.entry_stride, problem.dtype);
    const auto error = for_each_slice(part, layout, tuning, f);
    if (error != decltype(error){}) return error;
  }
  return {};
}

}  // namespace gpuopt::index_add
