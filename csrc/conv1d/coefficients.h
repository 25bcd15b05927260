// The type of a path's cost coefficients. Plain host C++.
#pragma once

#include <array>

namespace gpuopt::conv1d {

// The quantities that a path's time grows with, besides the launch and the bytes of its operands.
// Each plan documents its terms. Work is counted per SM.
using Terms = std::array<double, 5>;

struct Coefficients {  // in microseconds
  double launch, bytes;
  Terms terms;
};

// Coefficients for fp16 and bf16, for f32, and for f64.
using Costs = Coefficients[3];

}  // namespace gpuopt::conv1d
