// The launch of a plan on the current stream.
#pragma once

#include "binding/cuda_launch.h"
#include "conv1d/binding/problem.h"
#include "conv1d/conv1d.h"

namespace gpuopt::conv1d {

inline void launch_plan(const char* op, const Plan& plan, const Tensor& result) {
  TensorWorkspace workspace;
  check_launch(
      op, launch(plan, result.mutable_data_ptr(), workspace, c10::cuda::getCurrentCUDAStream()));
}

}  // namespace gpuopt::conv1d
