// The schemas, CPU kernels and Meta kernels of gpuopt::dot, vdot, dot_rows and dot_fast_atomic.
#include "binding/writing.h"
#include "dot/binding/dot_check.h"

namespace gpuopt::dot {
namespace {

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  define<Dot, Out<Dot>, Vdot, Out<Vdot>, DotRows, DotFastAtomic>(m);
}

// ---------------------------------------------------------------- CPU: ATen's kernels

Tensor by_aten(const Dot& op) { return at::dot(op.self, op.other); }
Tensor by_aten(const Vdot& op) { return at::vdot(op.self, op.other); }
Tensor by_aten(const DotFastAtomic& op) { return at::dot(op.self, op.other); }

// As torch.vmap(torch.dot): multiplies each row by a column with matmul. Autocast is switched off,
// since it leaves dot_rows alone but would run matmul in a lower precision.
Tensor by_aten(const DotRows& op) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return at::matmul(op.self.unsqueeze(1), op.other.unsqueeze(2)).view({op.self.size(0)});
}

// ATen returns some products of conjugated operands as a conjugated view, which is resolved here.
template <typename Op>
Tensor dot_cpu(const Op& op) {
  check(op);
  return by_aten(op).resolve_conj();
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

template <typename Op>
Tensor dot_meta(const Op& op) {
  check(op);
  return at::empty_symint(op.self.sym_sizes().slice(0, op.self.dim() - 1), op.self.options());
}

template <typename... Ops>
void impl_cpu(torch::Library& m) {
  (impl<Ops, dot_cpu<Ops>>(m), ...);
}
template <typename... Ops>
void impl_meta(torch::Library& m) {
  (impl<Ops, dot_meta<Ops>>(m), ...);
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  impl_cpu<Dot, Vdot, DotRows, DotFastAtomic>(m);
  impl_out<Dot, checked<Dot>, dot_cpu<Dot>>(m);
  impl_out<Vdot, checked<Vdot>, dot_cpu<Vdot>>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  impl_meta<Dot, Vdot, DotRows, DotFastAtomic>(m);
  impl_out<Dot, checked<Dot>, dot_meta<Dot>>(m);
  impl_out<Vdot, checked<Vdot>, dot_meta<Vdot>>(m);
}

// The kernels conjugate values as they read them, so a conjugated view is not copied first.
TORCH_LIBRARY_IMPL(gpuopt, Conjugate, m) {
  impl_fallthrough<Dot, Out<Dot>, Vdot, Out<Vdot>, DotRows>(m);
}

}  // namespace
}  // namespace gpuopt::dot
