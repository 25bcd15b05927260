// gpuopt::reduce_sum, reduce_mean, reduce_max and reduce_min: schemas, and all kernels but those
// for CUDA.
#include <vector>

#include "binding/aten.h"
#include "binding/autocast.h"
#include "binding/ladder.h"
#include "binding/vmap.h"
#include "binding/writing.h"
#include "reduce/binding/reduce_check.h"
#include "reduce/ladder/reduce_ladder.h"

namespace gpuopt::reduce {
namespace {

using namespace autograd_names;
using at::ScalarType;
using at::Tensor;

const RegisterLadder sum_ladder(kLadder, "reduce_sum(Tensor self, int step) -> Tensor");
const RegisterLadder max_ladder(kMaxLadder.steps, "reduce_max(Tensor self, int step) -> Tensor");

// ---------------------------------------------------------------- CPU: ATen's kernels

// All dimensions as an empty list. ATen's sum without a list makes a full one, which is limited to
// 64 dimensions.
at::IntArrayRef listed(at::OptionalIntArrayRef dim) { return dim.value_or(at::IntArrayRef{}); }

Tensor by_aten(const ReduceSum& op, ScalarType dtype) {
  return at::sum(op.self, listed(op.dim), op.keepdim, dtype);
}
Tensor by_aten(const ReduceMean& op, ScalarType dtype) {
  return at::mean(op.self, listed(op.dim), op.keepdim, dtype);
}
Tensor by_aten(const ReduceMax& op, ScalarType) {
  return at::amax(op.self, listed(op.dim), op.keepdim);
}
Tensor by_aten(const ReduceMin& op, ScalarType) {
  return at::amin(op.self, listed(op.dim), op.keepdim);
}

template <typename Op>
Tensor reduce_cpu(const Op& op) {
  const ScalarType dtype = check(op).dtype;
  return call_aten(name_of<Op>(), dtype, " to reduce in", [&] { return by_aten(op, dtype); });
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

template <typename Op>
Tensor reduce_meta(const Op& op) {
  const SymReduction reduction = check<c10::SymInt>(op);
  return at::empty_symint(reduction.shape, op.self.options().dtype(reduction.dtype));
}

// ---------------------------------------------------------------- vmap

// The examples are dimension 0 of one call.
template <typename Op>
Tensor reduce_vmap(const Op& op, const VmapLevel& level, const c10::SymInt&) {
  const DimMask mask = check<c10::SymInt>(op).mask;
  const VmapLevel::Operand operand = level.unwrap(op.self);
  const int64_t rank = operand.logical_dim();
  at::DimVector dims;
  for (int64_t d = 0; d < rank; ++d) {
    if (mask[d]) dims.push_back(d + 1);
  }
  // A zero-dimensional example is reduced along an extra dimension of size 1. An empty list of
  // dimensions would reduce all of them, the examples included.
  if (rank == 0) dims.push_back(1);
  const Tensor values = operand.aligned(1);
  const bool keepdim = op.keepdim && rank > 0;
  if constexpr (Extremum<Op>) {
    return level.wrap(call(Op{values, dims, keepdim}), 0);
  } else {
    return level.wrap(call(Op{values, dims, keepdim, op.dtype}), 0);
  }
}

// ---------------------------------------------------------------- derivatives

// The reduced dimensions, and whether the result keeps them with size 1.
struct Dims {
  template <typename Op>
  explicit Dims(const Op& op)
      : mask(reduced_dims(name_of<Op>(), op.dim, op.self.dim())),
        rank(op.self.dim()),
        keepdim(op.keepdim) {}

  // Views a result so that it broadcasts to the input. Reduced dimensions in front of the first
  // kept one need no size 1, since broadcasting adds them.
  Tensor broadcastable(Tensor result) const {
    if (keepdim) return result;
    int64_t position = 0;
    for (int64_t d = 0; d < rank; ++d) {
      if (mask[d] && position > 0) result = result.unsqueeze(position);
      if (!mask[d] || position > 0) ++position;
    }
    return result;
  }

  // The reduced dimensions as a list, the form in which operators accept them. An empty list means
  // all of them.
  at::DimVector list() const {
    at::DimVector dims;
    if (rank > DimMask::kMaxRank) return dims;
    for (int64_t d = 0; d < rank; ++d) {
      if (mask[d]) dims.push_back(d);
    }
    return dims;
  }

  void describe_state(NodeState& state) const {
    state(rank, keepdim);
    for (const int64_t dim : list()) state(dim);
  }

  DimMask mask;
  int64_t rank;
  bool keepdim;
};

// d(sum x) = sum dx, so every value gets the gradient of its sum or mean.
template <typename Op>
struct SumBackward : GradNode {
  explicit SumBackward(const Op& op)
      : GradNode(op.self),
        dims_(op),
        sizes_(op.self.sym_sizes().vec()),
        dtype_(op.self.scalar_type()) {}
  std::string name() const override {
    return kIsMean<Op> ? "GpuoptReduceMeanBackward" : "GpuoptReduceSumBackward";
  }
  void describe_state(NodeState& state) const override {
    dims_.describe_state(state);
    state(sizes_, dtype_);
  }

  // Converts the gradient before it is expanded: the autograd engine would convert all of the
  // expanded values.
  variable_list gradients(const Tensor& of_result) override {
    Tensor grad = kIsMean<Op> ? of_result.div(at::Scalar(count())) : of_result;
    if (grad.is_complex() && !at::isComplexType(dtype_)) grad = at::real(grad);
    return {dims_.broadcastable(grad.to(dtype_)).expand_symint(sizes_)};
  }

 private:
  // The number of values that are reduced to each output.
  c10::SymInt count() const {
    c10::SymInt count = 1;
    for (int64_t d = 0; d < dims_.rank; ++d) {
      if (dims_.mask[d]) count *= sizes_[d];
    }
    return count;
  }

  Dims dims_;
  std::vector<c10::SymInt> sizes_;
  ScalarType dtype_;
};

// Values that tie share the gradient equally. A NaN result equals no value, so the count of ties is
// 0 and the division makes every gradient NaN, as in ATen.
template <typename Op>
struct ExtremumBackward : GradNode {
  explicit ExtremumBackward(const Op& op) : GradNode(op.self), dims_(op), self_(this, op.self) {}
  std::string name() const override {
    return std::same_as<Op, ReduceMax> ? "GpuoptReduceMaxBackward" : "GpuoptReduceMinBackward";
  }
  void describe_state(NodeState& state) const override { dims_.describe_state(state); }

  void save_result(const Tensor& result) { result_.save_result(result); }

  variable_list gradients(const Tensor& grad) override {
    const Tensor self = self_.unpack(), result = result_.unpack();
    const Tensor ties = at::eq(self, dims_.broadcastable(result));
    Tensor count = gpuopt::reduce_sum(ties, dims_.list(), /*keepdim=*/true);
    // The count of a DTensor may be a partial sum, by which torch 2.11 divides on each rank. clamp
    // adds the parts first.
    if (count.key_set().has(c10::DispatchKey::Python)) count = count.clamp_min(0);
    return {at::mul(at::div(dims_.broadcastable(grad), count), ties)};
  }

  // The average of the tangents of the values that tie.
  static Tensor tangent(const Op& op, const Tensor& result) {
    const auto& [self, dim, keepdim] = op;
    const Tensor ties = at::eq(primal_of(self), Dims(op).broadcastable(result));
    return at::div(gpuopt::reduce_sum(at::where(ties, tangent_of(self), 0), dim, keepdim),
                   gpuopt::reduce_sum(ties, dim, keepdim));
  }

 private:
  Dims dims_;
  Saved self_, result_{this};
};

// Sums and means are linear.
template <typename Op>
Tensor sum_autograd(const Op& op, DispatchKeySet keys) {
  if (compute_requires_grad(op.self) || has_tangent(op.self)) {
    TORCH_CHECK(
        !op.dtype.has_value() || torch::autograd::isDifferentiableType(*op.dtype), name_of<Op>(),
        ": dtype must be differentiable when input is: expected a floating-point or complex "
        "dtype for an input that requires a gradient or has a tangent, got ",
        op.dtype.value_or(op.self.scalar_type()));
  }
  return differentiate<SumBackward<Op>>(op, keys);
}

// ATen's out= kernels would resize out before they refuse a dtype.
TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  Ops::for_each([&]<typename Op>() {
    register_op<Op, Cpu<reduce_cpu<Op>>, Meta<reduce_meta<Op>>, Vmap<reduce_vmap<Op>>>(m);
    register_op<Out<Op>, CopiesToOut<checked<Op>, reduce_cpu<Op>, reduce_meta<Op>>>(m);
  });
  // As in ATen, the other reductions keep their dtype under autocast.
  impl<ReduceSum, Autograd<sum_autograd<ReduceSum>>, AutocastSum>(m);
  impl<ReduceMean, Autograd<sum_autograd<ReduceMean>>>(m);
  impl<ReduceMax, Grad<ExtremumBackward<ReduceMax>>>(m);
  impl<ReduceMin, Grad<ExtremumBackward<ReduceMin>>>(m);
}

}  // namespace
}  // namespace gpuopt::reduce
