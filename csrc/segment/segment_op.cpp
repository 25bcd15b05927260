// The schemas of reductions of segments, and the CPU and Meta kernels. CPU kernels are made of
// ATen's operators. They compute half types in float32.
#include <ATen/ATen.h>

#include <limits>
#include <vector>

#include "segment/segment_check.h"

namespace gpuopt::segment {
namespace {

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  Ops::for_each([&]<typename Op>() { define<Op>(m); });
}

// ---------------------------------------------------------------- CPU

// The segments of a call. Entries of no segment are in a bin before all segments or in one after
// them, so that bin s + 1 is segment s.
struct Segments {
  int64_t count, entries;
  Tensor bin;      // of each entry
  Tensor lengths;  // of each segment

  Segments(const char* op, const Tensor& offsets, int64_t entries)
      : count(offsets.numel() - 1), entries(entries), lengths(offsets.diff()) {
    const auto first = offsets.min().item<int64_t>(), last = offsets.max().item<int64_t>();
    TORCH_CHECK_INDEX(first >= 0 && last <= entries, op,
                      ": offsets must be in the range of the entries: expected values from 0 to ",
                      entries, ", got ", first < 0 ? first : last);
    TORCH_CHECK_INDEX(!lengths.lt(0).any().item<bool>(), op,
                      ": offsets must not descend: expected each to be at least the one before, "
                      "got a smaller one");
    bin = at::searchsorted(offsets.contiguous(), at::arange(entries, offsets.options()),
                           /*out_int32=*/false, /*right=*/true);
  }

  // Bins of a number of features, as reductions begin.
  Tensor bins(int64_t features, const at::Scalar& start, const Tensor& like) const {
    return at::full({count + 2, features}, start, like.options());
  }
  Tensor without_outside(const Tensor& bins) const { return bins.narrow(0, 1, count); }
  Tensor of_entries(const Tensor& bins) const { return bins.index_select(0, bin); }
  Tensor bin_of_values(int64_t features) const {
    return bin.unsqueeze(1).expand({entries, features});
  }
  Tensor is_outside() const { return bin.eq(0).logical_or(bin.eq(count + 1)).unsqueeze(1); }
};

int64_t features_of(const Tensor& x) { return c10::multiply_integers(x.sizes().slice(1)); }

// A matrix of the entries and their features.
Tensor matrix_of(const Tensor& x) { return x.reshape({x.size(0), features_of(x)}); }

// A result of this many rows, in the shape of the other dimensions of `like`.
Tensor shaped(const Tensor& matrix, const Tensor& like) {
  at::DimVector sizes(like.sizes());
  sizes[0] = matrix.size(0);
  return matrix.reshape(sizes);
}

Tensor sum_of(const Segments& segments, const Tensor& x) {
  return segments.bins(x.size(1), 0, x).index_add_(0, segments.bin, x);
}

Tensor product_of(const Segments& segments, const Tensor& x) {
  const Tensor bin = segments.bin_of_values(x.size(1));
  return segments.bins(x.size(1), 1, x).scatter_reduce_(0, bin, x, "prod");
}

// The extremum of each bin. NaN wins.
Tensor extremum_of(const Segments& segments, const Tensor& x, bool is_max) {
  const at::Scalar start =
      x.is_floating_point()
          ? at::Scalar(std::numeric_limits<double>::infinity() * (is_max ? -1 : 1))
      : is_max ? at::Scalar(std::numeric_limits<int64_t>::min())
               : at::Scalar(std::numeric_limits<int64_t>::max());
  const Tensor bin = segments.bin_of_values(x.size(1));
  return segments.bins(x.size(1), start, x).scatter_reduce_(0, bin, x, is_max ? "amax" : "amin");
}

// The first entry of each bin that is its extremum, or `entries` in a bin without entries.
Tensor first_extremum(const Segments& segments, const Tensor& x, bool is_max) {
  const Tensor extremum = segments.of_entries(extremum_of(segments, x, is_max));
  const Tensor number = at::arange(segments.entries, segments.bin.options()).unsqueeze(1);
  const Tensor is_first = x.eq(extremum).logical_or(x.ne(x));  // a NaN is not equal to itself
  const Tensor candidates = at::where(is_first, number, segments.entries);
  const Tensor bin = segments.bin_of_values(x.size(1));
  return segments.bins(x.size(1), segments.entries, number)
      .scatter_reduce_(0, bin, candidates, "amin");
}

TensorPair on_cpu(const SegmentReduceArg& op) {
  const Reduce reduce = check(op);
  const Segments segments(name_of<SegmentReduceArg>(), op.offsets, op.data.size(0));
  const Tensor x = matrix_of(op.data);
  const Tensor first = segments.without_outside(
      first_extremum(segments, x.to(compute_type(x)), reduce == Reduce::kMax));
  const Tensor is_empty = first.eq(segments.entries);
  const Tensor padded = at::cat({x, x.new_full({1, x.size(1)}, empty_of(reduce, op.empty))});
  const Tensor values = padded.gather(0, first), arg = first.masked_fill(is_empty, -1);
  return {shaped(values, op.data), shaped(arg.to(op.offsets.scalar_type()), op.data)};
}

Tensor on_cpu(const SegmentReduce& op) {
  const Reduce reduce = check(op);
  const auto& [data, offsets, name, empty] = op;
  if (is_extremum(reduce)) {
    return std::get<0>(on_cpu(SegmentReduceArg{data, offsets, name, empty}));
  }
  const Segments segments(name_of<SegmentReduce>(), offsets, data.size(0));
  const Tensor x = matrix_of(data).to(compute_type(data));
  Tensor result = segments.without_outside(reduce == Reduce::kProd ? product_of(segments, x)
                                                                   : sum_of(segments, x));
  const Tensor lengths = segments.lengths.unsqueeze(1);
  if (reduce == Reduce::kMean) {
    const Tensor counts = lengths.clamp_min(1).to(x.scalar_type());
    result = x.is_floating_point() ? result.div(counts) : result.div(counts, "floor");
  }
  result = result.masked_fill(lengths.eq(0), empty_of(reduce, empty));
  return shaped(result.to(data.scalar_type()), data);
}

Tensor expanded(const Segments& segments, const Tensor& rows) {
  const Tensor outside = rows.new_zeros({1, rows.size(1)});
  return segments.of_entries(at::cat({outside, rows, outside}));
}

Tensor on_cpu(const SegmentExpand& op) {
  check(op);
  const Segments segments(name_of<SegmentExpand>(), op.offsets, op.entries.expect_int());
  return shaped(expanded(segments, matrix_of(op.rows)), op.rows);
}

Tensor on_cpu(const SegmentSelect& op) {
  check(op);
  const Segments segments(name_of<SegmentSelect>(), op.offsets, op.entries.expect_int());
  const Tensor chosen = expanded(segments, matrix_of(op.arg));
  const Tensor number = at::arange(segments.entries, op.arg.options()).unsqueeze(1);
  const Tensor values = expanded(segments, matrix_of(op.rows));
  const Tensor is_other = chosen.ne(number).logical_or(segments.is_outside());
  return shaped(values.masked_fill(is_other, 0), op.rows);
}

Tensor on_cpu(const SegmentSoftmax& op) {
  check(op);
  const Segments segments(name_of<SegmentSoftmax>(), op.offsets, op.src.size(0));
  const Tensor x = matrix_of(op.src).to(compute_type(op.src));
  const Tensor powers = x.sub(segments.of_entries(extremum_of(segments, x, /*is_max=*/true))).exp();
  const Tensor y = powers.div(segments.of_entries(sum_of(segments, powers)));
  return shaped(y.masked_fill(segments.is_outside(), 0).to(op.src.scalar_type()), op.src);
}

Tensor on_cpu(const SegmentSoftmaxBackward& op) {
  check(op);
  const Segments segments(name_of<SegmentSoftmaxBackward>(), op.offsets, op.result.size(0));
  const auto dtype = compute_type(op.result);
  const Tensor grad = matrix_of(op.grad).to(dtype), y = matrix_of(op.result).to(dtype);
  const Tensor sums = segments.of_entries(sum_of(segments, grad.mul(y)));
  return shaped(y.mul(grad.sub(sums)).to(op.result.scalar_type()), op.result);
}

TensorPair on_cpu(const GroupBy& op) {
  const at::ScalarType dtype = check(op);
  const int64_t bins = op.bins.expect_int();
  check_range(name_of<GroupBy>(), op.index, bins);
  const Tensor counts = op.index.bincount(/*weights=*/{}, bins);
  const Tensor ptr = at::cat({counts.new_zeros(1), counts.cumsum(0)});
  return {ptr.to(dtype), at::argsort(op.index, /*stable=*/true, 0).to(dtype)};
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  Ops::for_each([&]<typename Op>() { impl<Op, KernelOf<Op>(on_cpu)>(m); });
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

Tensor new_rows(const Tensor& like, const c10::SymInt& rows, at::ScalarType dtype) {
  auto sizes = like.sym_sizes().vec();
  sizes[0] = rows;
  return at::empty_symint(sizes, like.options().dtype(dtype));
}

Tensor on_meta(const SegmentReduce& op) {
  check(op);
  return new_rows(op.data, segments_of(op.offsets), op.data.scalar_type());
}

TensorPair on_meta(const SegmentReduceArg& op) {
  check(op);
  const c10::SymInt segments = segments_of(op.offsets);
  return {new_rows(op.data, segments, op.data.scalar_type()),
          new_rows(op.data, segments, op.offsets.scalar_type())};
}

Tensor on_meta(const SegmentExpand& op) {
  check(op);
  return new_rows(op.rows, op.entries, op.rows.scalar_type());
}

Tensor on_meta(const SegmentSelect& op) {
  check(op);
  return new_rows(op.rows, op.entries, op.rows.scalar_type());
}

Tensor on_meta(const SegmentSoftmax& op) {
  check(op);
  return at::empty_symint(op.src.sym_sizes(), op.src.options());
}

Tensor on_meta(const SegmentSoftmaxBackward& op) {
  check(op);
  return at::empty_symint(op.result.sym_sizes(), op.result.options());
}

TensorPair on_meta(const GroupBy& op) {
  const auto options = op.index.options().dtype(check(op));
  return {at::empty_symint({op.bins + 1}, options),
          at::empty_symint({op.index.sym_numel()}, options)};
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  Ops::for_each([&]<typename Op>() { impl<Op, KernelOf<Op>(on_meta)>(m); });
}

}  // namespace
}  // namespace gpuopt::segment
