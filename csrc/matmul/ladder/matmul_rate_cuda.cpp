// The CUDA kernel of gpuopt_ladder::unit_rate.
#include <torch/library.h>

#include <limits>
#include <string_view>

#include "binding/cuda_launch.h"
#include "binding/ladder.h"
#include "matmul/ladder/matmul_rate.h"

namespace gpuopt::matmul {
namespace {

using at::Tensor;

constexpr const char* kOp = "gpuopt_ladder::unit_rate";

// Runs a unit of self's GPU. Returns the cycles, the nanoseconds, and the operations of all blocks.
Tensor unit_rate_cuda(const Tensor& self, std::string_view unit, int64_t iterations) {
  TORCH_CHECK_VALUE(unit == "fma" || unit == "tf32" || unit == "bf16", kOp,
                    ": expected unit fma, tf32 or bf16, got ", unit);
  TORCH_CHECK_VALUE(iterations >= 1 && iterations <= std::numeric_limits<int>::max(), kOp,
                    ": expected 1 iteration or more, got ", iterations);
  const Unit measured_unit = unit == "fma"    ? Unit::kFma
                             : unit == "tf32" ? Unit::kTf32
                                              : Unit::kBf16;
  const c10::cuda::CUDAGuard guard(self.device());
  int major = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                        c10::cuda::current_device()));
  TORCH_CHECK_NOT_IMPLEMENTED(measured_unit == Unit::kFma || major == 9, kOp, ": ", unit,
                              " needs a GPU of compute capability 9.0");
  const Tensor out = at::zeros({3}, self.options().dtype(at::kLong));
  const Tensor sink = at::zeros({1}, self.options().dtype(at::kFloat));
  check_launch(
      kOp, run_unit(measured_unit, static_cast<int>(iterations), out.mutable_data_ptr<int64_t>(),
                    sink.mutable_data_ptr<float>(), sm_count(), c10::cuda::getCurrentCUDAStream()));
  out.select(0, 2).fill_(sm_count() * operations_of(measured_unit) * iterations);
  return out;
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) { m.impl("unit_rate", unit_rate_cuda); }

}  // namespace
}  // namespace gpuopt::matmul
