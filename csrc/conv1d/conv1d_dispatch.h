// The launchers of each dtype, which are compiled in files of their own.
#pragma once

#include "conv1d/conv1d.h"

namespace gpuopt::conv1d {

struct Launchers {
  cudaError_t (*forward)(const Problem&, const Plan&, cudaStream_t);
  cudaError_t (*gather)(const Problem&, const Plan&, cudaStream_t);
  cudaError_t (*weight)(const Problem&, const Plan&, Workspace&, cudaStream_t);
  cudaError_t (*update)(const UpdateProblem&, cudaStream_t);
};

const Launchers& launchers_of_half();
const Launchers& launchers_of_bfloat16();
const Launchers& launchers_of_float();
const Launchers& launchers_of_double();

inline const Launchers& launchers_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return launchers_of_half();
    case DType::kBFloat16:
      return launchers_of_bfloat16();
    case DType::kFloat32:
      return launchers_of_float();
    default:
      return launchers_of_double();
  }
}

}  // namespace gpuopt::conv1d
