// The schemas, CPU kernels and Meta kernels of gpuopt::dot, vdot, dot_rows and dot_fast_atomic.
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "dot/binding/dot_check.h"

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  m.def("dot(Tensor self, Tensor tensor) -> Tensor", tags);
  m.def("dot.out(Tensor self, Tensor tensor, *, Tensor(a!) out) -> Tensor(a!)", tags);
  m.def("vdot(Tensor self, Tensor other) -> Tensor", tags);
  m.def("vdot.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", tags);
  m.def("dot_rows(Tensor self, Tensor tensor) -> Tensor", tags);
  m.def("dot_fast_atomic(Tensor self, Tensor tensor) -> Tensor", tags);
}

namespace gpuopt::dot {
namespace {

using at::Tensor;

// ---------------------------------------------------------------- CPU: ATen's kernels

// ATen returns some products of conjugated operands as a conjugated view, which is resolved here.
Tensor dot_cpu(const Tensor& self, const Tensor& tensor) {
  check_dot(self, tensor);
  return at::dot(self, tensor).resolve_conj();
}

Tensor vdot_cpu(const Tensor& self, const Tensor& other) {
  check_vdot(self, other);
  return at::vdot(self, other).resolve_conj();
}

// As torch.vmap(torch.dot): multiplies each row by a column with matmul. Autocast is switched off,
// since it leaves dot_rows alone but would run matmul in a lower precision.
Tensor dot_rows_cpu(const Tensor& self, const Tensor& tensor) {
  check_dot_rows(self, tensor);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const Tensor product = at::matmul(self.unsqueeze(1), tensor.unsqueeze(2));
  return product.view({self.size(0)}).resolve_conj();
}

Tensor dot_fast_atomic_cpu(const Tensor& self, const Tensor& tensor) {
  check_dot_fast_atomic(self, tensor);
  return at::dot(self, tensor);
}

Tensor& write(Tensor& out, const Tensor& result) {
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

Tensor& dot_out_cpu(const Tensor& self, const Tensor& tensor, Tensor& out) {
  check_dot_out(self, tensor, out);
  return write(out, at::dot(self, tensor));
}

Tensor& vdot_out_cpu(const Tensor& self, const Tensor& other, Tensor& out) {
  check_vdot_out(self, other, out);
  return write(out, at::vdot(self, other));
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  m.impl("dot", dot_cpu);
  m.impl("dot.out", dot_out_cpu);
  m.impl("vdot", vdot_cpu);
  m.impl("vdot.out", vdot_out_cpu);
  m.impl("dot_rows", dot_rows_cpu);
  m.impl("dot_fast_atomic", dot_fast_atomic_cpu);
}

// ---------------------------------------------------------------- Meta: shapes, possibly symbolic

Tensor dot_meta(const Tensor& self, const Tensor& tensor) {
  check_dot(self, tensor);
  return at::empty({}, self.options());
}

Tensor& dot_out_meta(const Tensor& self, const Tensor& tensor, Tensor& out) {
  check_dot_out(self, tensor, out);
  at::native::resize_output_symint(out, {});
  return out;
}

Tensor vdot_meta(const Tensor& self, const Tensor& other) {
  check_vdot(self, other);
  return at::empty({}, self.options());
}

Tensor& vdot_out_meta(const Tensor& self, const Tensor& other, Tensor& out) {
  check_vdot_out(self, other, out);
  at::native::resize_output_symint(out, {});
  return out;
}

Tensor dot_rows_meta(const Tensor& self, const Tensor& tensor) {
  check_dot_rows(self, tensor);
  return at::empty_symint({self.sym_size(0)}, self.options());
}

Tensor dot_fast_atomic_meta(const Tensor& self, const Tensor& tensor) {
  check_dot_fast_atomic(self, tensor);
  return at::empty({}, self.options());
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  m.impl("dot", dot_meta);
  m.impl("dot.out", dot_out_meta);
  m.impl("vdot", vdot_meta);
  m.impl("vdot.out", vdot_out_meta);
  m.impl("dot_rows", dot_rows_meta);
  m.impl("dot_fast_atomic", dot_fast_atomic_meta);
}

// ---------------------------------------------------------------- conjugated views

// The kernels conjugate values as they read them, so a conjugated view is not copied first.
TORCH_LIBRARY_IMPL(gpuopt, Conjugate, m) {
  m.impl("dot", torch::CppFunction::makeFallthrough());
  m.impl("dot.out", torch::CppFunction::makeFallthrough());
  m.impl("vdot", torch::CppFunction::makeFallthrough());
  m.impl("vdot.out", torch::CppFunction::makeFallthrough());
  m.impl("dot_rows", torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace gpuopt::dot
