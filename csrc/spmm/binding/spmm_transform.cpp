// Sparse products under torch.vmap and autocast.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <array>
#include <vector>

#include "binding/vmap.h"
#include "spmm/binding/spmm_attention.h"

namespace gpuopt::spmm {
namespace {

using Operand = VmapLevel::Operand;

// ---------------------------------------------------------------- vmap

// All examples have the same matrix, so the tensors that describe it have no batch dimension.
Tensor shared(const VmapLevel& level, const char* op, const char* name, const Tensor& tensor) {
  const Operand operand = level.unwrap(tensor);
  TORCH_CHECK_NOT_IMPLEMENTED(!operand.batch_dim.has_value(), op, ": ", name,
                              " must be the same for all examples of torch.vmap: expected None in "
                              "in_dims, got ",
                              operand.batch_dim.value_or(0));
  return operand.value;
}

// The tensors that describe the matrix and its transpose, at the level below vmap.
template <typename Op>
struct Structure {
  Structure(const VmapLevel& level, const Op& op)
      : ptr(shared(level, name_of<Op>(), "ptr", op.ptr)),
        index(option(level, "index", op.index)),
        entry(option(level, "entry", op.entry)) {
    if constexpr (requires { op.t_ptr; }) {
      t_ptr = option(level, "t_ptr", op.t_ptr);
      t_index = option(level, "t_index", op.t_index);
      t_entry = option(level, "t_entry", op.t_entry);
    }
  }

  static TensorOption option(const VmapLevel& level, const char* name, const TensorOption& tensor) {
    if (!is_given(tensor)) return std::nullopt;
    return shared(level, name_of<Op>(), name, *tensor);
  }

  Tensor ptr;
  TensorOption index, entry, t_ptr, t_index, t_entry;
};

std::optional<SymInt> examples_of(std::initializer_list<const Operand*> operands) {
  for (const Operand* operand : operands) {
    if (operand->batch_dim.has_value()) return operand->value.sym_size(*operand->batch_dim);
  }
  return std::nullopt;
}

// The operands of a product with dense rows in which the examples are folded, and the way back.
//
// Examples that share the values are leading dimensions of dense. With values for each example,
// the examples are heads.
class Folded {
 public:
  Folded(const VmapLevel& level, const TensorOption& value, const Tensor& dense,
         const Tensor& selected, const char* op)
      : value_(is_given(value) ? level.unwrap(*value) : Operand{}),
        dense_(level.unwrap(dense)),
        selected_(selected.defined() ? level.unwrap(selected) : Operand{}),
        examples_(examples_of({&value_, &dense_, &selected_})) {
    if (!examples_.has_value()) return;
    by_head_ = value_.batch_dim.has_value();
    has_heads_ = value_.value.defined() && value_.logical_dim() == 2;
    dims_ = dense_.logical_dim();
    TORCH_CHECK(dims_ >= (has_heads_ ? 3 : 1), op,
                ": dense must have rows in every example: expected at least ", has_heads_ ? 3 : 1,
                " dimensions, got ", dims_);
    row_dim_ = dims_ == 1 ? 0 : dims_ - (has_heads_ ? 3 : 2);
    if (by_head_ && has_heads_) heads_ = value_.value.movedim(*value_.batch_dim, 0).sym_size(2);
  }

  bool has_examples() const { return examples_.has_value(); }

  TensorOption value() const {
    if (!value_.value.defined()) return std::nullopt;
    if (!by_head_) return value_.value;
    const Tensor moved = value_.value.movedim(*value_.batch_dim, 1);
    return has_heads_ ? moved.flatten(1, 2) : moved;
  }
  Tensor dense() const { return folded(dense_); }
  Tensor selected() const { return folded(selected_); }

  // A result at vmap's level.
  Tensor wrapped(const VmapLevel& level, const Tensor& result) const {
    if (!has_examples()) return level.wrap(result, std::nullopt);
    Tensor own = result;
    int64_t batch_dim = 0;
    if (by_head_) {
      batch_dim = row_dim_ + 1;
      if (has_heads_) {
        own = own.unflatten_symint(batch_dim, std::array<SymInt, 2>{*examples_, heads_});
      }
    }
    return level.wrap(dims_ == 1 ? own.squeeze(-1) : own, batch_dim);
  }

 private:
  Tensor folded(const Operand& rows) const {
    if (!has_examples()) return rows.value;
    const Tensor front = rows.in_front(*examples_);
    const Tensor whole = dims_ == 1 ? front.unsqueeze(-1) : front;
    if (!by_head_) return whole;
    const Tensor moved = whole.movedim(0, row_dim_ + 1);
    return has_heads_ ? moved.flatten(row_dim_ + 1, row_dim_ + 2) : moved;
  }

  Operand value_, dense_, selected_;
  std::optional<SymInt> examples_;
  bool by_head_ = false, has_heads_ = false;
  int64_t dims_ = 0, row_dim_ = 0;
  SymInt heads_ = 1;
};

Tensor spmm_vmap(const Spmm& op) {
  const VmapLevel level;
  const Structure<Spmm> a(level, op);
  const Folded folded(level, op.value, op.dense, {}, name_of<Spmm>());
  return folded.wrapped(level, call(Spmm{a.ptr, a.index, a.entry, folded.value(), folded.dense(),
                                         op.reduce, a.t_ptr, a.t_index, a.t_entry}));
}

SpmmArg::Result arg_vmap(const SpmmArg& op) {
  const VmapLevel level;
  const Structure<SpmmArg> a(level, op);
  const Folded folded(level, op.value, op.dense, {}, name_of<SpmmArg>());
  const auto [result, arg] =
      call(SpmmArg{a.ptr, a.index, a.entry, folded.value(), folded.dense(), op.reduce});
  return {folded.wrapped(level, result), folded.wrapped(level, arg)};
}

Tensor selected_vmap(const SpmmSelected& op) {
  const VmapLevel level;
  const Structure<SpmmSelected> a(level, op);
  const Folded folded(level, op.value, op.dense, op.selected, name_of<SpmmSelected>());
  return folded.wrapped(level, call(SpmmSelected{a.ptr, a.index, a.entry, folded.value(),
                                                 folded.dense(), folded.selected()}));
}

// Examples are heads.
Tensor sddmm_vmap(const Sddmm& op) {
  const VmapLevel level;
  const Structure<Sddmm> s(level, op);
  const Operand a = level.unwrap(op.a), b = level.unwrap(op.b);
  const std::optional<SymInt> examples = examples_of({&a, &b});
  const auto product = [&](const Tensor& left, const Tensor& right, bool heads) {
    return call(Sddmm{s.ptr, s.index, s.entry, left, right, heads, s.t_ptr, s.t_index, s.t_entry});
  };
  if (!examples.has_value()) return level.wrap(product(a.value, b.value, op.heads), std::nullopt);
  const int64_t dims = op.heads ? 3 : 2;
  for (const auto& [name, operand] : {std::pair{"a", &a}, {"b", &b}}) {
    TORCH_CHECK(operand->logical_dim() == dims, name_of<Sddmm>(), ": ", name, " must have ", dims,
                " dimensions in every example, got ", operand->logical_dim());
  }
  const auto folded = [&](const Operand& operand) {
    const Tensor rows = operand.in_front(*examples).movedim(0, 1);
    return op.heads ? rows.flatten(1, 2) : rows;
  };
  const Tensor result = product(folded(a), folded(b), true);
  if (!op.heads) return level.wrap(result, 1);
  const SymInt heads = a.in_front(*examples).sym_size(2);
  return level.wrap(result.unflatten_symint(1, std::array<SymInt, 2>{*examples, heads}), 1);
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl<Spmm, spmm_vmap>(m);
  impl<SpmmArg, arg_vmap>(m);
  impl<SpmmSelected, selected_vmap>(m);
  impl<Sddmm, sddmm_vmap>(m);
  impl<GraphAttention, composed>(m);  // of operators with batching rules
}

// ---------------------------------------------------------------- autocast

// As ATen's products of matrices, computed in the lower precision. Integers stay as they are.
template <typename Op, c10::DeviceType device>
typename Op::Result product_autocast(const Op& op) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto dtype = at::autocast::get_lower_precision_fp_from_device_type(device);
  return call_mapped(
      op, [&](const Tensor& tensor) { return at::autocast::cached_cast(dtype, tensor, device); });
}

TORCH_LIBRARY_IMPL(gpuopt, AutocastCUDA, m) {
  impl<Spmm, product_autocast<Spmm, c10::DeviceType::CUDA>>(m);
  impl<Sddmm, product_autocast<Sddmm, c10::DeviceType::CUDA>>(m);
  impl<GraphAttention, product_autocast<GraphAttention, c10::DeviceType::CUDA>>(m);
}
TORCH_LIBRARY_IMPL(gpuopt, AutocastCPU, m) {
  impl<Spmm, product_autocast<Spmm, c10::DeviceType::CPU>>(m);
  impl<Sddmm, product_autocast<Sddmm, c10::DeviceType::CPU>>(m);
  impl<GraphAttention, product_autocast<GraphAttention, c10::DeviceType::CPU>>(m);
}

}  // namespace
}  // namespace gpuopt::spmm
