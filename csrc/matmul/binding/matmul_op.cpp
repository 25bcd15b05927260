// The schema, CPU kernel and Meta kernel of gpuopt::matmul. Both call ATen.
#include <ATen/ATen.h>

#include "matmul/binding/matmul_check.h"

namespace gpuopt::matmul {
namespace {

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  define<Matmul>(m);
  m.def(Form<MatmulOwn>::schema().c_str());
}

Tensor matmul_by_aten(const Matmul& op) {
  check(op);
  return by_aten(op);
}

Tensor own_by_aten(const MatmulOwn& op) { return by_aten({op.self, op.other, "3xtf32"}); }

void impl_by_aten(torch::Library& m) {
  impl<Matmul, matmul_by_aten>(m);
  impl<MatmulOwn, own_by_aten>(m);
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) { impl_by_aten(m); }
TORCH_LIBRARY_IMPL(gpuopt, Meta, m) { impl_by_aten(m); }

}  // namespace
}  // namespace gpuopt::matmul
