// Checks the arguments of gpuopt::linear_recurrence. The CUDA, CPU and Meta kernels and the
// derivatives all call these functions.
#pragma once

#include <vector>

#include "scan/binding/scan_check.h"

namespace gpuopt::scan {

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
  const auto check_device = [op, device = b.device()](const char* name, const at::Tensor& tensor) {
    TORCH_CHECK(tensor.device() == device, op, ": ", name, " must be on the device of b: expected ",
                device, ", got ", tensor.device());
  };
  check_device("a", a);
  if (initial.has_value()) check_device("initial", *initial);
  // The dtype to which the dtypes of all arguments are promoted.
  at::ScalarType dtype = c10::promoteTypes(a.scalar_type(), b.scalar_type());
  if (initial.has_value()) dtype = c10::promoteTypes(dtype, initial->scalar_type());
  const bool is_real =
      dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat || dtype == at::kDouble;
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_real || dtype == at::kComplexFloat || dtype == at::kComplexDouble, op,
      " is not implemented for ", dtype,
      ": expected the dtypes of a, b and initial to promote to float16, bfloat16, float32, "
      "float64, complex64 or complex128");
  check_broadcast(op, {{"b", b}, {"a", a}});
  auto shape = at::infer_size_symdimvector(a.sym_sizes(), b.sym_sizes());
  std::vector<c10::SymInt> sizes(shape.begin(), shape.end());
  const int64_t rank = static_cast<int64_t>(sizes.size()), count = rank == 0 ? 1 : rank;
  TORCH_CHECK_INDEX(-count <= given_dim && given_dim < count, op,
                    ": dim must be a dimension of a and b, broadcast: expected a value from ",
                    -count, " to ", count - 1, ", got ", given_dim);
  const int64_t dim = given_dim < 0 ? given_dim + count : given_dim;
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
