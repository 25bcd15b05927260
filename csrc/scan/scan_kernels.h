// What the types of a scan say about its kernels. Plain host C++.
#pragma once

#include <algorithm>

#include "scan/scan_problem.h"
#include "scan/scan_tuning.h"

namespace gpuopt::scan {

// What depends on the types of a kernel. Sums of a pair of dtypes without kernels of their own read
// one value at a time through a switch over the dtype (AnyType).
struct Kernels {
  int inputs = 1;
  int values = 1;        // of a vector; 1 if the kernels read single values only
  int units = 1;         // vectors in flight, for each input
  int single_units = 1;  // single values in flight, for each input
  int value_bytes = 1;   // of a value of one input in shared memory
  int records = 1;       // of look-back, for one result
  bool is_own = false;   // no value is converted through a switch over its dtype
};

constexpr Kernels kernels_of(bool own, size_t in_bytes, size_t bytes, Category category,
                             int inputs) {
  Kernels kernels;
  kernels.inputs = inputs;
  kernels.is_own = own;
  if (own) kernels.values = kAccessBytes / static_cast<int>(std::max(in_bytes, bytes));
  kernels.single_units = (own && bytes == kAccessBytes ? kVecUnits : kSingleUnits) / inputs;
  kernels.units = kernels.values > 1 ? kVecUnits / inputs : kernels.single_units;
  // Values of any dtype are converted before: integers to int64, fp16 and bf16 to f32.
  const size_t converted = category <= Category::kInteger ? 8 : std::max<size_t>(bytes, 4);
  kernels.value_bytes = static_cast<int>(own ? in_bytes : converted);
  // Results between tiles are int64 or f64. A record holds 8 bytes.
  kernels.records = inputs * (category == Category::kComplex ? 2 : 1);
  return kernels;
}

constexpr bool has_own_sum(DType in, DType dtype) {
  switch (dtype) {
    case DType::kInt64:
      return in == dtype || in == DType::kBool || in == DType::kUInt8 || in == DType::kInt32;
    case DType::kFloat32:
      return in == dtype || in == DType::kFloat16 || in == DType::kBFloat16;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat64:
    case DType::kComplex64:
      return in == dtype;
    default:
      return false;
  }
}

inline Kernels kernels_of(const Problem& problem) {
  const int inputs = problem.second != nullptr ? 2 : 1;
  const bool own = inputs == 2 || has_own_sum(problem.in_dtype, problem.dtype);
  return kernels_of(own, size_of(problem.in_dtype), size_of(problem.dtype),
                    category_of(problem.dtype), inputs);
}

}  // namespace gpuopt::scan
