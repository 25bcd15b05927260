// gpuopt::mul, mul_, axpy and fma: schemas, and the CPU and Meta kernels.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/ScalarOps.h>
#include <ATen/native/TypeProperties.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "elementwise/binding/elementwise_check.h"

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

// The CPU kernels call ATen, except fma in floating-point types. Meta kernels of operators that
// write to an argument call ATen, too.

bool has_symbolic_shape_in(at::TensorList tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return has_symbolic_shape(tensor); });
}

// The result of two or three operands on Meta, in the layout that ATen's iterator gives it on CUDA.
// The iterator doesn't know symbolic shapes, so they go through at::mul or at::addcmul of fp32
// operands. Other shapes don't, because these functions lose the order of dimensions on Meta, for
// example of expanded * transposed (torch 2.11): at::mul in fp16, bf16 and two different dtypes,
// at::addcmul in all dtypes.
at::Tensor result_meta(at::TensorList operands) {
  if (!has_symbolic_shape_in(operands)) return make_iterator({}, operands).output();
  std::vector<at::Tensor> floats;
  for (const at::Tensor& operand : operands) {
    floats.push_back(at::empty_strided_symint(operand.sym_sizes(), operand.sym_strides(),
                                              operand.options().dtype(at::kFloat)));
  }
  const at::Tensor like = floats.size() == 2 ? at::mul(floats[0], floats[1])
                                             : at::addcmul(floats[0], floats[1], floats[2]);
  return at::empty_strided_symint(like.sym_sizes(), like.sym_strides(),
                                  like.options().dtype(at::native::result_type(operands)));
}

at::Tensor mul_meta(const at::Tensor& self, const at::Tensor& other) {
  check_inputs("gpuopt::mul", {{"self", self}, {"other", other}});
  return result_meta({self, other});
}

// The output for CPU operands of several dtypes, in the layout that it has on CUDA and Meta. ATen's
// CPU kernels cast some operands first and lay the result out like the casts, for example of
// expanded * transposed (torch 2.11). Undefined if all operands have one dtype, or are contiguous
// and of one shape.
at::Tensor result_of_casts(at::TensorList operands) {
  const at::Tensor* widest = nullptr;
  bool same = true, plain = true;
  for (const at::Tensor& operand : operands) {
    same = same && operand.scalar_type() == operands[0].scalar_type();
    if (operand.dim() == 0) continue;
    if (widest == nullptr) widest = &operand;
    plain = plain && operand.is_contiguous() && operand.sizes() == widest->sizes();
  }
  if (same || plain) return {};
  std::vector<at::Tensor> twins;
  for (const at::Tensor& operand : operands) twins.push_back(meta_of(operand));
  const at::Tensor like = result_meta(twins);
  return unfilled_strided(like.sizes(), like.strides(), like.options().device(at::kCPU));
}

at::Tensor mul_aten(const at::Tensor& self, const at::Tensor& other) {
  check_inputs("gpuopt::mul", {{"self", self}, {"other", other}});
  at::Tensor out = result_of_casts({self, other});
  return out.defined() ? at::mul_out(out, self, other) : at::mul(self, other);
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
  // Python's x.mul_(number) passes a tensor, too. mul_(Scalar) would round the number to fp16 or
  // bf16 first.
  return self.mul_(at::native::wrapped_scalar_tensor(other));
}

at::Tensor& mul_inplace_scalar_meta(at::Tensor& self, const at::Scalar& other) {
  check_inplace("gpuopt::mul_", self, other);
  return self;
}

// wrapped_scalar_tensor keeps the number's precision, and promotes as a number.
at::Tensor& mul_scalar_out_aten(const at::Tensor& self, const at::Scalar& other, at::Tensor& out) {
  return mul_out_aten(self, at::native::wrapped_scalar_tensor(other), out);
}

at::Tensor axpy_aten(const at::Tensor& x, const at::Tensor& y, const at::Scalar& alpha) {
  check_axpy(x, y, alpha);
  at::Tensor out = result_of_casts({y, x});
  return out.defined() ? at::add_out(out, y, x, alpha) : at::add(y, x, alpha);
}

at::Tensor axpy_meta(const at::Tensor& x, const at::Tensor& y, const at::Scalar& alpha) {
  check_axpy(x, y, alpha);
  return result_meta({y, x});
}

at::Tensor fma_meta(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  check_fma(a, b, c);
  return result_meta({c, a, b});
}

// at::addcmul rounds twice, so floating-point types use std::fma.
at::Tensor fma_cpu(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  check_fma(a, b, c);
  const auto dtype = at::native::result_type(at::TensorList{c, a, b});
  at::Tensor out = result_of_casts({c, a, b});
  if (!at::isFloatingType(dtype)) {
    return out.defined() ? at::addcmul_out(out, c, a, b) : at::addcmul(c, a, b);
  }
  at::TensorIterator iterator = make_iterator(out, {c, a, b});
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
