// Reductions of segments under torch.vmap. Examples that share the offsets become features. With
// offsets for each example, the entries of all examples lie behind each other. They need no rule
// for autocast, because they compute half types in float32.
#include <array>

#include "binding/vmap.h"
#include "segment/segment_check.h"

namespace gpuopt::segment {
namespace {

using c10::SymInt;
using Operand = VmapLevel::Operand;

// The operands of a call, which is one call for all examples.
class Examples {
 public:
  Examples(const VmapLevel& level, const Tensor& offsets, const SymInt& count)
      : level_(level),
        offsets_(level.unwrap(offsets)),
        count_(count),
        folds_(offsets_.batch_dim.has_value()) {}

  // Entries and their features, as the call gets them.
  Tensor entries(const Tensor& x) const {
    return folds_ ? level_.unwrap(x).in_front(count_).flatten(0, 1) : beside(x);
  }

  // Rows of the segments. Examples that lie behind each other have one more segment each, which
  // reaches from the example's entries to the next example.
  Tensor rows(const Tensor& x, int64_t fill = 0) const {
    if (!folds_) return beside(x);
    const Tensor all = level_.unwrap(x).in_front(count_);
    auto sizes = all.sym_sizes().vec();
    sizes[1] = 1;
    const Tensor last = at::full_symint(sizes, fill, all.options());
    return at::cat({all, last}, 1).flatten(0, 1);
  }

  // Numbers of entries, from 0 on in each example.
  Tensor numbers(const Tensor& x, const SymInt& entries) const {
    const Tensor numbers_of_rows = rows(x, /*fill=*/-1);
    if (!folds_) return numbers_of_rows;
    const Tensor split = unfolded(numbers_of_rows.to(at::kLong), rows_of_example());
    return at::where(split.lt(0), -1, split.add(first_entries(split, entries))).flatten(0, 1);
  }

  // The offsets of the call. They are int64 where the entries of all examples are counted.
  Tensor offsets(const SymInt& entries) const {
    if (!folds_) return offsets_.value;
    const Tensor clamped =
        offsets_.in_front(count_).to(at::kLong).clamp(at::Scalar(0), at::Scalar(entries));
    const Tensor all = clamped.add(first_entries(clamped, entries)).flatten();
    return at::cat({all, at::full_symint({1}, entries * count_, all.options())});
  }

  SymInt entries_of_all(const SymInt& entries) const { return folds_ ? entries * count_ : entries; }

  Tensor wrapped_entries(const Tensor& result, const SymInt& entries) const {
    if (!folds_) return level_.wrap(result, 1);
    return level_.wrap(unfolded(result, entries), 0);
  }
  Tensor wrapped_rows(const Tensor& result) const {
    if (!folds_) return level_.wrap(result, 1);
    return level_.wrap(without_last(unfolded(result, rows_of_example())), 0);
  }
  Tensor wrapped_numbers(const Tensor& result, const SymInt& entries, at::ScalarType dtype) const {
    if (!folds_) return level_.wrap(result, 1);
    const Tensor all = without_last(unfolded(result, rows_of_example()));
    return level_.wrap(at::where(all.lt(0), -1, all.sub(first_entries(all, entries))).to(dtype), 0);
  }

  // Sets what belongs to no segment to 0, where a folded call has a segment for it.
  Tensor masked(const Tensor& result, const SymInt& entries) const {
    if (!folds_) return result;
    const Tensor example_offsets = offsets_.in_front(count_);
    const Tensor number = at::arange(at::Scalar(entries), example_offsets.options());
    const Tensor is_outside = number.lt(example_offsets.narrow(1, 0, 1))
                                  .logical_or(number.ge(example_offsets.narrow_symint(
                                      1, example_offsets.sym_size(1) - 1, 1)))
                                  .flatten();
    std::vector<SymInt> sizes(result.dim(), 1);
    sizes[0] = is_outside.sym_size(0);
    return result.masked_fill(is_outside.view_symint(sizes), 0);
  }

 private:
  // Examples that share the segments are features: the second dimension.
  Tensor beside(const Tensor& x) const { return level_.unwrap(x).in_front(count_).movedim(0, 1); }
  // The operands of an example, in the second dimension. There may be no examples.
  Tensor unfolded(const Tensor& x, const SymInt& of_example) const {
    return x.unflatten_symint(0, std::array<SymInt, 2>{count_, of_example});
  }
  // The segments of an example in a folded call, with the one behind them.
  SymInt rows_of_example() const { return offsets_.in_front(count_).sym_size(1); }
  static Tensor without_last(const Tensor& x) { return x.narrow_symint(1, 0, x.sym_size(1) - 1); }
  // The number of the first entry of each example, which broadcasts to `like`.
  Tensor first_entries(const Tensor& like, const SymInt& entries) const {
    std::vector<SymInt> sizes(like.dim(), 1);
    sizes[0] = count_;
    return at::arange(at::Scalar(count_), like.options().dtype(at::kLong))
        .mul(at::Scalar(entries))
        .view_symint(sizes);
  }

  const VmapLevel& level_;
  Operand offsets_;
  SymInt count_;
  bool folds_;  // whether each example has different segments
};

Tensor reduce_vmap(const SegmentReduce& op, const VmapLevel& level, const SymInt& count) {
  check(op);
  const SymInt entries = op.data.sym_size(0);
  const Examples examples(level, op.offsets, count);
  return examples.wrapped_rows(call(
      SegmentReduce{examples.entries(op.data), examples.offsets(entries), op.reduce, op.empty}));
}

TensorPair reduce_arg_vmap(const SegmentReduceArg& op, const VmapLevel& level,
                           const SymInt& count) {
  check(op);
  const SymInt entries = op.data.sym_size(0);
  const at::ScalarType dtype = op.offsets.scalar_type();
  const Examples examples(level, op.offsets, count);
  const auto [values, arg] = call(
      SegmentReduceArg{examples.entries(op.data), examples.offsets(entries), op.reduce, op.empty});
  return {examples.wrapped_rows(values), examples.wrapped_numbers(arg, entries, dtype)};
}

Tensor expand_vmap(const SegmentExpand& op, const VmapLevel& level, const SymInt& count) {
  check(op);
  const Examples examples(level, op.offsets, count);
  return examples.wrapped_entries(
      call(SegmentExpand{examples.rows(op.rows), examples.offsets(op.entries),
                         examples.entries_of_all(op.entries)}),
      op.entries);
}

Tensor select_vmap(const SegmentSelect& op, const VmapLevel& level, const SymInt& count) {
  check(op);
  const Examples examples(level, op.offsets, count);
  return examples.wrapped_entries(
      call(SegmentSelect{examples.rows(op.rows), examples.numbers(op.arg, op.entries),
                         examples.offsets(op.entries), examples.entries_of_all(op.entries)}),
      op.entries);
}

Tensor softmax_vmap(const SegmentSoftmax& op, const VmapLevel& level, const SymInt& count) {
  check(op);
  const SymInt entries = op.src.sym_size(0);
  const Examples examples(level, op.offsets, count);
  const Tensor result = call(SegmentSoftmax{examples.entries(op.src), examples.offsets(entries)});
  return examples.wrapped_entries(examples.masked(result, entries), entries);
}

Tensor softmax_backward_vmap(const SegmentSoftmaxBackward& op, const VmapLevel& level,
                             const SymInt& count) {
  check(op);
  const SymInt entries = op.result.sym_size(0);
  const Examples examples(level, op.offsets, count);
  return examples.wrapped_entries(
      call(SegmentSoftmaxBackward{examples.entries(op.grad), examples.entries(op.result),
                                  examples.offsets(entries)}),
      entries);
}

// The bins of all examples lie behind each other.
TensorPair group_vmap(const GroupBy& op, const VmapLevel& level, const SymInt& examples) {
  const at::ScalarType dtype = check(op);
  const SymInt& bins = op.bins;
  const Tensor index = level.unwrap(op.index).in_front(examples).to(at::kLong);
  const Tensor folded = fold_index(index, examples, bins);
  const auto [ptr, perm] = call(GroupBy{folded, bins * examples, at::kLong});
  const SymInt entries = index.sym_size(1);
  const Tensor first =
      at::arange(at::Scalar(examples), index.options()).mul(at::Scalar(entries)).unsqueeze(1);
  const Tensor begins =
      ptr.narrow_symint(0, 0, bins * examples).view_symint({examples, bins}).sub(first);
  const Tensor ends = at::full_symint({examples, 1}, entries, begins.options());
  return {level.wrap(at::cat({begins, ends}, 1).to(dtype), 0),
          level.wrap(perm.view_symint({examples, entries}).sub(first).to(dtype), 0)};
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl<SegmentReduce, Vmap<reduce_vmap>>(m);
  impl<SegmentReduceArg, Vmap<reduce_arg_vmap>>(m);
  impl<SegmentExpand, Vmap<expand_vmap>>(m);
  impl<SegmentSelect, Vmap<select_vmap>>(m);
  impl<SegmentSoftmax, Vmap<softmax_vmap>>(m);
  impl<SegmentSoftmaxBackward, Vmap<softmax_backward_vmap>>(m);
  impl<GroupBy, Vmap<group_vmap>>(m);
}

}  // namespace
}  // namespace gpuopt::segment
