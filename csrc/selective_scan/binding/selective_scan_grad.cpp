// Derivatives of selective scans. The gradient is an operator with kernels of its own. Higher
// derivatives and forward mode differentiate loops of ATen's operators, which is slow.
#include "binding/captured.h"
#include "binding/writing.h"
#include "selective_scan/binding/selective_scan_reference.h"

namespace gpuopt::selective {
namespace {

using namespace autograd_names;

struct ScanNode : torch::autograd::Node {
  explicit ScanNode(const SelectiveScan& in) : softplus_(in.softplus) {
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
    auto found =
        call(SelectiveScanBackward{option(grads[0]), option(grads[1]), x[0], x[1], x[2], x[3], x[4],
                                   option(x[5]), option(x[6]), option(x[7]), softplus_});
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

Outputs scan_autograd(const SelectiveScan& op, DispatchKeySet keys) {
  if (has_tangents(op)) return scan_checked(op);
  NodePtr<ScanNode> node;
  if (requires_grad(op)) {
    const auto& [u, delta, A, B, C, D, z, delta_bias, softplus] = op;
    check_scan(op);
    node = make_node<ScanNode>(op);
    node->set_next_edges(collect_next_edges(u, delta, A, B, C, D, z, delta_bias));
  }
  auto [out, last] = below_autograd(op, keys);
  if (node) {
    set_history(out, node);
    set_history(last, node);
  }
  return {out, last};
}

InputGradients backward_autograd(const SelectiveScanBackward& op, DispatchKeySet keys) {
  if (requires_grad(op) || has_tangents(op)) return backward_checked(op);
  return below_autograd(op, keys);
}

// The update is for generation.
Tensor update_autograd(const SelectiveScanUpdate& op, DispatchKeySet keys) {
  check_not_captured(kUpdateOp, {"state", op.state});
  TORCH_CHECK(!requires_grad(op) && !has_tangents(op), kUpdateOp,
              ": no derivative is implemented: expected arguments that need no gradient, got one "
              "that does (call it under torch.no_grad(), or use selective_scan)");
  return write_below_autograd(op, keys);
}

TORCH_LIBRARY_IMPL(gpuopt, Autograd, m) {
  impl<SelectiveScan, scan_autograd>(m);
  impl<SelectiveScanBackward, backward_autograd>(m);
  impl<SelectiveScanUpdate, update_autograd>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, ADInplaceOrView, m) { impl_counted<SelectiveScanUpdate>(m); }

}  // namespace
}  // namespace gpuopt::selective
