// Shared by the C entry points for tests of convolutions: problems and devices as plain numbers,
// and answers as text. tests/support/conv1d_problem.py is the Python side.
#pragma once

#include <string>

#include "conv1d/policy.h"

namespace gpuopt::conv1d {

// The numbers are in the order of the members.
inline Problem read_problem(const int64_t* numbers) {
  const auto next = [&] { return *numbers++; };
  const auto address = [&] { return reinterpret_cast<const void*>(next()); };
  const auto signal = [&] { return Signal{address(), next(), next(), next(), next(), next()}; };
  Problem problem;
  problem.from = signal();
  problem.to = signal();
  problem.weight = {address(), next(), next(), next(), next()};
  problem.bias = address();
  problem.bias_stride = next();
  problem.dtype = static_cast<DType>(next());
  problem.batch = next();
  problem.groups = next();
  problem.taps = next();
  problem.stride = next();
  problem.padding = next();
  problem.dilation = next();
  problem.activation = static_cast<Activation>(next());
  return problem;
}

inline Device read_device(const int64_t* numbers) {
  return {static_cast<int>(numbers[0]), static_cast<int>(numbers[1])};
}

// The pointer is valid until the next answer.
inline const char* answer(std::string text) {
  static std::string kept;
  kept = std::move(text);
  return kept.c_str();
}

}  // namespace gpuopt::conv1d
