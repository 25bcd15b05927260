// The predicted time of a path: a sum of a few terms of its plan. The coefficients are fitted to
// measurements (python -m benchmarks tune conv1d). Plain host C++.
#pragma once

#include "conv1d/costs.h"
#include "conv1d/geometry.h"

namespace gpuopt::conv1d {

// The compulsory memory traffic, in microseconds at 3 TB/s.
inline double traffic_of(const Problem& p) {
  const double values =
      static_cast<double>(p.batch) * static_cast<double>(p.groups) *
          static_cast<double>(p.from.channels * p.from.size + p.to.channels * p.to.size) +
      static_cast<double>(p.groups * p.to.channels * macs_per_output(p));
  return values * static_cast<double>(item_of(p)) / 3e6;
}

inline double cost_of(const Costs& costs, const Problem& p, const Terms& terms) {
  const Coefficients& coefficients = costs[is_half(p) ? 0 : item_of(p) == 4 ? 1 : 2];
  double us = coefficients.launch + coefficients.bytes * traffic_of(p);
  for (size_t i = 0; i < terms.size(); ++i) us += coefficients.terms[i] * terms[i];
  return us;
}

// 1 if neighbouring positions of a signal are not neighbours in memory, so that each load reads a
// different sector. Otherwise 0.
inline double scatter_of(const Signal& signal) {
  return signal.stride == 1 || signal.size == 1 ? 0.0 : 1.0;
}

inline double blocks_per_sm(const LaunchShape& launch, const Device& device) {
  return static_cast<double>(launch.blocks) / device.sms;
}

// Threads of the launch, as a multiple of the threads that all SMs hold.
inline double fill_of(const LaunchShape& launch, const Device& device) {
  return blocks_per_sm(launch, device) * launch.threads / 2048;
}

// The number of waves of the launch if each SM holds `blocks` blocks.
inline double waves_of(const LaunchShape& launch, const Device& device, int blocks) {
  return static_cast<double>(ceil_div<int64_t>(launch.blocks, int64_t{device.sms} * blocks));
}

}  // namespace gpuopt::conv1d
