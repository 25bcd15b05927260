// The schema, CPU kernel and Meta kernel of gpuopt::matmul. Both call ATen.
#include <ATen/ATen.h>

#include "matmul/binding/matmul_check.h"

namespace gpuopt::matmul {
namespace {

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { define<Matmul>(m); }

Tensor matmul_by_aten(const Matmul& op) {
  check(op);
  return by_aten(op);
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) { impl<Matmul, matmul_by_aten>(m); }
TORCH_LIBRARY_IMPL(gpuopt, Meta, m) { impl<Matmul, matmul_by_aten>(m); }

}  // namespace
}  // namespace gpuopt::matmul
