// Checks the arguments of a call. The CUDA, CPU and Meta kernels, vmap and
// functionalization all call these functions. Exceptions have the same types as in torch.dot and
// torch.vdot.
#pragma once

#include "binding/check.h"
#include "dot/binding/dot_ops.h"

namespace gpuopt::dot {

using at::Tensor;

// The dtypes are the same on every device: the ones that ATen's CPU kernel supports.
inline void check_dtype(const char* op, at::ScalarType dtype) {
  const bool is_integer =
      at::isIntegralType(dtype, /*includeBool=*/false) && !at::isBarebonesUnsignedType(dtype);
  const bool is_complex = dtype == at::kComplexFloat || dtype == at::kComplexDouble;
  TORCH_CHECK_NOT_IMPLEMENTED(is_integer || is_real_float(dtype) || is_complex, op,
                              " is not implemented for ", dtype,
                              ": expected input to be uint8, int8 to int64, float16, bfloat16, "
                              "float32, float64, complex64 or complex128");
}

// Sizes may be symbolic. A comparison of unknown sizes becomes a guard, as in ATen.
inline void check_operands(const char* op, int64_t rank, const Tensor& self, NamedTensor other) {
  const char* kind =
      rank == 1 ? "a vector: expected 1 dimension" : "a matrix: expected 2 dimensions";
  for (const NamedTensor& argument : {NamedTensor{"input", self}, other}) {
    TORCH_CHECK(argument.tensor.dim() == rank, op, ": ", argument.name, " must be ", kind,
                ", got shape ", argument.tensor.sym_sizes());
  }
  check_input_dtype(op, other, self);
  for (int64_t d = 0; d < rank; ++d) {
    const auto expected = self.sym_size(d), size = other.tensor.sym_size(d);
    if (rank == 1) {
      TORCH_SYM_CHECK(size.sym_eq(expected), op, ": ", other.name,
                      " must have input's size: expected ", expected, ", got ", size);
    } else {
      TORCH_SYM_CHECK(size.sym_eq(expected), op, ": ", other.name,
                      " must have input's shape, without broadcasting: expected ", self.sym_sizes(),
                      ", got ", other.tensor.sym_sizes());
    }
  }
  check_device_of(op, other, {"input", self});
}

template <typename Op>
void check(const Op& op) {
  const char* name = name_of<Op>();
  check_operands(name, std::is_same_v<Op, DotRows> ? 2 : 1, op.self, {Op::kOther, op.other});
  if constexpr (std::is_same_v<Op, DotFastAtomic>) {
    TORCH_CHECK_NOT_IMPLEMENTED(is_real_float(op.self.scalar_type()), name,
                                " is not implemented for ", op.self.scalar_type(),
                                ": expected input to be float16, bfloat16, float32 or float64");
  } else {
    check_dtype(name, op.self.scalar_type());
  }
}

// An out of any shape is accepted, since it is resized to zero dimensions. It may share memory with
// the operands.
template <typename Op>
Op checked(const Out<Op>& call) {
  const char* name = name_of<Op>();
  const auto& [op, out] = call;
  check(op);
  check_device_of(name, {"out", out}, {"input", op.self});
  check_input_dtype(name, {"out", out}, op.self);
  return op;
}

}  // namespace gpuopt::dot
