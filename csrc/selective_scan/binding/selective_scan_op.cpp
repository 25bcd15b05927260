// The schemas, CPU kernels and Meta kernels of selective scans.
#include <torch/library.h>

#include "selective_scan/binding/selective_scan_ops.h"

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  m.def(
      "selective_scan(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D=None, "
      "Tensor? z=None, Tensor? delta_bias=None, bool delta_softplus=False) -> (Tensor out, Tensor "
      "last_state)",
      tags);
  m.def(
      "_selective_scan_backward(Tensor? out_grad, Tensor? last_state_grad, Tensor u, Tensor delta, "
      "Tensor A, Tensor B, Tensor C, Tensor? D=None, Tensor? z=None, Tensor? delta_bias=None, "
      "bool delta_softplus=False) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, "
      "Tensor)",
      tags);
  m.def(
      "selective_scan_update(Tensor(a!) state, Tensor x, Tensor dt, Tensor A, Tensor B, Tensor C, "
      "Tensor? D=None, Tensor? z=None, Tensor? dt_bias=None, bool dt_softplus=False) -> Tensor",
      tags);
}

namespace gpuopt::selective {
namespace {

// ---------------------------------------------------------------- CPU: ATen's kernels

Outputs scan_cpu(const Tensor& u, const Tensor& delta, const Tensor& A, const Tensor& B,
                 const Tensor& C, const TensorOption& D, const TensorOption& z,
                 const TensorOption& delta_bias, bool softplus) {
  const Inputs in{u, delta, A, B, C, D, z, delta_bias, softplus};
  check_scan(in);
  return scan_by_aten(in);
}

InputGradients backward_cpu(const TensorOption& out_grad, const TensorOption& last_grad,
                            const Tensor& u, const Tensor& delta, const Tensor& A, const Tensor& B,
                            const Tensor& C, const TensorOption& D, const TensorOption& z,
                            const TensorOption& delta_bias, bool softplus) {
  const Inputs in{u, delta, A, B, C, D, z, delta_bias, softplus};
  check_scan(in);
  return gradients_by_aten(out_grad, last_grad, in);
}

Tensor update_cpu(Tensor& state, const Tensor& x, const Tensor& dt, const Tensor& A,
                  const Tensor& B, const Tensor& C, const TensorOption& D, const TensorOption& z,
                  const TensorOption& dt_bias, bool softplus) {
  return update_by_aten(check_update(state, x, dt, A, B, C, D, z, dt_bias, softplus));
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  m.impl("selective_scan", scan_cpu);
  m.impl("_selective_scan_backward", backward_cpu);
  m.impl("selective_scan_update", update_cpu);
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

Outputs scan_meta(const Tensor& u, const Tensor& delta, const Tensor& A, const Tensor& B,
                  const Tensor& C, const TensorOption& D, const TensorOption& z,
                  const TensorOption& delta_bias, bool softplus) {
  const Inputs in{u, delta, A, B, C, D, z, delta_bias, softplus};
  check_scan(in);
  const Tensor last = at::empty_symint({u.sym_size(0), u.sym_size(1), A.sym_size(1)},
                                       u.options().dtype(in.compute_type()));
  return {new_like(u, u.scalar_type()), last};
}

InputGradients backward_meta(const TensorOption&, const TensorOption&, const Tensor& u,
                             const Tensor& delta, const Tensor& A, const Tensor& B, const Tensor& C,
                             const TensorOption& D, const TensorOption& z,
                             const TensorOption& delta_bias, bool softplus) {
  check_scan({u, delta, A, B, C, D, z, delta_bias, softplus});
  const auto dense = [](const Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); };
  const auto none = [&] { return at::empty({0}, u.options()); };
  return {new_like(u, u.scalar_type()),
          new_like(u, delta.scalar_type()),
          dense(A),
          dense(B),
          dense(C),
          is_given(D) ? dense(*D) : none(),
          is_given(z) ? new_like(u, z->scalar_type()) : none(),
          is_given(delta_bias) ? dense(*delta_bias) : none()};
}

Tensor update_meta(Tensor& state, const Tensor& x, const Tensor& dt, const Tensor& A,
                   const Tensor& B, const Tensor& C, const TensorOption& D, const TensorOption& z,
                   const TensorOption& dt_bias, bool softplus) {
  check_update(state, x, dt, A, B, C, D, z, dt_bias, softplus);
  return at::empty_symint(x.sym_sizes(), x.options());
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  m.impl("selective_scan", scan_meta);
  m.impl("_selective_scan_backward", backward_meta);
  m.impl("selective_scan_update", update_meta);
}

// ---------------------------------------------------------------- Negated views

// PyTorch's fallback expects an operator that writes to its first argument and returns it.
Tensor update_resolved(Tensor& state, const Tensor& x, const Tensor& dt, const Tensor& A,
                       const Tensor& B, const Tensor& C, const TensorOption& D,
                       const TensorOption& z, const TensorOption& dt_bias, bool softplus) {
  const auto resolved = [](const TensorOption& tensor) {
    return is_given(tensor) ? TensorOption(at::resolve_neg(*tensor)) : std::nullopt;
  };
  Tensor values = at::resolve_neg(state);
  const Tensor out = ops::selective_scan_update().call(
      values, at::resolve_neg(x), at::resolve_neg(dt), at::resolve_neg(A), at::resolve_neg(B),
      at::resolve_neg(C), resolved(D), resolved(z), resolved(dt_bias), softplus);
  if (!values.is_same(state)) state.copy_(values);
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt, Negative, m) { m.impl("selective_scan_update", update_resolved); }

}  // namespace
}  // namespace gpuopt::selective
