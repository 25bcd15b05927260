// Reductions of segments as operators of binding/op.h. Segment s has the entries offsets[s] to
// offsets[s + 1] of the first dimension.
#pragma once

#include <tuple>

#include "binding/op.h"

namespace gpuopt::segment {

using at::Tensor;
using TensorPair = std::tuple<Tensor, Tensor>;

struct SegmentReduce {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "segment_reduce(Tensor data, Tensor offsets, str reduce=\"sum\", float? empty=None) -> "
      "Tensor";
  const Tensor &data, &offsets;
  std::string_view reduce;
  std::optional<double> empty;
};

// A maximum or minimum, and the entry that each is from: -1 for a segment without entries.
struct SegmentReduceArg {
  using Result = TensorPair;
  static constexpr std::string_view kSchema =
      "_segment_reduce_arg(Tensor data, Tensor offsets, str reduce, float? empty=None) -> (Tensor, "
      "Tensor)";
  const Tensor &data, &offsets;
  std::string_view reduce;
  std::optional<double> empty;

  SegmentReduce values() const { return {data, offsets, reduce, empty}; }
};

// Gives each entry the row of its segment, and 0 to entries of no segment.
struct SegmentExpand {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "segment_expand(Tensor rows, Tensor offsets, SymInt entries) -> Tensor";
  const Tensor &rows, &offsets;
  c10::SymInt entries;
};

// Gives each value of a row to the entry that `arg` names, and 0 to all other entries.
struct SegmentSelect {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "_segment_select(Tensor rows, Tensor arg, Tensor offsets, SymInt entries) -> Tensor";
  const Tensor &rows, &arg, &offsets;
  c10::SymInt entries;

  SegmentExpand expand() const { return {rows, offsets, entries}; }
};

struct SegmentSoftmax {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "segment_softmax(Tensor src, Tensor offsets) -> Tensor";
  const Tensor &src, &offsets;
};

// result * (grad - the sum of grad * result over the segment)
struct SegmentSoftmaxBackward {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "_segment_softmax_backward(Tensor grad, Tensor result, Tensor offsets) -> Tensor";
  const Tensor &grad, &result, &offsets;
};

// The entries of each bin, in order: perm[ptr[b]] to perm[ptr[b + 1]].
struct GroupBy {
  using Result = TensorPair;
  static constexpr std::string_view kSchema =
      "group_by(Tensor index, SymInt bins, *, ScalarType? dtype=None) -> (Tensor ptr, Tensor perm)";
  const Tensor& index;
  c10::SymInt bins;
  std::optional<at::ScalarType> dtype;
};

using Ops = OpList<SegmentReduce, SegmentReduceArg, SegmentExpand, SegmentSelect, SegmentSoftmax,
                   SegmentSoftmaxBackward, GroupBy>;

}  // namespace gpuopt::segment
