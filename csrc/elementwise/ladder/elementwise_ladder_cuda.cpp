// The CUDA kernel of gpuopt_ladder::mul.
#include "binding/ladder_cuda.h"
#include "elementwise/binding/elementwise_ops.h"
#include "elementwise/ladder/elementwise_ladder.h"

namespace gpuopt::elementwise {
namespace {

using at::Tensor;

Tensor mul_step(const LadderCall& call, const Tensor& self, const Tensor& other) {
  // Only the production operator accepts zero-dimensional CPU tensors.
  check_device_of(call.op(), {"other", other}, {"self", self});
  TORCH_CHECK(other.sizes().equals(self.sizes()), call.op(),
              ": other must have self's shape, without broadcasting: expected ", self.sizes(),
              ", got ", other.sizes());
  for (const NamedTensor& argument : {NamedTensor{"self", self}, NamedTensor{"other", other}}) {
    call.check_operand(argument, {call.is_from("half_scalar") ? at::kHalf : at::kFloat});
    if (call.is("vectors") || call.is("half_vectors")) call.check_vecs(argument);
    if (call.is("half2")) call.check_pairs(argument);
  }
  const Tensor out = at::empty(self.sizes(), self.options());
  launch_step(call, ladder_mul,
              LadderProblem{self.const_data_ptr(), other.const_data_ptr(), out.mutable_data_ptr(),
                            self.numel(), sm_count()});
  return out;
}

Tensor mul_production(const Tensor& self, const Tensor& other) { return gpuopt::mul(self, other); }

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) { impl_ladder(m, "mul", mul_production, mul_step); }

}  // namespace
}  // namespace gpuopt::elementwise
