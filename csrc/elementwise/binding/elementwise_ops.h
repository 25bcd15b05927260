// The element-wise operators as operators of binding/op.h. Each is a product of two factors, and
// perhaps an addend:
//
//   inputs()  its tensors in the order of the schema: the factors, then the addend
//   number()  the second factor, if that is a number
//
// Derivatives, batching rules and Meta kernels, and the engine on CUDA are derived from these two.
#pragma once

#include <array>
#include <utility>

#include "binding/check.h"
#include "binding/op.h"

namespace gpuopt {

// self * other
struct MulTensor {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema = "mul.Tensor(Tensor self, Tensor other) -> Tensor";
  static constexpr const char* kNode = "GpuoptMulBackward";
  const at::Tensor &self, &other;

  std::array<NamedTensor, 2> inputs() const { return {{{"input", self}, {"other", other}}}; }
};

// self * other, for a number
struct MulScalar {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema = "mul.Scalar(Tensor self, Scalar other) -> Tensor";
  static constexpr const char* kOut = "Scalar_out";
  static constexpr const char* kNode = "GpuoptMulScalarBackward";
  const at::Tensor& self;
  const at::Scalar& other;

  std::array<NamedTensor, 1> inputs() const { return {{{"input", self}}}; }
  const at::Scalar& number() const { return other; }
};

// alpha * x + y
struct Axpy {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema =
      "axpy(Tensor x, Tensor y, *, Scalar alpha=1) -> Tensor";
  static constexpr const char* kNode = "GpuoptAxpyBackward";
  const at::Tensor &x, &y;
  const at::Scalar& alpha;

  std::array<NamedTensor, 2> inputs() const { return {{{"x", x}, {"y", y}}}; }
  const at::Scalar& number() const { return alpha; }
};

// a * b + c, rounded once
struct Fma {
  using Result = at::Tensor;
  static constexpr std::string_view kSchema = "fma(Tensor a, Tensor b, Tensor c) -> Tensor";
  static constexpr const char* kNode = "GpuoptFmaBackward";
  const at::Tensor &a, &b, &c;

  std::array<NamedTensor, 3> inputs() const { return {{{"a", a}, {"b", b}, {"c", c}}}; }
};

inline at::Tensor mul(const at::Tensor& self, const at::Tensor& other) {
  return call(MulTensor{self, other});
}
inline at::Tensor mul(const at::Tensor& self, const at::Scalar& other) {
  return call(MulScalar{self, other});
}

namespace elementwise {

using Ops = OpList<MulTensor, MulScalar, Axpy, Fma>;

template <typename Op>
constexpr bool kHasNumber = requires(const Op& op) { op.number(); };

template <typename Op>
constexpr size_t kInputs = std::tuple_size_v<decltype(std::declval<const Op&>().inputs())>;

// The factors among the inputs.
template <typename Op>
constexpr size_t kFactors = kHasNumber<Op> ? 1 : 2;

// The inputs in ATen's order: the addend, then the factors, as at::add and at::addcmul have them.
template <typename Op>
std::array<at::Tensor, kInputs<Op>> in_atens_order(const Op& op) {
  constexpr size_t kCount = kInputs<Op>;
  const auto inputs = op.inputs();
  std::array<at::Tensor, kCount> tensors;
  for (size_t i = 0; i < kCount; ++i) tensors[i] = inputs[(i + kFactors<Op>) % kCount].tensor;
  return tensors;
}

}  // namespace elementwise
}  // namespace gpuopt
