// gpuopt::linear_recurrence: the schema, and all kernels but the one for CUDA. It needs no rule for
// functionalization, because it writes to no argument, and none for autocast, because it promotes
// dtypes.
#include <ATen/ExpandUtils.h>

#include "binding/grad_node.h"
#include "binding/unfilled.h"
#include "binding/vmap.h"
#include "elementwise/binding/elementwise_ops.h"
#include "scan/binding/scan_check.h"

namespace gpuopt::scan {
namespace {

using namespace autograd_names;
using at::Tensor;

// ---------------------------------------------------------------- CPU: ATen's kernels

// One multiplication and addition of ATen per position.
Tensor linear_recurrence_cpu(const LinearRecurrence& op) {
  const auto& [a, b, dim, initial, reverse, shifted] = op;
  const Recurrence call = checked(op);
  const bool is_half = call.dtype == at::kHalf || call.dtype == at::kBFloat16;
  const auto compute = is_half ? at::kFloat : call.dtype;
  const bool scalar = call.sizes.empty();
  const std::vector<int64_t> sizes = C10_AS_INTARRAYREF_SLOW(call.sizes).vec();
  const auto rows_first = [&](const Tensor& x) {
    const Tensor whole = x.to(compute).expand(sizes);
    return scalar ? whole.unsqueeze(0) : whole.movedim(call.dim, 0);
  };
  const Tensor factors = rows_first(a), terms = rows_first(b);
  Tensor result = unfilled(terms.sizes(), b.options().dtype(compute));
  const int64_t length = terms.size(0);
  Tensor before;
  if (initial.has_value()) before = initial->to(compute).expand(terms.sizes().slice(1));
  for (int64_t i = 0; i < length && terms.numel() > 0; ++i) {
    const int64_t t = reverse ? length - 1 - i : i;
    Tensor now = result.select(0, t);
    if (!before.defined()) {
      now.copy_(terms.select(0, t));
    } else if (shifted && i == 0) {
      at::add_out(now, before, terms.select(0, t));
    } else {
      const Tensor factor = factors.select(0, !shifted ? t : reverse ? t + 1 : t - 1);
      at::addcmul_out(now, terms.select(0, t), factor, before);
    }
    before = now;
  }
  result = scalar ? result.squeeze(0) : result.movedim(0, call.dim);
  return unfilled(sizes, b.options().dtype(call.dtype)).copy_(result);
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

Tensor linear_recurrence_meta(const LinearRecurrence& op) {
  const Recurrence call = checked(op);
  return at::empty_symint(call.sizes, op.b.options().dtype(call.dtype));
}

// ---------------------------------------------------------------- vmap

Tensor linear_recurrence_vmap(const LinearRecurrence& op, const VmapLevel& level,
                              const c10::SymInt& examples) {
  const auto& [a, b, dim, initial, reverse, shifted] = op;
  const int64_t own = checked(op).dim;
  const auto factors = level.unwrap(a), terms = level.unwrap(b);
  // Zero-dimensional examples get an extra dimension of size 1, along which they are scanned.
  const int64_t logical = std::max(factors.logical_dim(), terms.logical_dim());
  const int64_t rank = std::max<int64_t>(logical, 1);
  TensorOption start;
  if (initial.has_value()) start = level.unwrap(*initial).aligned(rank - 1);
  Tensor values = terms.aligned(rank);
  if (!factors.batch_dim.has_value() && !terms.batch_dim.has_value()) {
    // Only `initial` has examples.
    for (int64_t d = values.dim(); d < rank; ++d) values = values.unsqueeze(0);
    auto sizes = values.sym_sizes().vec();
    sizes.insert(sizes.begin(), examples);
    values = values.unsqueeze(0).expand_symint(sizes);
  }
  const Tensor result =
      call(LinearRecurrence{factors.aligned(rank), values, own + 1, start, reverse, shifted});
  return level.wrap(logical == 0 ? result.squeeze(1) : result, 0);
}

// ---------------------------------------------------------------- derivatives

// The gradient of b is the recurrence in the other direction, shifted if this one is not:
//
//   h_t = a_t h_(t-1) + b_t          plain:   a_t multiplies what comes before position t
//   g_t = a_(t+1) g_(t+1) + dh_t     shifted: a_t multiplies what leaves position t

// How a call runs along the scanned dimension.
struct Direction {
  int64_t dim;
  bool reverse, shifted;
};

// Moves every value one position on in the order of the scan; the last one is dropped. `first`
// comes first, or 0 if there is none. Its shape is that of x, with size 1 in the scanned dimension.
Tensor moved_on(const Tensor& x, const TensorOption& first, int64_t dim, bool reverse) {
  if (x.dim() == 0) return first.has_value() ? *first : at::zeros_like(x);
  const c10::SymInt length = x.sym_size(dim);
  if (is_known_zero(length)) return x;
  const Tensor kept = x.narrow_symint(dim, reverse ? 1 : 0, length - 1);
  const Tensor head = first.has_value() ? *first : at::zeros_like(x.narrow_symint(dim, 0, 1));
  return reverse ? at::cat({kept, head}, dim) : at::cat({head, kept}, dim);
}

// Without the scanned dimension: the first position in the order of the scan.
Tensor first_of(const Tensor& x, const Direction& way) {
  if (x.dim() == 0) return x;
  if (!way.reverse) return x.select(way.dim, 0);
  return x.select_symint(way.dim, x.sym_size(way.dim) - 1);
}

// What each factor multiplies, at the position of the factor. This is 0 for a factor without use.
Tensor multiplicands(const Tensor& h, const TensorOption& initial, const Direction& way) {
  if (way.shifted) return h;
  TensorOption first;
  if (initial.has_value()) first = with_dim(*initial, h.sym_sizes(), way.dim);
  return moved_on(h, first, way.dim, way.reverse);
}

// Edges 0 to 2 belong to a, b and initial.
struct LinearRecurrenceBackward : GradNode {
  explicit LinearRecurrenceBackward(const LinearRecurrence& op)
      : LinearRecurrenceBackward(op, checked(op)) {}
  LinearRecurrenceBackward(const LinearRecurrence& op, const Recurrence& known)
      : GradNode(op.a, op.b, op.initial), way_{known.dim, op.reverse, op.shifted} {
    const std::vector<c10::SymInt>& sizes = known.sizes;  // of the result
    is_single_ = sizes.empty() || TORCH_GUARD_OR_FALSE(sizes[way_.dim].sym_le(1));
    const bool needs_a = is_single_ ? next_edge(2).is_valid() && !way_.shifted : true;
    if (needs_a) a_.save(op.a);
    a_sizes_ = op.a.sym_sizes().vec();
    b_sizes_ = op.b.sym_sizes().vec();
    if (!op.initial.has_value()) return;
    initial_sizes_ = op.initial->sym_sizes().vec();
    if (next_edge(0).is_valid() && !way_.shifted) initial_.save(op.initial);
  }
  std::string name() const override { return "GpuoptLinearRecurrenceBackward"; }
  void describe_state(NodeState& state) const override {
    state(way_.dim, way_.reverse, way_.shifted, is_single_, a_sizes_, b_sizes_, initial_sizes_);
  }

  void save_result(const Tensor& h) {
    if (next_edge(0).is_valid() && !is_single_) h_.save_result(h);
  }

  static Tensor tangent(const LinearRecurrence& op, const Tensor& h) {
    const Direction way{checked(op).dim, op.reverse, op.shifted};
    const Tensor &a = op.a, &b = op.b;
    const TensorOption& initial = op.initial;
    TensorOption first, first_tangent;
    if (initial.has_value()) {
      first = primal_of(*initial);
      if (has_tangent(*initial)) first_tangent = tangent_of(*initial);
    }
    Tensor terms;
    if (has_tangent(b)) terms = tangent_of(b);
    if (has_tangent(a)) {
      Tensor by_a = gpuopt::mul(tangent_of(a), multiplicands(h, first, way));
      if (way.shifted) by_a = moved_on(by_a, std::nullopt, way.dim, way.reverse);
      terms = terms.defined() ? at::add(terms, by_a) : by_a;
    }
    if (!terms.defined()) terms = at::zeros_like(h);
    // The result of this call has h's shape, as b has none of its own here.
    return call(LinearRecurrence{primal_of(a), terms.expand_symint(h.sym_sizes()), way.dim,
                                 first_tangent, way.reverse, way.shifted});
  }

  variable_list gradients(const Tensor& of_result) override {
    variable_list inputs(3);
    Tensor g = of_result;
    if (!is_single_) {
      g = call(LinearRecurrence{a_.unpack().conj(), g, way_.dim, std::nullopt, !way_.reverse,
                                !way_.shifted});
    }
    if (task_should_compute_output(0)) inputs[0] = for_factors(g);
    if (task_should_compute_output(1)) inputs[1] = at::sum_to(g, b_sizes_);
    if (task_should_compute_output(2)) inputs[2] = for_initial(g);
    return inputs;
  }

 private:
  Tensor for_factors(const Tensor& g) {
    TensorOption initial;
    if (initial_sizes_.has_value() && !way_.shifted) initial = initial_.unpack();
    if (is_single_ && !initial.has_value()) {
      // Zeros that depend on g: gradgradcheck expects it of every gradient if it does of one.
      const Tensor all = at::ones({}, g.options().dtype(at::kBool));
      return at::sum_to(at::masked_fill(g, all, 0), a_sizes_);
    }
    // A single position needs no result, only its shape.
    const Tensor h = is_single_ ? g : h_.unpack();
    const Tensor multiplied = multiplicands(h, initial, way_);
    // If shifted, factor t multiplies on the way to the next position.
    const Tensor arrived = way_.shifted ? moved_on(g, std::nullopt, way_.dim, !way_.reverse) : g;
    return at::sum_to(gpuopt::mul(arrived, multiplied.conj()), a_sizes_);
  }

  Tensor for_initial(const Tensor& g) const {
    // The sum of no positions is 0. Unlike a new tensor, it is a DTensor if g is one.
    if (g.dim() > 0 && is_known_zero(g.sym_size(way_.dim))) {
      return at::sum_to(at::sum(g, way_.dim), *initial_sizes_);
    }
    const Tensor first = first_of(g, way_);
    if (way_.shifted) return at::sum_to(first, *initial_sizes_);
    const Tensor factor = first_of(a_.unpack().conj().expand_symint(g.sym_sizes()), way_);
    return at::sum_to(gpuopt::mul(first, factor), *initial_sizes_);
  }

  Direction way_;
  bool is_single_ = false;  // whether a row has at most one value
  Saved a_{this}, h_{this}, initial_{this};
  std::vector<c10::SymInt> a_sizes_, b_sizes_;
  std::optional<std::vector<c10::SymInt>> initial_sizes_;
};

Tensor linear_recurrence_autograd(const LinearRecurrence& op, DispatchKeySet keys) {
  if (!requires_grad(op) && !has_tangents(op)) return below_autograd(op, keys);
  const auto dtype = checked(op).dtype;
  bool is_mixed = false;
  for_each_tensor(op, [&](const Tensor& x) { is_mixed = is_mixed || x.scalar_type() != dtype; });
  if (is_mixed) return call_mapped(op, [&](const Tensor& x) { return x.to(dtype); });
  return differentiate<LinearRecurrenceBackward>(op, keys);
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  register_op<LinearRecurrence, Cpu<linear_recurrence_cpu>, Meta<linear_recurrence_meta>,
              Vmap<linear_recurrence_vmap>, Autograd<linear_recurrence_autograd>>(m);
}

}  // namespace
}  // namespace gpuopt::scan
