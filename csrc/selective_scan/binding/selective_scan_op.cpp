// Selective scans: schemas, and all kernels except CUDA's. They need no rule for autocast,
// because they accept mixed dtypes.
#include "binding/captured.h"
#include "binding/vmap.h"
#include "binding/writing.h"
#include "selective_scan/binding/selective_scan_reference.h"

namespace gpuopt::selective {
namespace {

using namespace autograd_names;

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

Outputs scan_meta(const SelectiveScan& op) {
  check_scan(op);
  const Tensor last = at::empty_symint({op.u.sym_size(0), op.u.sym_size(1), op.A.sym_size(1)},
                                       op.u.options().dtype(op.compute_type()));
  return {new_like(op.u, op.u.scalar_type()), last};
}

InputGradients backward_meta(const SelectiveScanBackward& op) {
  const SelectiveScan in = op.scan();
  const auto& [u, delta, A, B, C, D, z, delta_bias, softplus] = in;
  check_scan(in);
  const auto dense = [](const Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); };
  const auto none = [&] { return at::empty({0}, in.u.options()); };
  return {new_like(u, u.scalar_type()),
          new_like(u, delta.scalar_type()),
          dense(A),
          dense(B),
          dense(C),
          is_given(D) ? dense(*D) : none(),
          is_given(z) ? new_like(u, z->scalar_type()) : none(),
          is_given(delta_bias) ? dense(*delta_bias) : none()};
}

Tensor update_meta(const SelectiveScanUpdate& op) {
  check_update(op);
  return at::empty_symint(op.x.sym_sizes(), op.x.options());
}

// ---------------------------------------------------------------- vmap

// Weights have at most two dimensions. The other arguments have a batch.
bool is_weight(const VmapLevel::Operand& operand) { return operand.logical_dim() <= 2; }

// Examples that share the weights are folded into the batch.
Outputs scan_vmap(const SelectiveScan& op) {
  check_scan(op);
  const c10::SymInt batch = op.u.sym_size(0);  // of an example
  {
    const VmapLevel level;
    const auto examples = level.examples_of(op);
    if (!examples.has_value()) return level.pass_on(op);
    bool shares_weights = true;
    for_each_tensor(op, [&](const Tensor& tensor) {
      const auto operand = level.unwrap(tensor);
      if (operand.batch_dim.has_value() && is_weight(operand)) shares_weights = false;
    });
    if (shares_weights) {
      auto [out, last] = call_mapped(op, [&](const Tensor& tensor) {
        const auto operand = level.unwrap(tensor);
        return is_weight(operand) ? operand.value : operand.in_front(*examples).flatten(0, 1);
      });
      const std::array<c10::SymInt, 2> sizes{*examples, batch};
      return {level.wrap(out.unflatten_symint(0, sizes), 0),
              level.wrap(last.unflatten_symint(0, sizes), 0)};
    }
  }
  return scan_by_aten(op);  // ATen's operators have batching rules
}

// The state is written, so each example must have its own.
Tensor update_vmap(const SelectiveScanUpdate& op) {
  {
    const VmapLevel level;
    bool is_mapped = false;
    for_each_tensor(op, [&](const Tensor& tensor) {
      is_mapped = is_mapped || level.unwrap(tensor).batch_dim.has_value();
    });
    TORCH_CHECK(!is_mapped || level.unwrap(op.state).batch_dim.has_value(),
                name_of<SelectiveScanUpdate>(),
                ": state must be batched by torch.vmap when another argument is: expected a state "
                "that vmap maps over, got one shared by all examples");
  }
  return update_checked(op);
}

// ---------------------------------------------------------------- derivatives

// The gradient is an operator with kernels of its own. Higher derivatives and forward mode
// differentiate loops of ATen's operators, which is slow.

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
  void describe_state(NodeState& state) const override { state(softplus_); }

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

// The gradients of the weights differ from example to example, so vmap can't fold the examples of
// the backward.
TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  register_op<SelectiveScan, Cpu<scan_checked>, Meta<scan_meta>, Batched<scan_vmap>,
              Autograd<scan_autograd>>(m);
  register_op<SelectiveScanBackward, Cpu<backward_checked>, Meta<backward_meta>,
              Batched<backward_checked>, Autograd<backward_autograd>>(m);
  register_op<SelectiveScanUpdate, Cpu<update_checked>, Meta<update_meta>, Batched<update_vmap>,
              Autograd<update_autograd>, Counted, Resolved<c10::DispatchKey::Negative>,
              Transformed<update_checked>>(m);
}

}  // namespace
}  // namespace gpuopt::selective
