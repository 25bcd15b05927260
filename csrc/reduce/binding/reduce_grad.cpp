// Derivatives of the reductions in reverse and forward mode, and the autograd rules of out=.
// Backward formulas call differentiable operators, so higher derivatives exist, too.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <mutex>
#include <vector>

#include "binding/out_variant.h"
#include "reduce/binding/reduce_check.h"
#include "reduce/binding/reduce_ops.h"

namespace gpuopt::reduce {
namespace {

using at::OptionalIntArrayRef;
using at::ScalarType;
using namespace autograd_names;

// The reduced dimensions, and whether the result keeps them with size 1.
struct Dims {
  Dims(const char* op, const Tensor& self, OptionalIntArrayRef dim, bool keep)
      : mask(reduced_dims(op, dim, self.dim())), rank(self.dim()), keepdim(keep) {}

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

  DimMask mask;
  int64_t rank;
  bool keepdim;
};

// d(sum x) = sum dx, so every value gets the gradient of its sum.
struct SumBackward : torch::autograd::Node {
  SumBackward(const Tensor& self, const Dims& dims)
      : dims_(dims), sizes_(self.sym_sizes().vec()), dtype_(self.scalar_type()) {}
  std::string name() const override { return "GpuoptReduceSumBackward"; }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {Tensor()};
    return {spread(grads[0])};
  }

 protected:
  // Converts the gradient before it is expanded: the autograd engine would convert all of the
  // expanded values.
  Tensor spread(Tensor grad) const {
    if (grad.is_complex() && !at::isComplexType(dtype_)) grad = at::real(grad);
    return dims_.broadcastable(grad.to(dtype_)).expand_symint(sizes_);
  }

  // The number of values that are reduced to each output.
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

// Values that tie share the gradient equally. A NaN result equals no value, so the count of ties is
// 0 and the division makes every gradient NaN, as in ATen.
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

// Whether self has a gradient or a tangent. If so, the result's dtype must have derivatives.
bool differentiated(const char* op, const Tensor& self, std::optional<ScalarType> dtype) {
  if (!compute_requires_grad(self) && !has_tangent(self)) return false;
  TORCH_CHECK(!dtype.has_value() || torch::autograd::isDifferentiableType(*dtype), op,
              ": dtype must be differentiable when self is: expected a floating-point or complex "
              "dtype for a self that requires a gradient or has a tangent, got ",
              dtype.value_or(self.scalar_type()));
  return true;
}

// Sums and means are linear: the tangent of the result is the sum or mean of the tangents.
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

// The average of the tangents of the values that tie.
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
