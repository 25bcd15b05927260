// One check function per operator form, used by the CUDA, CPU and Meta kernels alike.
#pragma once

#include <ATen/NamedTensorUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>

#include "binding/check.h"
#include "binding/unfilled.h"

namespace gpuopt::elementwise {

inline void check_inputs(const char* op, std::initializer_list<NamedTensor> inputs) {
  check_same_device(op, inputs);
  check_broadcast(op, inputs);
}

// In-place: the result must fit self's shape and dtype.
inline void check_inplace(const char* op, const at::Tensor& self, const at::Tensor& other) {
  check_inputs(op, {{"self", self}, {"other", other}});
  if (has_symbolic_shape(self) || has_symbolic_shape(other)) return;
  TORCH_CHECK(at::is_expandable_to(other.sizes(), self.sizes()), op,
              ": other must broadcast to self's shape: expected a shape that expands to ",
              self.sizes(), ", got ", other.sizes());
  check_castable(op, "self", at::result_type(self, other), self.scalar_type());
  check_writable(op, {"self", self}, {{"other", other}});
}

// A number of the same kind where it isn't known while a graph is traced; at::result_type would ask for it.
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
  // Not known while a graph is traced: the kernels look again.
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

// at::TensorIterator but for the outputs that it makes, see unfilled().
class Iterator final : public at::TensorIteratorBase {
 public:
  explicit Iterator(at::TensorIteratorConfig& config) { build(config); }
  const at::Tensor& maybe_get_output(int64_t output_idx) override { return output(output_idx); }
  void set_output_raw_strided(int64_t output_idx, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options, at::DimnameList names) override {
    at::OperandInfo& own = operands_[output_idx];
    if (!own.tensor_base().defined()) {
      own.tensor(c10::MaybeOwned<at::TensorBase>::owned(
          strides.empty() ? unfilled(sizes, options) : unfilled_strided(sizes, strides, options)));
      own.current_dtype = own.target_dtype;
    } else if (own.will_resize) {
      at::native::resize_output(own.tensor(), sizes);
      if (!strides.empty()) {
        own.tensor().as_strided_(sizes, strides);
      } else if (options.memory_format_opt().has_value()) {
        own.tensor_base().unsafeGetTensorImpl()->empty_tensor_restride(
            *options.memory_format_opt());
      }
    }
    if (!names.empty()) at::namedinference::propagate_names(own.tensor(), names);
  }
};

// ATen's iterator over an output and its inputs: broadcasting, type promotion, the output's memory
// format and the order of dimensions are ATen's own. `out` may be undefined.
inline Iterator make_iterator(const at::Tensor& out, std::initializer_list<at::Tensor> inputs) {
  at::TensorIteratorConfig config;
  config.allow_cpu_scalars(true)
      .promote_inputs_to_common_dtype(true)
      .cast_common_dtype_to_outputs(true)
      .enforce_safe_casting_to_output(true)
      .add_owned_output(out);
  for (const at::Tensor& input : inputs) config.add_owned_const_input(input);
  return Iterator(config);
}

}  // namespace gpuopt::elementwise
