// Makes a scan from plain arrays, for the C entry points that tests call. scan_problem.py is the
// Python side.
#pragma once

#include <string>

#include "scan/scan_plan.h"

namespace gpuopt::scan {

struct Given {
  int64_t num_dims;
  const int64_t* sizes;  // innermost first, the scanned dimension included
  const int64_t* in_strides;
  const int64_t* out_strides;
  int64_t scanned, reverse, exclusive;
  uint64_t in, out;
  int64_t in_dtype, dtype;
  // Of operators with two inputs, otherwise null.
  const int64_t* second_strides;
  const int64_t* initial_strides;  // 0 in the scanned dimension
  uint64_t second, initial;
};

inline Problem make_problem(const Given& given) {
  Problem problem;
  problem.in = reinterpret_cast<const void*>(given.in);
  problem.out = reinterpret_cast<void*>(given.out);
  problem.second = reinterpret_cast<const void*>(given.second);
  problem.initial = reinterpret_cast<const void*>(given.initial);
  problem.in_dtype = static_cast<DType>(given.in_dtype);
  problem.dtype = static_cast<DType>(given.dtype);
  problem.reverse = given.reverse != 0;
  problem.exclusive = given.exclusive != 0;
  for (int64_t d = 0; d < given.num_dims; ++d) {
    Dim dim{given.sizes[d], given.in_strides[d], given.out_strides[d]};
    if (given.second_strides != nullptr) dim.second_stride = given.second_strides[d];
    if (given.initial_strides != nullptr) dim.initial_stride = given.initial_strides[d];
    if (d == given.scanned) {
      problem.scanned = dim;
    } else {
      problem.dims[problem.num_dims++] = dim;
    }
  }
  return problem;
}

// Calls use(plan) for all launches of a problem, and returns their plans as a list.
template <typename Use>
std::string plans_as_json(const Problem& problem, const Device& device, const Tuning& tuning,
                          const Use& use) {
  std::string plans;
  for_each_plan(problem, device, tuning, [&](const Plan& plan) {
    plans += (plans.empty() ? "" : ", ") + to_json(plan);
    use(plan);
  });
  return '[' + plans + ']';
}

}  // namespace gpuopt::scan
