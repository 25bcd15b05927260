// Derivatives of the reductions: reverse mode, forward mode, and what out= owes to autograd.
// Backward formulas call differentiable operators, so higher derivatives follow.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <mutex>
#include <vector>

#include "binding/out_variant.h"
#include "reduce/reduce_check.h"
#include "reduce/reduce_ops.h"

namespace gpuopt::reduce {
namespace {

using at::OptionalIntArrayRef;
using at::ScalarType;
using namespace autograd_names;

// Which dimensions went and whether they left ones behind.
struct Dims {
  Dims(const char* op, const Tensor& self, OptionalIntArrayRef dim, bool keep)
      : mask(reduced_dims(op, dim, self.dim())), rank(self.dim()), keepdim(keep) {}

  // A view of a result that broadcasts to the input. Leading ones need not be put back.
  Tensor broadcastable(Tensor result) const {
    if (keepdim) return result;
    int64_t position = 0;
    for (int64_t d = 0; d < rank; ++d) {
      if (mask[d] && position > 0) result = result.unsqueeze(position);
      if (!mask[d] || position > 0) ++position;
    }
    return result;
  }

  // As an operator takes them.
  at::DimVector list() const {
    at::DimVector dims;
    for (int64_t d = 0; d < rank; ++d) {
      if (mask[d]) dims.push_back(d);
    }
    return dims;
  }

  DimMask mask;
  int64_t rank;
  bool keepdim;
};

// The gradient goes to every value: d(sum x) = sum dx.
struct SumBackward : torch::autograd::Node {
  SumBackward(const Tensor& self, const Dims& dims)
      : dims_(dims), sizes_(self.sym_sizes().vec()), dtype_(self.scalar_type()) {}
  std::string name() const override { return "GpuoptReduceSumBackward"; }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {Tensor()};
    return {spread(grads[0])};
  }

 protected:
  // Converted while it is small: the engine would convert it at its full size.
  Tensor spread(Tensor grad) const {
    if (grad.is_complex() && !at::isComplexType(dtype_)) grad = at::real(grad);
    return dims_.broadcastable(grad.to(dtype_)).expand_symint(sizes_);
  }

  // How many values each result is made of.
  c10::SymInt count() const {
    c10::SymInt count = 1;
    for (int64_t d = 0; d < dims_.rank; ++d) {
      if (dims_.mask[d]) count *= sizes_[d];
    }
    return count;
  }

 private:
  Dims dims_;
  std::vector<c10::SymInt> sizes_;
  ScalarType dtype_;
};

struct MeanBackward : SumBackward {
  using SumBackward::SumBackward;
  std::string name() const override { return "GpuoptReduceMeanBackward"; }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {Tensor()};
    return {spread(grads[0].div(at::Scalar(count())))};
  }
};

// The gradient is shared equally by the values that tie. A NaN result equals none of them, and the
// division by no values then makes every gradient NaN, as ATen's.
struct ExtremumBackward : torch::autograd::Node {
  ExtremumBackward(const char* name, const Tensor& self, const Dims& dims)
      : name_(name), dims_(dims), self_(self, /*is_output=*/false) {}
  std::string name() const override { return name_; }

  void save_result(const Tensor& result) { result_ = SavedVariable(result, /*is_output=*/true); }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!grads[0].defined()) return {Tensor()};
    const Tensor self = self_.unpack(), result = result_.unpack(pointer_to(this));
    const Tensor ties = at::eq(self, dims_.broadcastable(result));
    const Tensor count = gpuopt::reduce_sum(ties, dims_.list(), /*keepdim=*/true);
    return {at::mul(at::div(dims_.broadcastable(grads[0]), count), ties)};
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    self_.reset_data();
    result_.reset_data();
  }

 private:
  const char* name_;
  Dims dims_;
  SavedVariable self_, result_;
};

// Whether a call is differentiated, which a result of another kind of dtype would not allow.
bool differentiated(const char* op, const Tensor& self, std::optional<ScalarType> dtype) {
  if (!compute_requires_grad(self) && !has_tangent(self)) return false;
  TORCH_CHECK(!dtype.has_value() || torch::autograd::isDifferentiableType(*dtype), op,
              ": dtype must be differentiable when self is: expected a floating-point or complex "
              "dtype for a self that requires a gradient or has a tangent, got ",
              dtype.value_or(self.scalar_type()));
  return true;
}

// A sum or a mean, which is its own tangent.
template <typename Node, typename Op>
Tensor linear_autograd(const char* name, const Op& op, DispatchKeySet keys, const Tensor& self,
                       OptionalIntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype) {
  NodePtr<Node> node;
  if (differentiated(name, self, dtype) && compute_requires_grad(self)) {
    node = make_node<Node>(self, Dims(name, self, dim, keepdim));
    node->set_next_edges(collect_next_edges(self));
  }
  Tensor result = below_autograd(op, keys, self, dim, keepdim, dtype);
  if (node) set_history(result, node);
  if (has_tangent(self)) set_tangent(result, op.call(tangent_of(self), dim, keepdim, dtype));
  return result;
}

Tensor sum_autograd(DispatchKeySet keys, const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                    std::optional<ScalarType> dtype) {
  return linear_autograd<SumBackward>("gpuopt::reduce_sum", ops::reduce_sum(), keys, self, dim,
                                      keepdim, dtype);
}

Tensor mean_autograd(DispatchKeySet keys, const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
                     std::optional<ScalarType> dtype) {
  return linear_autograd<MeanBackward>("gpuopt::reduce_mean", ops::reduce_mean(), keys, self, dim,
                                       keepdim, dtype);
}

// The tangents of the values that tie, averaged.
Tensor extremum_tangent(const char* op, const Tensor& self, const Tensor& result,
                        OptionalIntArrayRef dim, bool keepdim) {
  const Tensor ties = at::eq(primal_of(self), Dims(op, self, dim, keepdim).broadcastable(result));
  return at::div(gpuopt::reduce_sum(at::where(ties, tangent_of(self), 0), dim, keepdim),
                 gpuopt::reduce_sum(ties, dim, keepdim));
}

template <typename Op>
Tensor extremum_autograd(const char* op, const char* node_name, const Op& handle,
                         DispatchKeySet keys, const Tensor& self, OptionalIntArrayRef dim,
                         bool keepdim) {
  NodePtr<ExtremumBackward> node;
  if (compute_requires_grad(self)) {
    node = make_node<ExtremumBackward>(node_name, self, Dims(op, self, dim, keepdim));
    node->set_next_edges(collect_next_edges(self));
  }
  Tensor result = below_autograd(handle, keys, self, dim, keepdim);
  if (node) {
    set_history(result, node);
    node->save_result(result);
  }
  if (has_tangent(self)) {
    set_tangent(result, extremum_tangent(op, self, result, dim, keepdim));
  }
  return result;
}

Tensor max_autograd(DispatchKeySet keys, const Tensor& self, OptionalIntArrayRef dim,
                    bool keepdim) {
  return extremum_autograd("gpuopt::reduce_max", "GpuoptReduceMaxBackward", ops::reduce_max(), keys,
                           self, dim, keepdim);
}

Tensor min_autograd(DispatchKeySet keys, const Tensor& self, OptionalIntArrayRef dim,
                    bool keepdim) {
  return extremum_autograd("gpuopt::reduce_min", "GpuoptReduceMinBackward", ops::reduce_min(), keys,
                           self, dim, keepdim);
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  m.impl("reduce_sum", sum_autograd);
  m.impl("reduce_sum.out", WritingOp<ops::reduce_sum_out>::without_derivatives);
  m.impl("reduce_mean", mean_autograd);
  m.impl("reduce_mean.out", WritingOp<ops::reduce_mean_out>::without_derivatives);
  m.impl("reduce_max", max_autograd);
  m.impl("reduce_max.out", WritingOp<ops::reduce_max_out>::without_derivatives);
  m.impl("reduce_min", min_autograd);
  m.impl("reduce_min.out", WritingOp<ops::reduce_min_out>::without_derivatives);
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) {
  m.impl("reduce_sum.out", WritingOp<ops::reduce_sum_out>::counted);
  m.impl("reduce_mean.out", WritingOp<ops::reduce_mean_out>::counted);
  m.impl("reduce_max.out", WritingOp<ops::reduce_max_out>::counted);
  m.impl("reduce_min.out", WritingOp<ops::reduce_min_out>::counted);
}

}  // namespace
}  // namespace gpuopt::reduce
