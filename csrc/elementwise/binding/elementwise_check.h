// One check function per operator form, used by the CUDA, CPU and Meta kernels alike.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/native/TypeProperties.h>

#include "binding/check.h"
#include "binding/unfilled.h"

namespace gpuopt::elementwise {

inline void check_inputs(const char* op, std::initializer_list<NamedTensor> inputs) {
  check_same_device(op, inputs);
  check_broadcast(op, inputs);
}

// In-place: the result must have self's shape, and a dtype that casts to self's.
inline void check_inplace(const char* op, const at::Tensor& self, const at::Tensor& other) {
  check_inputs(op, {{"self", self}, {"other", other}});
  if (has_symbolic_shape(self) || has_symbolic_shape(other)) return;
  TORCH_CHECK(at::is_expandable_to(other.sizes(), self.sizes()), op,
              ": other must broadcast to self's shape: expected a shape that expands to ",
              self.sizes(), ", got ", other.sizes());
  check_castable(op, "self", at::result_type(self, other), self.scalar_type());
  check_writable(op, {"self", self}, {{"other", other}});
}

// The number, or a stand-in of the same kind while a graph is traced and the value is unknown. Type
// promotion depends only on the kind, but at::result_type would ask for the value.
inline at::Scalar known_number(const at::Scalar& number) {
  if (!number.isSymbolic()) return number;
  return number.isFloatingPoint() ? at::Scalar(1.0) : at::Scalar(1);
}

inline void check_inplace(const char* op, const at::Tensor& self, const at::Scalar& other) {
  check_castable(op, "self", at::result_type(self, known_number(other)), self.scalar_type());
  check_writable(op, {"self", self}, {});
}

inline void check_out_device(const char* op, NamedTensor input, const at::Tensor& out) {
  TORCH_CHECK(is_cpu_scalar(input.tensor) || out.device() == input.tensor.device(), op,
              ": out must be on the device of ", input.name, ": expected ", input.tensor.device(),
              ", got ", out.device());
}

inline void check_out(const char* op, const at::Tensor& self, const at::Tensor& other,
                      const at::Tensor& out) {
  check_inputs(op, {{"self", self}, {"other", other}});
  check_out_device(op, {"self", self}, out);
  check_out_device(op, {"other", other}, out);
  check_castable(op, "out", at::result_type(self, other), out.scalar_type());
  check_writable(op, {"out", out}, {{"self", self}, {"other", other}});
}

inline void check_out(const char* op, const at::Tensor& self, const at::Scalar& other,
                      const at::Tensor& out) {
  check_out_device(op, {"self", self}, out);
  check_castable(op, "out", at::result_type(self, known_number(other)), out.scalar_type());
  check_writable(op, {"out", out}, {{"self", self}});
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

inline void check_axpy(const at::Tensor& x, const at::Tensor& y, const at::Scalar& alpha) {
  constexpr const char* op = "gpuopt::axpy";
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

inline void check_fma(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  constexpr const char* op = "gpuopt::fma";
  check_inputs(op, {{"a", a}, {"b", b}, {"c", c}});
  const at::ScalarType result = at::native::result_type(at::TensorList{c, a, b});
  TORCH_CHECK_NOT_IMPLEMENTED(result != at::kBool, op,
                              " is not implemented for Bool: a, b or c must be a number type");
}

inline at::Tensor meta_of(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

// Calls build(output, inputs), which makes an ATen iterator. In deterministic mode the iterator
// would allocate the output and fill it. The output is then allocated here, unfilled, with the
// sizes and strides that an iterator over Meta tensors gives it.
template <typename Build>
at::TensorIterator with_output(const at::Tensor& out, at::TensorList inputs, const Build& build) {
  if (out.defined() || !empty_is_filled()) return build(out, inputs);
  c10::SmallVector<at::Tensor, 3> on_meta;
  c10::Device device = at::kCPU;
  for (const at::Tensor& input : inputs) {
    on_meta.push_back(meta_of(input));
    if (!is_cpu_scalar(input)) device = input.device();
  }
  const at::Tensor like = build(out, at::TensorList(on_meta)).output();
  return build(unfilled_strided(like.sizes(), like.strides(), like.options().device(device)),
               inputs);
}

// ATen's iterator over an output and its inputs. ATen decides on broadcasting, type promotion, the
// output's memory format and the order of dimensions. `out` may be undefined.
inline at::TensorIterator make_iterator(const at::Tensor& out, at::TensorList inputs) {
  return with_output(out, inputs, [](const at::Tensor& output, at::TensorList operands) {
    at::TensorIteratorConfig config;
    config.allow_cpu_scalars(true)
        .promote_inputs_to_common_dtype(true)
        .cast_common_dtype_to_outputs(true)
        .enforce_safe_casting_to_output(true)
        .add_owned_output(output);
    for (const at::Tensor& operand : operands) config.add_owned_const_input(operand);
    return config.build();
  });
}

}  // namespace gpuopt::elementwise
