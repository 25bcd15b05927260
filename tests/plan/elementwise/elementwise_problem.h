// Plans from plain arrays, for the C entry points that tests call.
#pragma once

#include "elementwise/elementwise_plan.h"

namespace gpuopt::elementwise {

// Limits that small problems reach.
constexpr Tuning kTestTuning{.small = 0, .tile_side = 8, .four_values = 1000};

// An operation as Python describes it: addresses, dtypes and strides of the output, then of the
// inputs.
struct Given {
  int num_inputs, num_dims;
  const int64_t* sizes;
  const int64_t* strides;
  const int* dtypes;
  const uint64_t* addresses;
  int dtype;
};

template <int kInputs>
Problem<kInputs> make_problem(const Given& given) {
  Problem<kInputs> problem;
  problem.num_dims = given.num_dims;
  problem.dtype = static_cast<DType>(given.dtype);
  std::copy_n(given.sizes, given.num_dims, problem.sizes);
  for (int k = 0; k <= kInputs; ++k) {
    Operand& operand = problem.operands[k];
    operand.data = reinterpret_cast<void*>(given.addresses[k]);
    operand.dtype = static_cast<DType>(given.dtypes[k]);
    std::copy_n(given.strides + k * given.num_dims, given.num_dims, operand.strides);
  }
  return problem;
}

}  // namespace gpuopt::elementwise
