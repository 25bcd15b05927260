// What the CUDA bindings of this room share.
#pragma once

#include "binding/cuda_launch.h"
#include "binding/optional.h"
#include "norm/norm.h"

namespace gpuopt::norm {

inline const void* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}
inline void* written(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}

// Dense parameters, which live as long as this object.
struct DenseParameters {
  at::Tensor weight, bias;
  DType dtype;

  DenseParameters(const char* op, const at::Tensor& input, const TensorOption& given_weight,
                  const TensorOption& given_bias)
      : dtype(to_dtype(op, input.scalar_type())) {
    for (const auto& [given, to] : {std::pair{&given_weight, &weight}, {&given_bias, &bias}}) {
      if (!is_given(*given)) continue;
      *to = (*given)->contiguous();
      dtype = to_dtype(op, to->scalar_type());
    }
  }
  Affine affine(Activation activation = Activation::kNone) const {
    return {data_of(weight), data_of(bias), dtype, activation};
  }
};

template <typename Problem>
void plan_and_launch(const char* op, const Problem& problem) {
  TensorWorkspace workspace;
  check_launch(
      op, launch(plan(problem, current_device()), workspace, c10::cuda::getCurrentCUDAStream()));
}

}  // namespace gpuopt::norm
