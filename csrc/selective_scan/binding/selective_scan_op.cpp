// The schemas, CPU kernels and Meta kernels of selective scans.
#include "binding/writing.h"
#include "selective_scan/binding/selective_scan_reference.h"

namespace gpuopt::selective {
namespace {

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  define<SelectiveScan, SelectiveScanBackward, SelectiveScanUpdate>(m);
}

// ---------------------------------------------------------------- CPU: ATen's kernels

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  impl<SelectiveScan, scan_checked>(m);
  impl<SelectiveScanBackward, backward_checked>(m);
  impl<SelectiveScanUpdate, update_checked>(m);
}

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

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  impl<SelectiveScan, scan_meta>(m);
  impl<SelectiveScanBackward, backward_meta>(m);
  impl<SelectiveScanUpdate, update_meta>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, Negative, m) { impl_resolved<SelectiveScanUpdate>(m); }

}  // namespace
}  // namespace gpuopt::selective
