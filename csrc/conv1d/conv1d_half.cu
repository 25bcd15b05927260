// Convolutions of the half types.
#include "conv1d/conv1d_dispatch.h"
#include "conv1d/conv1d_launch_gather.cuh"
#include "conv1d/conv1d_launch_weight.cuh"

namespace gpuopt::conv1d {

const Launchers& launchers_of_half() {
  static constexpr Launchers launchers = {
      launch_forward<__half>,
      launch_gather<__half>,
      launch_weight<__half>,
      launch_update<__half>,
  };
  return launchers;
}

const Launchers& launchers_of_bfloat16() {
  static constexpr Launchers launchers = {
      launch_forward<__nv_bfloat16>,
      launch_gather<__nv_bfloat16>,
      launch_weight<__nv_bfloat16>,
      launch_update<__nv_bfloat16>,
  };
  return launchers;
}

}  // namespace gpuopt::conv1d
