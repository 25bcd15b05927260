// gpuopt::index_add and index_add_: schemas, and all kernels except CUDA's. Autocast has no
// policy for them, as in ATen.
#include <ATen/OpMathType.h>

#include <array>

#include "binding/aten.h"
#include "binding/ladder.h"
#include "binding/vmap.h"
#include "binding/writing.h"
#include "elementwise/binding/elementwise_ops.h"
#include "index_add/binding/index_add_check.h"
#include "index_add/binding/index_add_ops.h"
#include "index_add/ladder/index_add_ladder.h"

namespace gpuopt::index_add {
namespace {

using namespace autograd_names;
using Operand = VmapLevel::Operand;
using at::Scalar;
using c10::SymInt;

const RegisterLadder ladder(
    kLadder, "index_add_(Tensor(a!) self, Tensor index, Tensor source, int step) -> Tensor(a!)");

// ---------------------------------------------------------------- CPU: ATen's kernels

// The dtype of sums. ATen may round half types after each addition.
at::ScalarType sum_dtype(const Call& call) {
  const auto dtype = call.op.self.scalar_type();
  const bool half = dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kComplexHalf;
  return half && call.mode != Mode::kFast ? at::toOpMathType(dtype) : dtype;
}

std::string wrong_entry(const Call& call) {
  return gpuopt::wrong_entry(call.op.self, call.op.dim, call.op.index);
}

Tensor sum_on_cpu(const Call& call) {
  const auto& op = call.op;
  const auto dtype = sum_dtype(call);
  const auto aten = [&] {
    return at::index_add(op.self.to(dtype), op.dim, op.index, op.source.to(dtype), op.alpha)
        .to(op.self.scalar_type());
  };
  return call_aten(call.name, op.self, aten, [&] { return wrong_entry(call); });
}

Tensor index_add_cpu(const IndexAdd& op) { return sum_on_cpu(check(op)); }

Tensor& index_add_inplace_cpu(const Inplace<IndexAdd>& given) {
  const Call call = check(given);
  const auto& op = call.op;
  Tensor& self = given.self;
  // ATen's in-place kernel adds all entries before the one that it refuses. So the index is checked
  // first.
  const bool in_place = sum_dtype(call) == self.scalar_type() && wrong_entry(call).empty();
  if (!in_place) return self.copy_(sum_on_cpu(call));
  call_aten(
      call.name, self, [&] { return self.index_add_(op.dim, op.index, op.source, op.alpha); },
      [&] { return wrong_entry(call); });
  return self;
}

// ---------------------------------------------------------------- Meta: shapes, maybe symbolic

Tensor index_add_meta(const IndexAdd& op) {
  check(op);
  return at::empty_symint(op.self.sym_sizes(), op.self.options());
}

Tensor& index_add_inplace_meta(const Inplace<IndexAdd>& call) {
  check(call);
  return call.self;
}

// ---------------------------------------------------------------- vmap

// For examples with an index each: one call on the concatenated rows of all examples. The result
// has the examples in dimension `dim` and their rows in the next.
Tensor add_folded(const Operand& self, const Operand& index, const Operand& source,
                  const IndexAdd& op, const SymInt& examples) {
  const int64_t dim = op.dim;
  const Tensor rows = batched_at(self, dim, examples);
  const SymInt bins = rows.sym_size(dim + 1);
  const Tensor entries = fold_index(batched_at(index, 0, examples), examples, bins);
  const Tensor result =
      call(IndexAdd{rows.flatten(dim, dim + 1), dim, entries,
                    batched_at(source, dim, examples).flatten(dim, dim + 1), op.alpha, op.mode});
  return result.unflatten_symint(dim, std::array<SymInt, 2>{examples, bins});
}

Tensor index_add_vmap(const IndexAdd& given, const VmapLevel& level, const SymInt& examples) {
  const IndexAdd op = check(given).op;
  const Operand self = level.unwrap(op.self), index = level.unwrap(op.index);
  const Operand source = level.unwrap(op.source);
  const bool folds = index.batch_dim.has_value();
  const Tensor result = folds
                            ? add_folded(self, index, source, op, examples)
                            : call(IndexAdd{batched_at(self, 0, examples), op.dim + 1, index.value,
                                            batched_at(source, 0, examples), op.alpha, op.mode});
  return level.wrap(self.logical_dim() == 0 ? result.squeeze(-1) : result, folds ? op.dim : 0);
}

Tensor& index_add_inplace_vmap(const Inplace<IndexAdd>& given) {
  const char* name = name_of<Inplace<IndexAdd>>();
  const IndexAdd op = check(name, given.in).op;
  const VmapLevel level;
  const Operand self = level.unwrap(op.self), index = level.unwrap(op.index);
  const Operand source = level.unwrap(op.source);
  const auto examples = level.examples_of(op);
  const auto add_to = [&](Tensor written, int64_t dim, const Tensor& slices) -> Tensor& {
    handle<Inplace<IndexAdd>>().call(written, dim, index.value, slices, op.alpha, op.mode);
    return given.self;
  };
  if (!examples.has_value()) return add_to(self.value, op.dim, source.value);
  TORCH_CHECK(
      self.batch_dim.has_value(), name,
      ": input must be batched by torch.vmap when index or source is: expected an input that "
      "vmap maps over, got one shared by all examples");
  if (index.batch_dim.has_value()) {
    // The sum is copied, because the concatenated rows need not be a view of self.
    batched_at(self, op.dim, *examples).copy_(add_folded(self, index, source, op, *examples));
    return given.self;
  }
  return add_to(batched_at(self, 0, *examples), op.dim + 1, batched_at(source, 0, *examples));
}

// ---------------------------------------------------------------- derivatives

// d(self + alpha P source) = dself + alpha P dsource, where P adds slices to the rows that index
// names. So the gradient of source gathers these rows, times the conjugate of alpha. (ATen's
// formula does not conjugate a complex alpha, as of torch 2.15.)
struct IndexAddBackward : GradNode {
  explicit IndexAddBackward(const IndexAdd& op)
      : GradNode(op.self, op.source), dim_(op.dim), alpha_(op.alpha) {
    if (next_edge(1).is_valid()) index_.save(op.index);
  }
  explicit IndexAddBackward(const Inplace<IndexAdd>& call) : IndexAddBackward(call.in) {}
  std::string name() const override { return "GpuoptIndexAddBackward"; }
  void describe_state(NodeState& state) const override { state(dim_, alpha_); }

  variable_list gradients(const Tensor& grad) override {
    variable_list inputs(2);
    if (task_should_compute_output(0)) inputs[0] = grad;
    if (task_should_compute_output(1)) {
      const Tensor rows = select(grad);
      // If the result is real, the imaginary part of a complex alpha is 0.
      const Scalar factor = grad.is_complex() ? alpha_.conj() : Scalar(alpha_.toDouble());
      inputs[1] = factor.equal(1.0) ? rows : gpuopt::mul(rows, factor);
    }
    return inputs;
  }

  // index_add of the tangents.
  static Tensor tangent(const IndexAdd& op, const Tensor&) {
    const auto& [self, dim, index, source, alpha, mode] = op;
    // A copy of self's tangent, because later in-place operators on the result write to the
    // result's tangent.
    if (!has_tangent(source)) return tangent_of(self).clone();
    const Tensor of_self = has_tangent(self) ? tangent_of(self) : at::zeros_like(self);
    return call(IndexAdd{of_self, dim, index, tangent_of(source), alpha, mode});
  }
  // Nothing if the tangent of self does not change.
  static Tensor tangent(const Inplace<IndexAdd>& call) {
    return has_tangent(call.in.source) ? tangent(call.in, call.self) : Tensor();
  }

 private:
  // Adds a dimension to an index without dimensions. Under vmap, index_select repeats the slice of
  // such an index, once per slice of the dimension (torch 2.11 to 2.15).
  Tensor select(const Tensor& grad) {
    if (grad.dim() == 0) return grad;
    const Tensor index = index_.unpack();
    return at::index_select(grad, dim_, index.dim() == 0 ? index.unsqueeze(0) : index);
  }

  int64_t dim_;
  Scalar alpha_;
  Saved index_{this};
};

// ATen's out= kernel is not used: it writes to out before it refuses an index.
TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  register_op<IndexAdd, Cpu<index_add_cpu>, Meta<index_add_meta>, Vmap<index_add_vmap>,
              Grad<IndexAddBackward>>(m);
  register_op<Out<IndexAdd>, CopiesToOut<checked<Out<IndexAdd>>, index_add_cpu, index_add_meta>>(m);
  register_op<Inplace<IndexAdd>, Cpu<index_add_inplace_cpu>, Meta<index_add_inplace_meta>,
              Batched<index_add_inplace_vmap>, Grad<IndexAddBackward>,
              Writes<checked<Inplace<IndexAdd>>>>(m);
}

}  // namespace
}  // namespace gpuopt::index_add
