// Checks the arguments of each operator form. The CUDA, CPU and Meta kernels, vmap and
// functionalization all call these functions. Exceptions have the same types as in torch.dot and
// torch.vdot.
#pragma once

#include "binding/check.h"

namespace gpuopt::dot {

// The dtypes that dot_fast_atomic supports.
inline bool is_real_float(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat ||
         dtype == at::kDouble;
}

// The dtypes are the same on every device: the ones that ATen's CPU kernel supports.
inline void check_dtype(const char* op, at::ScalarType dtype) {
  const bool is_integer =
      at::isIntegralType(dtype, /*includeBool=*/false) && !at::isBarebonesUnsignedType(dtype);
  const bool is_complex = dtype == at::kComplexFloat || dtype == at::kComplexDouble;
  TORCH_CHECK_NOT_IMPLEMENTED(is_integer || is_real_float(dtype) || is_complex, op,
                              " is not implemented for ", dtype,
                              ": expected self to be uint8, int8 to int64, float16, bfloat16, "
                              "float32, float64, complex64 or complex128");
}

// Sizes may be symbolic. A comparison of unknown sizes becomes a guard, as in ATen.
inline void check_operands(const char* op, int64_t rank, const at::Tensor& self,
                           NamedTensor other) {
  const char* kind =
      rank == 1 ? "a vector: expected 1 dimension" : "a matrix: expected 2 dimensions";
  for (const NamedTensor& argument : {NamedTensor{"self", self}, other}) {
    TORCH_CHECK(argument.tensor.dim() == rank, op, ": ", argument.name, " must be ", kind,
                ", got shape ", argument.tensor.sym_sizes());
  }
  TORCH_CHECK(other.tensor.scalar_type() == self.scalar_type(), op, ": ", other.name,
              " must have self's dtype: expected ", self.scalar_type(), ", got ",
              other.tensor.scalar_type());
  for (int64_t d = 0; d < rank; ++d) {
    const auto expected = self.sym_size(d), own = other.tensor.sym_size(d);
    if (rank == 1) {
      TORCH_SYM_CHECK(own.sym_eq(expected), op, ": ", other.name,
                      " must have self's size: expected ", expected, ", got ", own);
    } else {
      TORCH_SYM_CHECK(own.sym_eq(expected), op, ": ", other.name,
                      " must have self's shape, without broadcasting: expected ", self.sym_sizes(),
                      ", got ", other.tensor.sym_sizes());
    }
  }
  TORCH_CHECK(other.tensor.device() == self.device(), op, ": ", other.name,
              " must be on the device of self: expected ", self.device(), ", got ",
              other.tensor.device());
}

// ---------------------------------------------------------------- functional forms

inline void check_dot(const at::Tensor& self, const at::Tensor& tensor) {
  constexpr const char* op = "gpuopt::dot";
  check_operands(op, 1, self, {"tensor", tensor});
  check_dtype(op, self.scalar_type());
}

inline void check_vdot(const at::Tensor& self, const at::Tensor& other) {
  constexpr const char* op = "gpuopt::vdot";
  check_operands(op, 1, self, {"other", other});
  check_dtype(op, self.scalar_type());
}

inline void check_dot_rows(const at::Tensor& self, const at::Tensor& tensor) {
  constexpr const char* op = "gpuopt::dot_rows";
  check_operands(op, 2, self, {"tensor", tensor});
  check_dtype(op, self.scalar_type());
}

inline void check_dot_fast_atomic(const at::Tensor& self, const at::Tensor& tensor) {
  constexpr const char* op = "gpuopt::dot_fast_atomic";
  check_operands(op, 1, self, {"tensor", tensor});
  TORCH_CHECK_NOT_IMPLEMENTED(is_real_float(self.scalar_type()), op, " is not implemented for ",
                              self.scalar_type(),
                              ": expected self to be float16, bfloat16, float32 or float64");
}

// ---------------------------------------------------------------- out=

// An out of any shape is accepted, since it is resized to zero dimensions. It may share memory with
// the operands.
inline void check_out(const char* op, const at::Tensor& self, const at::Tensor& out) {
  TORCH_CHECK(out.device() == self.device(), op, ": out must be on the device of self: expected ",
              self.device(), ", got ", out.device());
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), op,
              ": out must have self's dtype: expected ", self.scalar_type(), ", got ",
              out.scalar_type());
}

inline void check_dot_out(const at::Tensor& self, const at::Tensor& tensor, const at::Tensor& out) {
  check_dot(self, tensor);
  check_out("gpuopt::dot", self, out);
}

inline void check_vdot_out(const at::Tensor& self, const at::Tensor& other, const at::Tensor& out) {
  check_vdot(self, other);
  check_out("gpuopt::vdot", self, out);
}

}  // namespace gpuopt::dot
