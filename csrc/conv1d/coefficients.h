// The coefficients of the costs of paths. Plain host C++.
#pragma once

#include <array>

namespace gpuopt::conv1d {

// What a path's time grows with, besides the launch and the bytes of its operands. Each plan says
// what its terms are. Work is counted per SM.
using Terms = std::array<double, 5>;

struct Coefficients {  // microseconds
  double launch, bytes;
  Terms terms;
};

// Of fp16 and bf16, f32, and f64.
using Costs = Coefficients[3];

}  // namespace gpuopt::conv1d
