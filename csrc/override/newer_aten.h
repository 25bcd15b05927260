// Kernels that ATen has rewritten since torch 2.11, with which policy.h was measured. Nobody has
// measured them beside gpuopt's, so calls that they compute are declined.
#pragma once

#include <torch/version.h>

#include "override/reason.h"

namespace gpuopt::overriding {

constexpr bool has_torch(int minor) {
  return TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= minor);
}

constexpr bool kNewRowAdditions = has_torch(13);  // by bulk reductions in memory
constexpr bool kNewTransposes = has_torch(15);    // in tiles
constexpr bool kNewExtrema = has_torch(15);       // of amax and amin, by bulk copies
constexpr bool kNewNorms = has_torch(12);         // of RMS norm, in Python; of layer norm perhaps
constexpr bool kDeterministicScans = has_torch(15);
constexpr bool kDeterministicMaxPool3d = has_torch(15);

// What policy says, unless ATen's kernel is another one than policy was measured with.
template <typename Policy>
Reason unless_newer(bool is_newer, Policy policy) {
  return is_newer ? Reason::kNotMeasured : policy();
}

}  // namespace gpuopt::overriding
