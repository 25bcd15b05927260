// Conversion of torch's dtypes to DType.
#pragma once

#include <ATen/core/TensorBase.h>

#include "common/dtype.h"

namespace gpuopt {

// No kernel reads uint16, uint32, uint64 and float8: they are converted to a copy first.
inline bool is_converted(at::ScalarType type) {
  return at::isBarebonesUnsignedType(type) || at::isFloat8Type(type);
}

inline DType to_dtype(const char* op, at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return DType::kBool;
    case at::kByte:
      return DType::kUInt8;
    case at::kChar:
      return DType::kInt8;
    case at::kShort:
      return DType::kInt16;
    case at::kInt:
      return DType::kInt32;
    case at::kLong:
      return DType::kInt64;
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kFloat:
      return DType::kFloat32;
    case at::kDouble:
      return DType::kFloat64;
    case at::kComplexHalf:
      return DType::kComplex32;
    case at::kComplexFloat:
      return DType::kComplex64;
    case at::kComplexDouble:
      return DType::kComplex128;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, op, " (CUDA) is not implemented for ", type);
  }
}

}  // namespace gpuopt
