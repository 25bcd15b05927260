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
  Examples(const Tensor& offsets, std::initializer_list<Tensor> tensors)
      : offsets_(level_.unwrap(offsets)) {
    note(offsets_);
    for (const Tensor& tensor : tensors) note(level_.unwrap(tensor));
    folds_ = offsets_.batch_dim.has_value();
  }

  // Whether each example has segments of its own.
  bool folds() const { return folds_; }

  // Entries and their features, as the call gets them. Without examples they stay as they are.
  Tensor entries(const Tensor& x) const {
    return folds_ ? level_.unwrap(x).in_front(*count_).flatten(0, 1) : beside(x);
  }

  // Rows of the segments. Examples that lie behind each other have one more segment each, which
  // reaches from the own entries to the next example.
  Tensor rows(const Tensor& x, int64_t fill = 0) const {
    if (!folds_) return beside(x);
    const Tensor all = level_.unwrap(x).in_front(*count_);
    auto sizes = all.sym_sizes().vec();
    sizes[1] = 1;
    const Tensor last = at::full_symint(sizes, fill, all.options());
    return at::cat({all, last}, 1).flatten(0, 1);
  }

  // Numbers of entries, from 0 on in each example.
  Tensor numbers(const Tensor& x, const SymInt& entries) const {
    const Tensor own = rows(x, /*fill=*/-1);
    if (!folds_) return own;
    const Tensor split = unfolded(own.to(at::kLong));
    return at::where(split.lt(0), -1, split.add(first_entries(split, entries))).flatten(0, 1);
  }

  // The offsets of the call. They are int64 where the entries of all examples are counted.
  Tensor offsets(const SymInt& entries) const {
    if (!folds_) return offsets_.value;
    const Tensor own =
        offsets_.in_front(*count_).to(at::kLong).clamp(at::Scalar(0), at::Scalar(entries));
    const Tensor all = own.add(first_entries(own, entries)).flatten();
    return at::cat({all, at::full_symint({1}, entries * *count_, all.options())});
  }

  SymInt entries_of_all(const SymInt& entries) const {
    return folds_ ? entries * *count_ : entries;
  }

  Tensor wrapped_entries(const Tensor& result) const {
    if (!folds_) return level_.wrap(result, position());
    return level_.wrap(unfolded(result), 0);
  }
  Tensor wrapped_rows(const Tensor& result) const {
    if (!folds_) return level_.wrap(result, position());
    return level_.wrap(without_last(unfolded(result)), 0);
  }
  Tensor wrapped_numbers(const Tensor& result, const SymInt& entries, at::ScalarType dtype) const {
    if (!folds_) return level_.wrap(result, position());
    const Tensor all = without_last(unfolded(result));
    return level_.wrap(at::where(all.lt(0), -1, all.sub(first_entries(all, entries))).to(dtype), 0);
  }

  // Sets what belongs to no segment to 0, where a folded call has a segment for it.
  Tensor masked(const Tensor& result, const SymInt& entries) const {
    if (!folds_) return result;
    const Tensor own = offsets_.in_front(*count_);
    const Tensor number = at::arange(at::Scalar(entries), own.options());
    const Tensor is_outside =
        number.lt(own.narrow(1, 0, 1))
            .logical_or(number.ge(own.narrow_symint(1, own.sym_size(1) - 1, 1)))
            .flatten();
    std::vector<SymInt> sizes(result.dim(), 1);
    sizes[0] = is_outside.sym_size(0);
    return result.masked_fill(is_outside.view_symint(sizes), 0);
  }

 private:
  void note(const Operand& operand) {
    if (operand.batch_dim.has_value()) count_ = operand.value.sym_size(*operand.batch_dim);
  }

  // Where the examples are if they share the segments: behind the entries, as features.
  std::optional<int64_t> position() const {
    return count_.has_value() ? std::optional<int64_t>(1) : std::nullopt;
  }
  Tensor beside(const Tensor& x) const {
    const Operand operand = level_.unwrap(x);
    return count_.has_value() ? operand.in_front(*count_).movedim(0, 1) : operand.value;
  }
  // The operands of an example, in the second dimension.
  Tensor unfolded(const Tensor& x) const {
    return x.unflatten_symint(0, std::array<SymInt, 2>{*count_, x.sym_size(0) / *count_});
  }
  static Tensor without_last(const Tensor& x) { return x.narrow_symint(1, 0, x.sym_size(1) - 1); }
  // The number of the first entry of each example, which broadcasts to `like`.
  Tensor first_entries(const Tensor& like, const SymInt& entries) const {
    std::vector<SymInt> sizes(like.dim(), 1);
    sizes[0] = *count_;
    return at::arange(at::Scalar(*count_), like.options().dtype(at::kLong))
        .mul(at::Scalar(entries))
        .view_symint(sizes);
  }

  VmapLevel level_;
  Operand offsets_;
  std::optional<SymInt> count_;
  bool folds_;
};

Tensor reduce_vmap(const SegmentReduce& op) {
  check(op);
  const SymInt entries = op.data.sym_size(0);
  const Examples examples(op.offsets, {op.data});
  return examples.wrapped_rows(call(
      SegmentReduce{examples.entries(op.data), examples.offsets(entries), op.reduce, op.empty}));
}

TensorPair reduce_arg_vmap(const SegmentReduceArg& op) {
  check(op);
  const SymInt entries = op.data.sym_size(0);
  const at::ScalarType dtype = op.offsets.scalar_type();
  const Examples examples(op.offsets, {op.data});
  const auto [values, arg] = call(
      SegmentReduceArg{examples.entries(op.data), examples.offsets(entries), op.reduce, op.empty});
  return {examples.wrapped_rows(values), examples.wrapped_numbers(arg, entries, dtype)};
}

Tensor expand_vmap(const SegmentExpand& op) {
  check(op);
  const Examples examples(op.offsets, {op.rows});
  return examples.wrapped_entries(call(SegmentExpand{
      examples.rows(op.rows), examples.offsets(op.entries), examples.entries_of_all(op.entries)}));
}

Tensor select_vmap(const SegmentSelect& op) {
  check(op);
  const Examples examples(op.offsets, {op.rows, op.arg});
  return examples.wrapped_entries(
      call(SegmentSelect{examples.rows(op.rows), examples.numbers(op.arg, op.entries),
                         examples.offsets(op.entries), examples.entries_of_all(op.entries)}));
}

Tensor softmax_vmap(const SegmentSoftmax& op) {
  check(op);
  const SymInt entries = op.src.sym_size(0);
  const Examples examples(op.offsets, {op.src});
  const Tensor result = call(SegmentSoftmax{examples.entries(op.src), examples.offsets(entries)});
  return examples.wrapped_entries(examples.masked(result, entries));
}

Tensor softmax_backward_vmap(const SegmentSoftmaxBackward& op) {
  check(op);
  const SymInt entries = op.result.sym_size(0);
  const Examples examples(op.offsets, {op.grad, op.result});
  return examples.wrapped_entries(call(SegmentSoftmaxBackward{
      examples.entries(op.grad), examples.entries(op.result), examples.offsets(entries)}));
}

// The bins of all examples lie behind each other.
TensorPair group_vmap(const GroupBy& op) {
  const at::ScalarType dtype = check(op);
  const auto& [index, bins, _] = op;
  const VmapLevel level;
  const Operand operand = level.unwrap(index);
  if (!operand.batch_dim.has_value()) {
    const auto [ptr, perm] = call(GroupBy{operand.value, bins, dtype});
    return {level.wrap(ptr, std::nullopt), level.wrap(perm, std::nullopt)};
  }
  const SymInt examples = operand.value.sym_size(*operand.batch_dim);
  const Tensor own = operand.in_front(examples).to(at::kLong);
  const Tensor example = at::arange(at::Scalar(examples), own.options()).unsqueeze(1);
  // An entry out of range stays out of range, and does not get into the bins of another example.
  const Tensor in_range = own.ge(0).logical_and(own.lt(at::Scalar(bins)));
  const Tensor folded = at::where(in_range, own.add(example.mul(at::Scalar(bins))), -1).flatten();
  const auto [ptr, perm] = call(GroupBy{folded, bins * examples, at::kLong});
  const SymInt entries = own.sym_size(1);
  const Tensor first = example.mul(at::Scalar(entries));
  const Tensor begins =
      ptr.narrow_symint(0, 0, bins * examples).view_symint({examples, bins}).sub(first);
  const Tensor ends = at::full_symint({examples, 1}, entries, begins.options());
  return {level.wrap(at::cat({begins, ends}, 1).to(dtype), 0),
          level.wrap(perm.view_symint({examples, entries}).sub(first).to(dtype), 0)};
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl<SegmentReduce, reduce_vmap>(m);
  impl<SegmentReduceArg, reduce_arg_vmap>(m);
  impl<SegmentExpand, expand_vmap>(m);
  impl<SegmentSelect, select_vmap>(m);
  impl<SegmentSoftmax, softmax_vmap>(m);
  impl<SegmentSoftmaxBackward, softmax_backward_vmap>(m);
  impl<GroupBy, group_vmap>(m);
}

}  // namespace
}  // namespace gpuopt::segment
