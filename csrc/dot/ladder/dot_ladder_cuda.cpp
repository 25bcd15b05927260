// The CUDA kernel of gpuopt_ladder::dot.
#include "binding/ladder_cuda.h"
#include "dot/binding/dot_check.h"
#include "dot/ladder/dot_ladder.h"

namespace gpuopt::dot {
namespace {

Tensor dot_step(const LadderCall& call, const Tensor& self, const Tensor& tensor) {
  check_operands(call.op(), 1, self, {"tensor", tensor});
  for (const NamedTensor& argument : {NamedTensor{"self", self}, NamedTensor{"tensor", tensor}}) {
    call.check_operand(argument, {at::kHalf});
    if (call.is("vectors")) call.check_vecs(argument);
  }
  // Atomic additions write the aligned pair that begins with the result.
  const Tensor out = at::empty({2}, self.options()).select(0, 0);
  launch_step(call, ladder_dot,
              LadderProblem{self.const_data_ptr(), tensor.const_data_ptr(), self.numel(),
                            out.mutable_data_ptr(), sm_count()});
  return out;
}

Tensor dot_production(const Tensor& self, const Tensor& tensor) { return call(Dot{self, tensor}); }

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) { impl_ladder(m, "dot", dot_production, dot_step); }

}  // namespace
}  // namespace gpuopt::dot
