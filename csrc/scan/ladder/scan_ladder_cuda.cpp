// The CUDA kernel of gpuopt_ladder::cumsum.
#include "binding/ladder_cuda.h"
#include "scan/binding/scan_ops.h"
#include "scan/ladder/scan_ladder.h"

namespace gpuopt::scan {
namespace {

using at::Tensor;

Tensor cumsum_step(const LadderCall& call, const Tensor& self) {
  TORCH_CHECK(self.dim() == 1, call.op(),
              ": self must be a vector: expected 1 dimension, got shape ", self.sizes());
  call.check_operand({"self", self}, {at::kFloat});
  if (call.is_from("vectors")) call.check_vecs({"self", self});
  const Tensor out = at::empty(self.sizes(), self.options());
  launch_step(call, ladder_scan,
              LadderProblem{self.const_data_ptr<float>(), self.numel(),
                            out.mutable_data_ptr<float>(), sm_count()});
  return out;
}

Tensor cumsum_production(const Tensor& self) {
  return call(Cumsum{self, /*dim=*/-1, std::nullopt, false, false});
}

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) {
  impl_ladder(m, "cumsum", cumsum_production, cumsum_step);
}

}  // namespace
}  // namespace gpuopt::scan
