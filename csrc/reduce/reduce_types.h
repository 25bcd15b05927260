// The types that kernels are compiled for. Plans and launchers read one list. Plain host C++.
#pragma once

#include "reduce/reduce_problem.h"
#include "reduce/reduce_tuning.h"

namespace gpuopt::reduce {

// Values are converted to `values` when they are loaded, and combined in accumulator_of(values).
struct Types {
  DType in;
  DType values;
  // Whether kernels are compiled for values that are stored as `in`. If not, they read one value at
  // a time, through a switch over its type.
  bool native = true;

  bool operator==(const Types&) const = default;
};

constexpr Types any_to(DType values) { return {DType::kBool, values, /*native=*/false}; }

// Sums in int64, truncated, equal sums in a narrower integer.
constexpr Types kIntegerSums[] = {
    {DType::kBool, DType::kInt64},  {DType::kUInt8, DType::kInt64}, {DType::kInt8, DType::kInt64},
    {DType::kInt32, DType::kInt64}, {DType::kInt64, DType::kInt64}, any_to(DType::kInt64),
};
constexpr Types kOtherSums[] = {
    any_to(DType::kBool),
    {DType::kFloat16, DType::kFloat16},
    any_to(DType::kFloat16),
    {DType::kBFloat16, DType::kBFloat16},
    any_to(DType::kBFloat16),
    {DType::kBool, DType::kFloat32},
    {DType::kUInt8, DType::kFloat32},
    {DType::kFloat16, DType::kFloat32},
    {DType::kBFloat16, DType::kFloat32},
    {DType::kFloat32, DType::kFloat32},
    any_to(DType::kFloat32),
    {DType::kFloat32, DType::kFloat64},
    {DType::kFloat64, DType::kFloat64},
    any_to(DType::kFloat64),
    any_to(DType::kComplex32),
    {DType::kComplex64, DType::kComplex64},
    any_to(DType::kComplex64),
    any_to(DType::kComplex128),
};
constexpr Types kExtrema[] = {
    {DType::kUInt8, DType::kInt32},     {DType::kInt32, DType::kInt32},
    {DType::kInt64, DType::kInt64},     {DType::kFloat16, DType::kFloat16},
    {DType::kFloat32, DType::kFloat32}, {DType::kBFloat16, DType::kBFloat16},
    {DType::kFloat64, DType::kFloat64}, any_to(DType::kInt32),
};

template <size_t kCount>
constexpr Types find(const Types (&list)[kCount], DType in, DType values) {
  const Types* found = std::find(list, list + kCount, Types{in, values});
  return found == list + kCount ? any_to(values) : *found;
}

constexpr Types types_of(Operation operation, DType in, DType dtype) {
  if (operation != Operation::kSum) {
    return find(kExtrema, in, dtype <= DType::kInt32 ? DType::kInt32 : dtype);
  }
  return category_of(dtype) == Category::kInteger ? find(kIntegerSums, in, DType::kInt64)
                                                  : find(kOtherSums, in, dtype);
}

constexpr DType accumulator_of(DType values) {
  switch (values) {
    case DType::kBool:
      return DType::kInt64;
    case DType::kFloat16:
    case DType::kBFloat16:
      return DType::kFloat32;
    case DType::kComplex32:
      return DType::kComplex64;
    default:
      return values;
  }
}

// Single values that a thread has in flight.
constexpr int values_in_flight(bool native, size_t item) {
  return native && item < 8 ? kValueUnroll : kWideUnroll;
}

// Columns of a thread that reads them value by value, kVecUnroll rows at a time.
constexpr int spread_columns(size_t item) { return item < 8 ? kSpread : kSpread / 2; }

}  // namespace gpuopt::reduce
