// The argument check of matmul, shared by the CUDA, CPU and Meta kernels and by vmap, and ATen's
// computation. Exceptions have the types that torch.matmul raises.
#pragma once

#include <ATen/Context.h>

#include "binding/check.h"
#include "matmul/binding/matmul_ops.h"

namespace gpuopt::matmul {

using at::Tensor;

inline void check(const Matmul& op) {
  const char* name = name_of<Matmul>();
  const auto& [self, other, precision] = op;
  TORCH_CHECK_VALUE(precision == "ieee" || precision == "3xtf32", name,
                    ": precision must be known: expected ieee or 3xtf32, got ", precision);
  for (const NamedTensor& argument : {NamedTensor{"input", self}, {"other", other}}) {
    TORCH_CHECK(argument.tensor.dim() >= 1, name, ": ", argument.name,
                " must be a vector or a batch of matrices: expected 1 dimension or more, got "
                "shape ",
                argument.tensor.sym_sizes());
  }
  TORCH_CHECK(other.scalar_type() == self.scalar_type(), name,
              ": other must have input's dtype: expected ", self.scalar_type(), ", got ",
              other.scalar_type());
  TORCH_CHECK(other.device() == self.device(), name,
              ": other must be on the device of input: expected ", self.device(), ", got ",
              other.device());
  const auto columns = self.sym_size(-1), rows = other.sym_size(other.dim() == 1 ? 0 : -2);
  TORCH_SYM_CHECK(columns.sym_eq(rows), name, ": other must have as many rows as input has ",
                  "columns: expected ", columns, ", got shape ", other.sym_sizes());
  if (has_symbolic_shape(self) || has_symbolic_shape(other)) return;  // ATen adds guards
  for (int64_t d = 3; d <= std::min(self.dim(), other.dim()); ++d) {
    const int64_t self_size = self.size(-d), other_size = other.size(-d);
    TORCH_CHECK(self_size == other_size || self_size == 1 || other_size == 1, name,
                ": other must broadcast with input: expected sizes of the batch that match or are "
                "1, got input ",
                self.sizes(), " and other ", other.sizes(), " (dimension -", d, ": ", self_size,
                " against ", other_size, ")");
  }
}

// torch.matmul in IEEE arithmetic: TF32 is off in this thread, whatever torch.backends says. The
// result is contiguous. ATen would transpose the result of one matrix with a batch of others.
inline Tensor by_aten(const Matmul& op) {
  const at::NoTF32Guard no_tf32;
  const bool is_one_for_all = op.self.dim() == 2 && op.other.dim() > 2;
  return at::matmul(is_one_for_all ? op.self.unsqueeze(0) : op.self, op.other).contiguous();
}

}  // namespace gpuopt::matmul
