// One check function per operator form, used by the CUDA, CPU and Meta kernels alike.
#pragma once

#include <ATen/ATen.h>
#include <ATen/native/TypeProperties.h>

#include "binding/check.h"
#include "elementwise/binding/elementwise_ops.h"

namespace gpuopt::elementwise {

inline void check_inputs(const char* op, std::initializer_list<NamedTensor> inputs) {
  check_same_device(op, inputs);
  check_broadcast(op, inputs);
}

// The number, or a stand-in of the same kind while a graph is traced and the value is unknown. Type
// promotion depends only on the kind, but at::result_type would ask for the value.
inline at::Scalar known_number(const at::Scalar& number) {
  if (!number.isSymbolic()) return number;
  return number.isFloatingPoint() ? at::Scalar(1.0) : at::Scalar(1);
}

// Whether a number is in the range of a dtype, as at::Scalar::to checks it.
inline bool fits(const at::Scalar& number, at::ScalarType dtype) {
  // The value is unknown while a graph is traced. The check runs again when the graph is run.
  if (number.isSymbolic()) return true;
  switch (dtype) {
    case at::kByte:
      return !c10::overflows<uint8_t>(number.toLong());
    case at::kChar:
      return !c10::overflows<int8_t>(number.toLong());
    case at::kShort:
      return !c10::overflows<int16_t>(number.toLong());
    case at::kInt:
      return !c10::overflows<int32_t>(number.toLong());
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
      return !c10::overflows<float>(number.toDouble());
    case at::kComplexHalf:
    case at::kComplexFloat: {
      const auto value = number.toComplexDouble();
      return !c10::overflows<float>(value.real()) && !c10::overflows<float>(value.imag());
    }
    default:
      return true;
  }
}

template <typename Op>
void check(const Op& op) {
  std::apply([](const auto&... inputs) { check_inputs(name_of<Op>(), {inputs...}); }, op.inputs());
}

inline void check(const Axpy& call) {
  const char* op = name_of<Axpy>();
  const auto& [x, y, alpha] = call;
  check_inputs(op, {{"y", y}, {"x", x}});
  const at::ScalarType result = at::result_type(y, x);
  TORCH_CHECK(!alpha.isBoolean() || result == at::kBool, op,
              ": alpha must not be a bool: expected a number for a result of dtype ", result,
              ", got ", alpha);
  TORCH_CHECK(!at::isIntegralType(result, /*includeBool=*/true) || alpha.isIntegral(true), op,
              ": alpha must be an integer for a result of dtype ", result, ", got ", alpha);
  TORCH_CHECK(at::isComplexType(result) || !alpha.isComplex(), op,
              ": alpha must be real for a result of dtype ", result, ", got ", alpha);
  TORCH_CHECK(fits(alpha, result), op, ": alpha must fit the result's dtype ", result, ", got ",
              alpha);
}

inline void check(const Fma& call) {
  const char* op = name_of<Fma>();
  const auto& [a, b, c] = call;
  check_inputs(op, {{"a", a}, {"b", b}, {"c", c}});
  const at::ScalarType result = at::native::result_type(at::TensorList{c, a, b});
  TORCH_CHECK_NOT_IMPLEMENTED(result != at::kBool, op,
                              " is not implemented for Bool: a, b or c must be a number type");
}

// In-place: the product must have the shape of self, and a dtype that casts to that of self.
inline void check_write(const Inplace<MulTensor>& call) {
  const char* op = name_of<Inplace<MulTensor>>();
  const auto& [self, other] = call.in;
  check_inputs(op, {{"input", self}, {"other", other}});
  if (has_symbolic_shape(self) || has_symbolic_shape(other)) return;
  TORCH_CHECK(at::is_expandable_to(other.sizes(), self.sizes()), op,
              ": other must broadcast to input's shape: expected a shape that expands to ",
              self.sizes(), ", got ", other.sizes());
  check_castable(op, "input", at::result_type(self, other), self.scalar_type());
  check_writable(op, {"input", self}, {{"other", other}});
}

inline void check_write(const Inplace<MulScalar>& call) {
  const char* op = name_of<Inplace<MulScalar>>();
  const auto& [self, other] = call.in;
  check_castable(op, "input", at::result_type(self, known_number(other)), self.scalar_type());
  check_writable(op, {"input", self}, {});
}

inline void check_out_device(const char* op, NamedTensor input, const at::Tensor& out) {
  if (!is_cpu_scalar(input.tensor)) check_device_of(op, {"out", out}, input);
}

inline void check_write(const Out<MulTensor>& call) {
  const char* op = name_of<MulTensor>();
  const auto& [self, other] = call.in;
  check(call.in);
  check_out_device(op, {"input", self}, call.out);
  check_out_device(op, {"other", other}, call.out);
  check_castable(op, "out", at::result_type(self, other), call.out.scalar_type());
  check_writable(op, {"out", call.out}, {{"input", self}, {"other", other}});
}

inline void check_write(const Out<MulScalar>& call) {
  const char* op = name_of<MulScalar>();
  const auto& [self, other] = call.in;
  check_out_device(op, {"input", self}, call.out);
  check_castable(op, "out", at::result_type(self, known_number(other)), call.out.scalar_type());
  check_writable(op, {"out", call.out}, {{"input", self}});
}

template <typename Form>
auto checked(const Form& call) {
  check_write(call);
  return call.in;
}

}  // namespace gpuopt::elementwise
