// Derivatives of selective scans. The gradient is an operator with kernels of its own. Higher
// derivatives and forward mode differentiate loops of ATen's operators, which is slow.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "binding/captured.h"
#include "binding/grad_node.h"
#include "selective_scan/binding/selective_scan_ops.h"

namespace gpuopt::selective {
namespace {

using namespace autograd_names;

bool any_tangent(std::initializer_list<TensorOption> tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const TensorOption& tensor) {
    return is_given(tensor) && has_tangent(*tensor);
  });
}

struct SelectiveScanBackward : torch::autograd::Node {
  explicit SelectiveScanBackward(const Inputs& in) : softplus_(in.softplus) {
    size_t i = 0;
    for (const Tensor& tensor : {in.u, in.delta, in.A, in.B, in.C}) save(i++, tensor);
    for (const TensorOption& tensor : {in.D, in.z, in.delta_bias}) save(i++, tensor);
  }
  std::string name() const override { return "GpuoptSelectiveScanBackward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& saved : saved_) saved.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list inputs(kArguments);
    if (!grads[0].defined() && !grads[1].defined()) return inputs;
    const auto option = [](const Tensor& tensor) {
      return tensor.defined() ? TensorOption(tensor) : std::nullopt;
    };
    std::array<Tensor, kArguments> x;
    for (size_t i = 0; i < kArguments; ++i) {
      if (given_[i]) x[i] = saved_[i].unpack();
    }
    auto found = ops::selective_scan_backward().call(option(grads[0]), option(grads[1]), x[0], x[1],
                                                     x[2], x[3], x[4], option(x[5]), option(x[6]),
                                                     option(x[7]), softplus_);
    size_t i = 0;
    const auto assign = [&](Tensor& gradient) {
      if (task_should_compute_output(i) && given_[i]) inputs[i] = std::move(gradient);
      ++i;
    };
    std::apply([&](auto&... gradients) { (assign(gradients), ...); }, found);
    return inputs;
  }

 private:
  static constexpr size_t kArguments = 8;

  void save(size_t i, const TensorOption& tensor) {
    given_[i] = is_given(tensor);
    if (given_[i]) saved_[i] = {*tensor, /*is_output=*/false};
  }

  std::array<SavedVariable, kArguments> saved_;
  std::array<bool, kArguments> given_{};
  bool softplus_;
};

Outputs scan_autograd(DispatchKeySet keys, const Tensor& u, const Tensor& delta, const Tensor& A,
                      const Tensor& B, const Tensor& C, const TensorOption& D,
                      const TensorOption& z, const TensorOption& delta_bias, bool softplus) {
  const Inputs in{u, delta, A, B, C, D, z, delta_bias, softplus};
  if (any_tangent({u, delta, A, B, C, D, z, delta_bias})) {
    check_scan(in);
    return scan_by_aten(in);
  }
  NodePtr<SelectiveScanBackward> node;
  if (compute_requires_grad(u, delta, A, B, C, D, z, delta_bias)) {
    check_scan(in);
    node = make_node<SelectiveScanBackward>(in);
    node->set_next_edges(collect_next_edges(u, delta, A, B, C, D, z, delta_bias));
  }
  auto [out, last] =
      below_autograd(ops::selective_scan(), keys, u, delta, A, B, C, D, z, delta_bias, softplus);
  if (node) {
    set_history(out, node);
    set_history(last, node);
  }
  return {out, last};
}

InputGradients backward_autograd(DispatchKeySet keys, const TensorOption& out_grad,
                                 const TensorOption& last_grad, const Tensor& u,
                                 const Tensor& delta, const Tensor& A, const Tensor& B,
                                 const Tensor& C, const TensorOption& D, const TensorOption& z,
                                 const TensorOption& delta_bias, bool softplus) {
  if (compute_requires_grad(out_grad, last_grad, u, delta, A, B, C, D, z, delta_bias) ||
      any_tangent({out_grad, last_grad, u, delta, A, B, C, D, z, delta_bias})) {
    const Inputs in{u, delta, A, B, C, D, z, delta_bias, softplus};
    check_scan(in);
    return gradients_by_aten(out_grad, last_grad, in);
  }
  return below_autograd(ops::selective_scan_backward(), keys, out_grad, last_grad, u, delta, A, B,
                        C, D, z, delta_bias, softplus);
}

// The update is for generation.
Tensor update_autograd(DispatchKeySet keys, Tensor& state, const Tensor& x, const Tensor& dt,
                       const Tensor& A, const Tensor& B, const Tensor& C, const TensorOption& D,
                       const TensorOption& z, const TensorOption& dt_bias, bool softplus) {
  check_not_captured(kUpdateOp, {"state", state});
  TORCH_CHECK(!compute_requires_grad(state, x, dt, A, B, C, D, z, dt_bias) &&
                  !any_tangent({state, x, dt, A, B, C, D, z, dt_bias}),
              kUpdateOp,
              ": no derivative is implemented: expected arguments that need no gradient, got one "
              "that does (call it under torch.no_grad(), or use selective_scan)");
  at::AutoDispatchBelowAutograd guard;
  return ops::selective_scan_update().redispatch(keys & c10::after_autograd_keyset, state, x, dt, A,
                                                 B, C, D, z, dt_bias, softplus);
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  m.impl("selective_scan", scan_autograd);
  m.impl("_selective_scan_backward", backward_autograd);
  m.impl("selective_scan_update", update_autograd);
}

// Counts the write to the state. This key lies below Autograd, so it counts in no_grad mode too.
Tensor update_version(DispatchKeySet keys, Tensor& state, const Tensor& x, const Tensor& dt,
                      const Tensor& A, const Tensor& B, const Tensor& C, const TensorOption& D,
                      const TensorOption& z, const TensorOption& dt_bias, bool softplus) {
  const Tensor out = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    return ops::selective_scan_update().redispatch(keys & c10::after_ADInplaceOrView_keyset, state,
                                                   x, dt, A, B, C, D, z, dt_bias, softplus);
  }();
  torch::autograd::increment_version(state);
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) { m.impl("selective_scan_update", update_version); }

}  // namespace
}  // namespace gpuopt::selective
