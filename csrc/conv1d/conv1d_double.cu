// Convolutions of double.
#include "conv1d/conv1d_dispatch.h"
#include "conv1d/conv1d_launch_gather.cuh"
#include "conv1d/conv1d_launch_weight.cuh"

namespace gpuopt::conv1d {

const Launchers& launchers_of_double() {
  static constexpr Launchers launchers = {
      launch_forward<double>,
      launch_gather<double>,
      launch_weight<double>,
      launch_update<double>,
  };
  return launchers;
}

}  // namespace gpuopt::conv1d
