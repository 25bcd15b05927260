// Selective scans under torch.vmap and functionalization. They need no rule for autocast, because
// they accept mixed dtypes.
#include <torch/library.h>

#include "binding/functionalize.h"
#include "binding/vmap.h"
#include "selective_scan/binding/selective_scan_ops.h"

namespace gpuopt::selective {
namespace {

// One operand of a batching rule.
struct Mapped {
  std::optional<VmapLevel::Operand> operand;  // none if the argument is not given

  bool is_mapped() const { return operand.has_value() && operand->batch_dim.has_value(); }
  TensorOption value() const {
    return operand.has_value() ? TensorOption(operand->value) : std::nullopt;
  }
  // The examples folded into the batch.
  TensorOption folded(const c10::SymInt& examples) const {
    if (!operand.has_value()) return std::nullopt;
    return operand->in_front(examples).flatten(0, 1);
  }
};

Mapped unwrap(const VmapLevel& level, const TensorOption& tensor) {
  if (!is_given(tensor)) return {};
  return {level.unwrap(*tensor)};
}

// The arguments of a scan at a level of vmap.
struct MappedInputs {
  Mapped u, delta, A, B, C, D, z, delta_bias;
  c10::SymInt batch;  // of an example

  MappedInputs(const VmapLevel& level, const Inputs& in)
      : u(unwrap(level, in.u)),
        delta(unwrap(level, in.delta)),
        A(unwrap(level, in.A)),
        B(unwrap(level, in.B)),
        C(unwrap(level, in.C)),
        D(unwrap(level, in.D)),
        z(unwrap(level, in.z)),
        delta_bias(unwrap(level, in.delta_bias)),
        batch(in.u.sym_size(0)) {}

  std::optional<c10::SymInt> examples() const {
    for (const Mapped* x : {&u, &delta, &A, &B, &C, &D, &z, &delta_bias}) {
      if (x->is_mapped()) return x->operand->value.sym_size(*x->operand->batch_dim);
    }
    return std::nullopt;
  }

  // Whether all examples share the weights, so that examples can be folded into the batch.
  bool shares_weights() const {
    const auto constant_mapped = [](const Mapped& x) {
      return x.is_mapped() && x.operand->logical_dim() == 2;
    };
    return !A.is_mapped() && !D.is_mapped() && !delta_bias.is_mapped() && !constant_mapped(B) &&
           !constant_mapped(C);
  }

  Tensor folded_matrix(const Mapped& x, const c10::SymInt& count) const {
    return x.operand->logical_dim() == 2 ? x.operand->value : *x.folded(count);
  }
};

Outputs scan_vmap(const Tensor& u, const Tensor& delta, const Tensor& A, const Tensor& B,
                  const Tensor& C, const TensorOption& D, const TensorOption& z,
                  const TensorOption& delta_bias, bool softplus) {
  const Inputs in{u, delta, A, B, C, D, z, delta_bias, softplus};
  check_scan(in);
  {
    const VmapLevel level;
    const MappedInputs x(level, in);
    const auto examples = x.examples();
    if (!examples.has_value()) {  // only another level maps over the operands
      auto [out, last] = ops::selective_scan().call(*x.u.value(), *x.delta.value(), *x.A.value(),
                                                    *x.B.value(), *x.C.value(), x.D.value(),
                                                    x.z.value(), x.delta_bias.value(), softplus);
      return {level.wrap(out, std::nullopt), level.wrap(last, std::nullopt)};
    }
    if (x.shares_weights()) {
      auto [out, last] = ops::selective_scan().call(
          *x.u.folded(*examples), *x.delta.folded(*examples), *x.A.value(),
          x.folded_matrix(x.B, *examples), x.folded_matrix(x.C, *examples), x.D.value(),
          x.z.folded(*examples), x.delta_bias.value(), softplus);
      const std::array<c10::SymInt, 2> sizes{*examples, x.batch};
      return {level.wrap(out.unflatten_symint(0, sizes), 0),
              level.wrap(last.unflatten_symint(0, sizes), 0)};
    }
  }
  return scan_by_aten(in);  // ATen's operators have batching rules
}

// The gradients of the weights differ from example to example, so the examples can't be folded.
InputGradients backward_vmap(const TensorOption& out_grad, const TensorOption& last_grad,
                             const Tensor& u, const Tensor& delta, const Tensor& A, const Tensor& B,
                             const Tensor& C, const TensorOption& D, const TensorOption& z,
                             const TensorOption& delta_bias, bool softplus) {
  const Inputs in{u, delta, A, B, C, D, z, delta_bias, softplus};
  check_scan(in);
  return gradients_by_aten(out_grad, last_grad, in);
}

Tensor update_vmap(Tensor& state, const Tensor& x, const Tensor& dt, const Tensor& A,
                   const Tensor& B, const Tensor& C, const TensorOption& D, const TensorOption& z,
                   const TensorOption& dt_bias, bool softplus) {
  return update_by_aten(check_update(state, x, dt, A, B, C, D, z, dt_bias, softplus));
}

Tensor update_transformed(c10::DispatchKeySet keys, Tensor& state, const Tensor& x,
                          const Tensor& dt, const Tensor& A, const Tensor& B, const Tensor& C,
                          const TensorOption& D, const TensorOption& z, const TensorOption& dt_bias,
                          bool softplus) {
  if (!is_functionalizing()) {
    return call_transforms(ops::selective_scan_update(), keys, state, x, dt, A, B, C, D, z, dt_bias,
                           softplus);
  }
  return update_by_aten(check_update(state, x, dt, A, B, C, D, z, dt_bias, softplus));
}

TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  m.impl("selective_scan", scan_vmap);
  m.impl("_selective_scan_backward", backward_vmap);
  m.impl("selective_scan_update", update_vmap);
}
TORCH_LIBRARY_IMPL(gpuopt, FuncTorchDynamicLayerFrontMode, m) {
  m.impl("selective_scan_update", update_transformed);
}

}  // namespace
}  // namespace gpuopt::selective
