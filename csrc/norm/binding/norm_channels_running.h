// How running statistics change: by ATen's operators.
#pragma once

#include <ATen/ATen.h>

#include "binding/optional.h"

namespace gpuopt::norm {

// running = (1 - momentum) * running + momentum * found, rounded once.
inline void update_running(const TensorOption& running, const at::Tensor& found, double momentum) {
  const at::Tensor& target = *running;
  if (target.scalar_type() == found.scalar_type()) {
    target.lerp_(found, momentum);
  } else {
    target.copy_(at::lerp(target.to(found.scalar_type()), found, momentum));
  }
}

}  // namespace gpuopt::norm
