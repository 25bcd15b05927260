// The CUDA kernel of gpuopt_ladder::copy_in_flight.
#include <torch/library.h>

#include "binding/cuda_launch.h"
#include "binding/ladder.h"
#include "ladder/in_flight.h"

namespace gpuopt::in_flight {
namespace {

using at::Tensor;

constexpr const char* kOp = "gpuopt_ladder::copy_in_flight";

Tensor copy_in_flight_cuda(const Tensor& self, int64_t access_bytes, int64_t loads, int64_t warps) {
  const auto fits = [](int64_t value) {
    return value >= 1 && value <= 64 ? static_cast<int>(value) : 0;
  };
  const Shape shape{fits(access_bytes), fits(loads), fits(warps)};
  TORCH_CHECK_VALUE(is_shape(shape), kOp,
                    ": expected access_bytes of 4, 8 or 16, loads of 1, 2, 4 or 8, "
                    "and warps that are a power of 2 from 1 to 64, got ",
                    access_bytes, ", ", loads, " and ", warps);
  TORCH_CHECK(self.is_contiguous(), kOp, ": self must be contiguous, got strides ", self.strides(),
              " of shape ", self.sizes());
  check_aligned(kOp, {"self", self}, 16);
  const c10::cuda::CUDAGuard guard(self.device());
  const Tensor out = at::empty(self.sizes(), self.options());
  if (out.numel() == 0) return out;
  const auto bytes = static_cast<int64_t>(self.nbytes());
  check_launch(kOp, copy(self.const_data_ptr(), out.mutable_data_ptr(), bytes, shape, sm_count(),
                         c10::cuda::getCurrentCUDAStream()));
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) { m.impl("copy_in_flight", copy_in_flight_cuda); }

}  // namespace
}  // namespace gpuopt::in_flight
