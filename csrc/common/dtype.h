// Element types, as the bindings pass them to the kernels. This header needs no torch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuopt {

enum class DType : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex32,
  kComplex64,
  kComplex128,
};

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
      return 1;
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
    case DType::kComplex32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
  }
  return 0;
}

// Type promotion never goes down this list (c10::canCast has the same order).
enum class Category : uint8_t { kBool, kInteger, kFloat, kComplex };

constexpr Category category_of(DType dtype) {
  if (dtype == DType::kBool) return Category::kBool;
  if (dtype <= DType::kInt64) return Category::kInteger;
  return dtype <= DType::kFloat64 ? Category::kFloat : Category::kComplex;
}

// A scalar argument (alpha, a Python number), in every form that a kernel may need.
struct ScalarValue {
  double re = 0;
  double im = 0;
  int64_t integer = 0;
};

}  // namespace gpuopt
