// Checks the arguments of each form of gpuopt::cumsum and of gpuopt::linear_recurrence. The CUDA,
// CPU and Meta kernels all call these functions. Exceptions have the same types as in torch.cumsum.
// A checked call has its dim from 0, also for an input without dimensions, and the dtype that
// values are converted to.
#pragma once

#include <vector>

#include "binding/check.h"
#include "scan/binding/scan_ops.h"

namespace gpuopt::scan {

inline Cumsum checked(const Cumsum& op) {
  at::ScalarType dtype = op.dtype.value_or(op.self.scalar_type());
  if (!op.dtype.has_value() && at::isIntegralType(dtype, /*includeBool=*/true)) dtype = at::kLong;
  return {op.self, checked_dim(name_of<Cumsum>(), op.dim, op.self.dim()), dtype, op.reverse,
          op.exclusive};
}

// If dtype is not given, values are converted to out's dtype.
inline Cumsum checked_out(const Out<Cumsum>& call) {
  const char* name = name_of<Cumsum>();
  const auto& [op, out] = call;
  TORCH_CHECK(!op.dtype.has_value() || *op.dtype == out.scalar_type(), name,
              ": out must have the dtype given as dtype: expected ", *op.dtype, ", got ",
              out.scalar_type());
  const int64_t dim = checked_dim(name, op.dim, op.self.dim());
  check_device_of(name, {"out", out}, {"input", op.self});
  check_writable(name, {"out", out}, {{"input", op.self}});
  return {op.self, dim, out.scalar_type(), op.reverse, op.exclusive};
}

// Callers check the memory of self afterwards, by check_writable(). ATen refuses a dtype without a
// kernel before it looks at the memory.
inline Cumsum checked_inplace(const Inplace<Cumsum>& call) {
  const char* name = name_of<Inplace<Cumsum>>();
  const auto& [op, self] = call;
  TORCH_CHECK(!op.dtype.has_value() || *op.dtype == self.scalar_type(), name,
              ": dtype must be input's dtype: expected ", self.scalar_type(), ", got ", *op.dtype);
  return {self, checked_dim(name, op.dim, self.dim()), self.scalar_type(), op.reverse,
          op.exclusive};
}

// ---------------------------------------------------------------- linear_recurrence

using TensorOption = std::optional<at::Tensor>;

// Adds the scanned dimension to a tensor that lacks it.
inline at::Tensor with_dim(const at::Tensor& tensor, const c10::SymIntArrayRef& sizes,
                           int64_t dim) {
  std::vector<c10::SymInt> own(sizes.begin(), sizes.end());
  if (!own.empty()) own.erase(own.begin() + dim);
  const at::Tensor whole = tensor.expand_symint(own);
  return sizes.empty() ? whole : whole.unsqueeze(dim);
}

// A checked call.
struct Recurrence {
  int64_t dim;  // of the result, from 0; 0 if the result has no dimensions
  at::ScalarType dtype;
  std::vector<c10::SymInt> sizes;  // of the result
};

inline Recurrence checked(const LinearRecurrence& call) {
  const char* op = name_of<LinearRecurrence>();
  const auto& [a, b, given_dim, initial, reverse, shifted] = call;
  check_device_of(op, {"a", a}, {"b", b});
  if (initial.has_value()) check_device_of(op, {"initial", *initial}, {"b", b});
  // The dtype to which the dtypes of all arguments are promoted.
  at::ScalarType dtype = c10::promoteTypes(a.scalar_type(), b.scalar_type());
  if (initial.has_value()) dtype = c10::promoteTypes(dtype, initial->scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_real_float(dtype) || dtype == at::kComplexFloat || dtype == at::kComplexDouble, op,
      " is not implemented for ", dtype,
      ": expected the dtypes of a, b and initial to promote to float16, bfloat16, float32, "
      "float64, complex64 or complex128");
  check_broadcast(op, {{"b", b}, {"a", a}});
  auto shape = at::infer_size_symdimvector(a.sym_sizes(), b.sym_sizes());
  std::vector<c10::SymInt> sizes(shape.begin(), shape.end());
  const auto rank = static_cast<int64_t>(sizes.size());
  const int64_t dim = checked_dim(op, given_dim, rank, "a and b, broadcast");
  if (initial.has_value()) {
    std::vector<c10::SymInt> own = sizes;
    if (rank > 0) own.erase(own.begin() + dim);
    const int64_t given = initial->dim(), most = static_cast<int64_t>(own.size());
    bool fits = given <= most;
    for (int64_t d = 1; fits && d <= given; ++d) {
      const c10::SymInt size = initial->sym_size(given - d);
      fits = size == own[most - d] || size == 1;
    }
    TORCH_CHECK(fits, op, ": initial must broadcast to the result's shape without dim: expected ",
                c10::SymIntArrayRef(own), ", got ", initial->sym_sizes());
  }
  return {dim, dtype, std::move(sizes)};
}

}  // namespace gpuopt::scan
