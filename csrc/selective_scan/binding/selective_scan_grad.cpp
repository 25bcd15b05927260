// Derivatives of selective scans. The gradient is an operator with kernels of its own. Higher
// derivatives and forward mode differentiate loops of ATen's operators, which is slow.
#include "binding/captured.h"
#include "binding/writing.h"
#include "selective_scan/binding/selective_scan_reference.h"

namespace gpuopt::selective {
namespace {

using namespace autograd_names;

struct ScanNode : GradNode {
  explicit ScanNode(const SelectiveScan& in)
      : GradNode(in.u, in.delta, in.A, in.B, in.C, in.D, in.z, in.delta_bias),
        u_(this, in.u),
        delta_(this, in.delta),
        A_(this, in.A),
        B_(this, in.B),
        C_(this, in.C),
        D_(this, in.D),
        z_(this, in.z),
        delta_bias_(this, in.delta_bias),
        softplus_(in.softplus) {}
  std::string name() const override { return "GpuoptSelectiveScanBackward"; }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!grads[0].defined() && !grads[1].defined()) return variable_list(num_outputs());
    const auto found = call(SelectiveScanBackward{
        grads[0], grads[1], u_.unpack(), delta_.unpack(), A_.unpack(), B_.unpack(), C_.unpack(),
        D_.unpack(), z_.unpack(), delta_bias_.unpack(), softplus_});
    variable_list inputs;
    const auto add = [&](const Tensor& gradient) {
      inputs.push_back(task_should_compute_output(inputs.size()) ? gradient : Tensor());
    };
    std::apply([&](const auto&... gradients) { (add(gradients), ...); }, found);
    return inputs;
  }

 private:
  Saved u_, delta_, A_, B_, C_, D_, z_, delta_bias_;
  bool softplus_;
};

Outputs scan_autograd(const SelectiveScan& op, DispatchKeySet keys) {
  if (has_tangents(op)) return scan_checked(op);
  if (requires_grad(op)) check_scan(op);
  const auto node = node_of<ScanNode>(op);
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
