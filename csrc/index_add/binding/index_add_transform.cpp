// index_add under torch.vmap and under functionalization. Autocast has no policy for it, as in
// ATen.
#include <array>

#include "binding/index_vmap.h"
#include "binding/writing.h"
#include "index_add/binding/index_add_check.h"

namespace gpuopt::index_add {
namespace {

using at::Scalar;
using c10::SymInt;
using Operand = VmapLevel::Operand;

// ---------------------------------------------------------------- vmap

// The three operands of a call at the innermost level.
struct Operands {
  Operands(const VmapLevel& level, const IndexAdd& op)
      : self(level.unwrap(op.self)),
        index(level.unwrap(op.index)),
        source(level.unwrap(op.source)) {}

  Operand self, index, source;
};

// For examples with an index each: one call on the concatenated rows of all examples. The result
// has the examples in dimension `dim` and their rows in the next.
Tensor add_folded(const Operands& in, const IndexAdd& op, const SymInt& examples) {
  const int64_t dim = op.dim;
  const Tensor self = batched_at(in.self, dim, examples);
  const SymInt bins = self.sym_size(dim + 1);
  const Tensor result =
      call(IndexAdd{self.flatten(dim, dim + 1), dim,
                    fold_index(batched_at(in.index, 0, examples), examples, bins),
                    batched_at(in.source, dim, examples).flatten(dim, dim + 1), op.alpha, op.mode});
  return result.unflatten_symint(dim, std::array<SymInt, 2>{examples, bins});
}

Tensor index_add_vmap(const IndexAdd& given, const VmapLevel& level, const SymInt& examples) {
  const IndexAdd op = check(given).op;
  const Operands in(level, op);
  const bool folds = in.index.batch_dim.has_value();
  const Tensor result =
      folds ? add_folded(in, op, examples)
            : call(IndexAdd{batched_at(in.self, 0, examples), op.dim + 1, in.index.value,
                            batched_at(in.source, 0, examples), op.alpha, op.mode});
  return level.wrap(in.self.logical_dim() == 0 ? result.squeeze(-1) : result, folds ? op.dim : 0);
}

Tensor& index_add_inplace_vmap(const Inplace<IndexAdd>& given) {
  const char* name = name_of<Inplace<IndexAdd>>();
  const IndexAdd op = check(name, given.in).op;
  const VmapLevel level;
  const Operands in(level, op);
  const auto examples = level.examples_of(op);
  const auto add_to = [&](Tensor self, int64_t dim, const Tensor& source) -> Tensor& {
    handle<Inplace<IndexAdd>>().call(self, dim, in.index.value, source, op.alpha, op.mode);
    return given.self;
  };
  if (!examples.has_value()) return add_to(in.self.value, op.dim, in.source.value);
  TORCH_CHECK(
      in.self.batch_dim.has_value(), name,
      ": input must be batched by torch.vmap when index or source is: expected an input that "
      "vmap maps over, got one shared by all examples");
  if (in.index.batch_dim.has_value()) {
    // The sum is copied, because the concatenated rows need not be a view of self.
    batched_at(in.self, op.dim, *examples).copy_(add_folded(in, op, *examples));
    return given.self;
  }
  return add_to(batched_at(in.self, 0, *examples), op.dim + 1, batched_at(in.source, 0, *examples));
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl_vmap<IndexAdd, index_add_vmap>(m);
  impl<Inplace<IndexAdd>, index_add_inplace_vmap>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, Functionalize, m) {
  impl_out_functional<IndexAdd, checked<Out<IndexAdd>>>(m);
  impl_inplace_functional<IndexAdd, checked<Inplace<IndexAdd>>>(m);
}

}  // namespace
}  // namespace gpuopt::index_add
