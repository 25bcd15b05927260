// The CUDA kernels of gpuopt_ladder::reduce_sum and reduce_max.
#include "binding/ladder_cuda.h"
#include "reduce/binding/reduce_ops.h"
#include "reduce/ladder/reduce_ladder.h"

namespace gpuopt::reduce {
namespace {

using at::Tensor;

template <auto launcher>
Tensor reduce_step(const LadderCall& call, const Tensor& self) {
  call.check_operand({"self", self}, {at::kFloat});
  if (call.is_from("vectors")) call.check_vecs({"self", self});
  const Tensor out = at::empty({}, self.options());
  launch_step(call, launcher,
              LadderProblem{self.const_data_ptr<float>(), self.numel(),
                            out.mutable_data_ptr<float>(), sm_count()});
  return out;
}

Tensor sum_production(const Tensor& self) { return reduce_sum(self); }
Tensor max_production(const Tensor& self) { return call(ReduceMax{self, std::nullopt, false}); }

// The maximum of no values is an error. The production operator raises it for all steps.
Tensor max_step(const LadderCall& call, const Tensor& self) {
  return self.numel() == 0 ? max_production(self) : reduce_step<ladder_max>(call, self);
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) {
  impl_ladder(m, "reduce_sum", sum_production, reduce_step<ladder_sum>);
  impl_ladder(m, "reduce_max", max_production, max_step);
}

}  // namespace
}  // namespace gpuopt::reduce
