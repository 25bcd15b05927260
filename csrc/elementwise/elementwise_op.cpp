// gpuopt::mul, mul_, axpy and fma: schemas, and the CPU and Meta kernels.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/ScalarOps.h>
#include <ATen/native/TypeProperties.h>
#include <torch/library.h>

#include <cmath>

#include "elementwise/elementwise_check.h"

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  m.def("mul.Tensor(Tensor self, Tensor other) -> Tensor", tags);
  m.def("mul.Scalar(Tensor self, Scalar other) -> Tensor", tags);
  m.def("mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", tags);
  m.def("mul.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)", tags);
  m.def("mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)", tags);
  m.def("mul_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)", tags);
  m.def("axpy(Tensor x, Tensor y, *, Scalar alpha=1) -> Tensor", tags);
  m.def("fma(Tensor a, Tensor b, Tensor c) -> Tensor", tags);
}

namespace gpuopt::elementwise {
namespace {

// The CPU kernels delegate to ATen, and so do the Meta kernels of operators that write to an argument.

// The result of a binary operator, in the layout that ATen's iterator gives it on CUDA. It doesn't know symbolic shapes, and at::mul
// on Meta loses the dimension order of half types and of two dtypes (expanded * transposed, torch 2.11).
at::Tensor binary_meta(const at::Tensor& self, const at::Tensor& other) {
  if (!has_symbolic_shape(self) && !has_symbolic_shape(other)) {
    return make_iterator({}, {self, other}).output();
  }
  const auto as_floats = [](const at::Tensor& tensor) {
    return at::empty_strided_symint(tensor.sym_sizes(), tensor.sym_strides(),
                                    tensor.options().dtype(at::kFloat));
  };
  const at::Tensor like = at::mul(as_floats(self), as_floats(other));
  return at::empty_strided_symint(like.sym_sizes(), like.sym_strides(),
                                  like.options().dtype(at::result_type(self, other)));
}

at::Tensor mul_meta(const at::Tensor& self, const at::Tensor& other) {
  check_inputs("gpuopt::mul", {{"self", self}, {"other", other}});
  return binary_meta(self, other);
}

// For a binary operator of two dtypes on the CPU: ATen casts an operand first there and lays the result out like that copy, which it
// does neither on CUDA nor on Meta (expanded * transposed, torch 2.11).
at::Tensor binary_out(const at::Tensor& self, const at::Tensor& other) {
  const at::Tensor like = binary_meta(meta_of(self), meta_of(other));
  return unfilled_strided(like.sizes(), like.strides(),
                          self.options().dtype(at::result_type(self, other)));
}

at::Tensor mul_aten(const at::Tensor& self, const at::Tensor& other) {
  check_inputs("gpuopt::mul", {{"self", self}, {"other", other}});
  if (self.scalar_type() == other.scalar_type()) return at::mul(self, other);
  at::Tensor out = binary_out(self, other);
  return at::mul_out(out, self, other);
}

at::Tensor mul_scalar_aten(const at::Tensor& self, const at::Scalar& other) {
  return at::mul(self, other);
}

at::Tensor& mul_out_aten(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  check_out("gpuopt::mul", self, other, out);
  return at::mul_out(out, self, other);
}

at::Tensor& mul_inplace_aten(at::Tensor& self, const at::Tensor& other) {
  check_inplace("gpuopt::mul_", self, other);
  return self.mul_(other);
}

at::Tensor& mul_inplace_scalar_aten(at::Tensor& self, const at::Scalar& other) {
  check_inplace("gpuopt::mul_", self, other);
  // As Python's x.mul_(number) calls it: at::mul_(Scalar) rounds the number to half types first.
  return self.mul_(at::native::wrapped_scalar_tensor(other));
}

at::Tensor& mul_inplace_scalar_meta(at::Tensor& self, const at::Scalar& other) {
  check_inplace("gpuopt::mul_", self, other);
  return self;
}

// A tensor that keeps the number's digits and promotes as a number.
at::Tensor& mul_scalar_out_aten(const at::Tensor& self, const at::Scalar& other, at::Tensor& out) {
  return mul_out_aten(self, at::native::wrapped_scalar_tensor(other), out);
}

at::Tensor axpy_aten(const at::Tensor& x, const at::Tensor& y, const at::Scalar& alpha) {
  check_axpy(x, y, alpha);
  if (x.scalar_type() == y.scalar_type()) return at::add(y, x, alpha);
  at::Tensor out = binary_out(y, x);
  return at::add_out(out, y, x, alpha);
}

at::Tensor axpy_meta(const at::Tensor& x, const at::Tensor& y, const at::Scalar& alpha) {
  check_axpy(x, y, alpha);
  return binary_meta(y, x);
}

at::Tensor fma_meta(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  check_fma(a, b, c);
  return at::addcmul(c, a, b);
}

// at::addcmul rounds twice, so floating-point types go through std::fma.
at::Tensor fma_cpu(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  check_fma(a, b, c);
  const auto dtype = at::native::result_type(at::TensorList{c, a, b});
  if (!at::isFloatingType(dtype)) return at::addcmul(c, a, b);
  at::TensorIterator iterator = make_iterator({}, {c, a, b});
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "gpuopt::fma", [&] {
    using C = at::opmath_type<scalar_t>;
    iterator.for_each([](char** data, const int64_t* strides, int64_t n) {
      const auto load = [&](int operand, int64_t i) {
        return static_cast<C>(
            *reinterpret_cast<const scalar_t*>(data[operand] + i * strides[operand]));
      };
      for (int64_t i = 0; i < n; ++i) {
        *reinterpret_cast<scalar_t*>(data[0] + i * strides[0]) =
            static_cast<scalar_t>(std::fma(load(2, i), load(3, i), load(1, i)));
      }
    });
  });
  return iterator.output();
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  m.impl("mul.Tensor", mul_aten);
  m.impl("mul.Scalar", mul_scalar_aten);
  m.impl("mul.out", mul_out_aten);
  m.impl("mul.Scalar_out", mul_scalar_out_aten);
  m.impl("mul_.Tensor", mul_inplace_aten);
  m.impl("mul_.Scalar", mul_inplace_scalar_aten);
  m.impl("axpy", axpy_aten);
  m.impl("fma", fma_cpu);
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  m.impl("mul.Tensor", mul_meta);
  m.impl("mul.Scalar", mul_scalar_aten);
  m.impl("mul.out", mul_out_aten);
  m.impl("mul.Scalar_out", mul_scalar_out_aten);
  m.impl("mul_.Tensor", mul_inplace_aten);
  m.impl("mul_.Scalar", mul_inplace_scalar_meta);
  m.impl("axpy", axpy_meta);
  m.impl("fma", fma_meta);
}

}  // namespace
}  // namespace gpuopt::elementwise
