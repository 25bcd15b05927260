// The CUDA kernel of gpuopt_ladder::transpose2d.
#include "binding/ladder_cuda.h"
#include "transpose/binding/transpose_ops.h"
#include "transpose/ladder/transpose_ladder.h"

namespace gpuopt::transpose {
namespace {

using at::Tensor;

Tensor transpose2d_step(const LadderCall& call, const Tensor& self) {
  TORCH_CHECK(self.dim() == 2, call.op(),
              ": self must be a matrix: expected 2 dimensions, got shape ", self.sizes());
  call.check_operand({"self", self}, {at::kFloat});
  const int64_t rows = self.size(0), columns = self.size(1);
  if (call.is("vectors")) {
    call.check_vecs({"self", self});
    TORCH_CHECK(rows % 4 == 0 && columns % 4 == 0, call.op_and_step(),
                ": self must have rows and columns of whole vectors: expected sizes that are "
                "multiples of 4, got shape ",
                self.sizes());
  }
  const Tensor out = at::empty({columns, rows}, self.options());
  if (out.numel() == 0) return out;
  launch_step(
      call, ladder_transpose,
      LadderProblem{self.const_data_ptr<float>(), out.mutable_data_ptr<float>(), rows, columns});
  return out;
}

Tensor transpose2d_production(const Tensor& self) { return call(Transpose2D{self}); }

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) {
  impl_ladder(m, "transpose2d", transpose2d_production, transpose2d_step);
}

}  // namespace
}  // namespace gpuopt::transpose
