// index_add under torch.vmap and under functionalization. Autocast has no policy for it, as in
// ATen.
#include <torch/library.h>

#include <array>
#include <string_view>

#include "binding/functionalize.h"
#include "binding/vmap.h"
#include "index_add/binding/index_add_check.h"
#include "index_add/binding/index_add_ops.h"

namespace gpuopt::index_add {
namespace {

using at::Scalar;
using at::Tensor;
using c10::SymInt;
using Operand = VmapLevel::Operand;

// ---------------------------------------------------------------- vmap

// Returns an operand with its batch dimension at `position`. An operand without dimensions gets one
// that can be indexed. An operand that all examples share is expanded, without a copy.
Tensor batched_at(const Operand& operand, int64_t position, const SymInt& examples) {
  Tensor value = operand.value;
  if (operand.logical_dim() == 0) value = value.unsqueeze(-1);
  if (operand.batch_dim.has_value()) return value.movedim(*operand.batch_dim, position);
  value = value.unsqueeze(position);
  auto sizes = value.sym_sizes().vec();
  sizes[position] = examples;
  return value.expand_symint(sizes);
}

// The three operands of a call at the innermost level.
struct Operands {
  Operands(const VmapLevel& level, const Tensor& self_, const Tensor& index_, const Tensor& source_)
      : self(level.unwrap(self_)), index(level.unwrap(index_)), source(level.unwrap(source_)) {}

  // The number of examples, or none if only another level maps over the operands.
  std::optional<SymInt> examples() const {
    for (const Operand* operand : {&self, &index, &source}) {
      if (operand->batch_dim.has_value()) return operand->value.sym_size(*operand->batch_dim);
    }
    return std::nullopt;
  }

  Operand self, index, source;
};

// Makes an index of (examples, entries) one into the concatenated rows of all examples. Entries out
// of range become -1, so that they do not reach the rows of another example.
Tensor fold_index(const Tensor& index, const SymInt& examples, const SymInt& bins) {
  const Tensor own = index.to(at::kLong);
  const Tensor first = at::arange(Scalar(examples), own.options()).mul(Scalar(bins)).unsqueeze(1);
  const Tensor in_range = own.ge(0).logical_and(own.lt(Scalar(bins)));
  return at::where(in_range, own.add(first), -1).flatten();
}

// For examples with an index each: one call on the concatenated rows of all examples. The result
// has the examples in dimension `dim` and their rows in the next.
Tensor add_folded(const Operands& in, int64_t dim, const SymInt& examples, const Scalar& alpha,
                  std::string_view mode) {
  const Tensor self = batched_at(in.self, dim, examples);
  const SymInt bins = self.sym_size(dim + 1);
  const Tensor result = ops::index_add().call(
      self.flatten(dim, dim + 1), dim,
      fold_index(batched_at(in.index, 0, examples), examples, bins),
      batched_at(in.source, dim, examples).flatten(dim, dim + 1), alpha, mode);
  return result.unflatten_symint(dim, std::array<SymInt, 2>{examples, bins});
}

Tensor index_add_vmap(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                      const Scalar& alpha, std::string_view mode) {
  dim = check_index_add("gpuopt::index_add", self, dim, index, source, alpha, mode).dim;
  const VmapLevel level;
  const Operands in(level, self, index, source);
  const auto examples = in.examples();
  if (!examples.has_value()) {
    return level.wrap(
        ops::index_add().call(in.self.value, dim, in.index.value, in.source.value, alpha, mode),
        std::nullopt);
  }
  const bool folds = in.index.batch_dim.has_value();
  const Tensor result =
      folds ? add_folded(in, dim, *examples, alpha, mode)
            : ops::index_add().call(batched_at(in.self, 0, *examples), dim + 1, in.index.value,
                                    batched_at(in.source, 0, *examples), alpha, mode);
  return level.wrap(in.self.logical_dim() == 0 ? result.squeeze(-1) : result, folds ? dim : 0);
}

Tensor& index_add_inplace_vmap(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                               const Scalar& alpha, std::string_view mode) {
  constexpr const char* op = "gpuopt::index_add_";
  dim = check_index_add(op, self, dim, index, source, alpha, mode).dim;
  const VmapLevel level;
  const Operands in(level, self, index, source);
  const auto examples = in.examples();
  if (!examples.has_value()) {
    Tensor value = in.self.value;
    ops::index_add_inplace().call(value, dim, in.index.value, in.source.value, alpha, mode);
    return self;
  }
  TORCH_CHECK(in.self.batch_dim.has_value(), op,
              ": self must be batched by torch.vmap when index or source is: expected a self that "
              "vmap maps over, got one shared by all examples");
  if (in.index.batch_dim.has_value()) {
    // The sum is copied, because the concatenated rows need not be a view of self.
    batched_at(in.self, dim, *examples).copy_(add_folded(in, dim, *examples, alpha, mode));
    return self;
  }
  Tensor view = batched_at(in.self, 0, *examples);
  ops::index_add_inplace().call(view, dim + 1, in.index.value, batched_at(in.source, 0, *examples),
                                alpha, mode);
  return self;
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  m.impl("index_add", index_add_vmap);
  m.impl("index_add_", index_add_inplace_vmap);
}

// ---------------------------------------------------------------- functionalization

Tensor functional_sum(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                      const Scalar& alpha, std::string_view mode) {
  return ops::index_add().call(functional_value(self), dim, functional_value(index),
                               functional_value(source), alpha, mode);
}

Tensor& index_add_inplace_functional(Tensor& self, int64_t dim, const Tensor& index,
                                     const Tensor& source, const Scalar& alpha,
                                     std::string_view mode) {
  constexpr const char* op = "gpuopt::index_add_";
  check_inplace(op, self, dim, index, source, alpha, mode);
  return functionalize_write(
      op, self, {index, source},
      [&] { return functional_sum(self, dim, index, source, alpha, mode); },
      [&] { ops::index_add_inplace().call(self, dim, index, source, alpha, mode); });
}

Tensor& index_add_out_functional(const Tensor& self, int64_t dim, const Tensor& index,
                                 const Tensor& source, const Scalar& alpha, std::string_view mode,
                                 Tensor& out) {
  constexpr const char* op = "gpuopt::index_add";
  check_out(op, self, dim, index, source, alpha, mode, out);
  return functionalize_write(
      op, out, {self, index, source},
      [&] { return functional_sum(self, dim, index, source, alpha, mode); },
      [&] { ops::index_add_out().call(self, dim, index, source, alpha, mode, out); });
}

TORCH_LIBRARY_IMPL(gpuopt, Functionalize, m) {
  m.impl("index_add.out", index_add_out_functional);
  m.impl("index_add_", index_add_inplace_functional);
}

}  // namespace
}  // namespace gpuopt::index_add
