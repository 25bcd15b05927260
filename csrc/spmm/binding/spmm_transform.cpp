// Sparse products under torch.vmap and autocast.
#include <array>

#include "binding/autocast.h"
#include "binding/vmap.h"
#include "spmm/binding/spmm_check.h"

namespace gpuopt::spmm {
namespace {

using Operand = VmapLevel::Operand;

// ---------------------------------------------------------------- vmap

// All examples have the same matrix, so the tensors that describe it have no batch dimension.
template <typename Op>
void check_shared(const VmapLevel& level, const Op& op) {
  const auto check = [&](const char* name, const TensorOption& tensor) {
    if (!is_given(tensor)) return;
    const Operand operand = level.unwrap(*tensor);
    TORCH_CHECK_NOT_IMPLEMENTED(!operand.batch_dim.has_value(), name_of<Op>(), ": ", name,
                                " must be the same for all examples of torch.vmap: expected None "
                                "in in_dims, got ",
                                operand.batch_dim.value_or(0));
  };
  check("ptr", op.ptr);
  check("index", op.index);
  check("entry", op.entry);
  if constexpr (requires { op.t_ptr; }) {
    check("t_ptr", op.t_ptr);
    check("t_index", op.t_index);
    check("t_entry", op.t_entry);
  }
}

// The operands of a product with dense rows in which the examples are folded, and the way back.
//
// Examples that share the values are leading dimensions of dense. With values for each example,
// the examples are heads.
class Folded {
 public:
  Folded(const VmapLevel& level, const SymInt& examples, const TensorOption& value,
         const Tensor& dense, const char* op)
      : level_(level),
        value_(is_given(value) ? level.unwrap(*value) : Operand{}),
        dense_(level.unwrap(dense)),
        examples_(examples),
        by_head_(value_.batch_dim.has_value()),
        has_heads_(value_.value.defined() && value_.logical_dim() == 2),
        dims_(dense_.logical_dim()),
        row_dim_(dims_ == 1 ? 0 : dims_ - (has_heads_ ? 3 : 2)) {
    TORCH_CHECK(dims_ >= (has_heads_ ? 3 : 1), op,
                ": dense must have rows in every example: expected at least ", has_heads_ ? 3 : 1,
                " dimensions, got ", dims_);
    if (by_head_ && has_heads_) heads_ = value_.value.movedim(*value_.batch_dim, 0).sym_size(2);
  }

  TensorOption value() const {
    if (!value_.value.defined()) return std::nullopt;
    if (!by_head_) return value_.value;
    const Tensor moved = value_.value.movedim(*value_.batch_dim, 1);
    return has_heads_ ? moved.flatten(1, 2) : moved;
  }
  Tensor dense() const { return rows(dense_); }

  // Dense, or a tensor of its shape.
  Tensor rows(const Operand& rows) const {
    const Tensor front = rows.in_front(examples_);
    const Tensor whole = dims_ == 1 ? front.unsqueeze(-1) : front;
    if (!by_head_) return whole;
    const Tensor moved = whole.movedim(0, row_dim_ + 1);
    return has_heads_ ? moved.flatten(row_dim_ + 1, row_dim_ + 2) : moved;
  }

  // A result at vmap's level.
  Tensor wrapped(const Tensor& result) const {
    Tensor unfolded = result;
    if (by_head_ && has_heads_) {
      unfolded = unfolded.unflatten_symint(row_dim_ + 1, std::array<SymInt, 2>{examples_, heads_});
    }
    return level_.wrap(dims_ == 1 ? unfolded.squeeze(-1) : unfolded, by_head_ ? row_dim_ + 1 : 0);
  }

 private:
  const VmapLevel& level_;
  Operand value_, dense_;
  SymInt examples_;
  bool by_head_, has_heads_;
  int64_t dims_, row_dim_;
  SymInt heads_ = 1;
};

Tensor spmm_vmap(const Spmm& op, const VmapLevel& level, const SymInt& examples) {
  check_shared(level, op);
  const Folded folded(level, examples, op.value, op.dense, name_of<Spmm>());
  return folded.wrapped(call(Spmm{op.ptr, op.index, op.entry, folded.value(), folded.dense(),
                                  op.reduce, op.t_ptr, op.t_index, op.t_entry}));
}

SpmmArg::Result arg_vmap(const SpmmArg& op, const VmapLevel& level, const SymInt& examples) {
  check_shared(level, op);
  const Folded folded(level, examples, op.value, op.dense, name_of<SpmmArg>());
  const auto [result, arg] =
      call(SpmmArg{op.ptr, op.index, op.entry, folded.value(), folded.dense(), op.reduce});
  return {folded.wrapped(result), folded.wrapped(arg)};
}

Tensor selected_vmap(const SpmmSelected& op, const VmapLevel& level, const SymInt& examples) {
  check_shared(level, op);
  const Folded folded(level, examples, op.value, op.dense, name_of<SpmmSelected>());
  const Tensor selected = folded.rows(level.unwrap(op.selected));
  return folded.wrapped(
      call(SpmmSelected{op.ptr, op.index, op.entry, folded.value(), folded.dense(), selected}));
}

// Examples are heads.
Tensor sddmm_vmap(const Sddmm& op, const VmapLevel& level, const SymInt& examples) {
  check_shared(level, op);
  const int64_t dims = op.heads ? 3 : 2;
  const auto folded = [&](NamedTensor factor) {
    const Operand operand = level.unwrap(factor.tensor);
    TORCH_CHECK(operand.logical_dim() == dims, name_of<Sddmm>(), ": ", factor.name, " must have ",
                dims, " dimensions in every example, got ", operand.logical_dim());
    const Tensor rows = operand.in_front(examples).movedim(0, 1);
    return op.heads ? rows.flatten(1, 2) : rows;
  };
  const Tensor a = folded({"a", op.a}), b = folded({"b", op.b});
  const Tensor result = call(
      Sddmm{op.ptr, op.index, op.entry, a, b, /*heads=*/true, op.t_ptr, op.t_index, op.t_entry});
  if (!op.heads) return level.wrap(result, 1);
  return level.wrap(result.unflatten_symint(1, std::array<SymInt, 2>{examples, op.a.sym_size(1)}),
                    1);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl<Spmm, Vmap<spmm_vmap>>(m);
  impl<SpmmArg, Vmap<arg_vmap>>(m);
  impl<SpmmSelected, Vmap<selected_vmap>>(m);
  impl<Sddmm, Vmap<sddmm_vmap>>(m);
}

// ---------------------------------------------------------------- autocast

// Integers stay as they are.
TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  OpList<Spmm, Sddmm>::for_each(
      [&]<typename Op>() { impl<Op, Autocast<lower_precision, at::kCUDA, at::kCPU>>(m); });
}

}  // namespace
}  // namespace gpuopt::spmm
