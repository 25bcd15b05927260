// Argument checks that all operators share. A message names the operator, the argument, what was
// expected and what was passed. The exception types are ATen's.
#pragma once

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>

#include <initializer_list>
#include <type_traits>
#include <vector>

namespace gpuopt {

struct NamedTensor {
  const char* name;
  const at::Tensor& tensor;
};

inline bool has_symbolic_shape(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// Size is int64_t, or c10::SymInt if sizes may be symbolic.
template <typename Size>
c10::ArrayRef<Size> sizes_of(const at::Tensor& tensor) {
  if constexpr (std::is_same_v<Size, c10::SymInt>) {
    return tensor.sym_sizes();
  } else {
    return tensor.sizes();
  }
}

inline bool is_real_float(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat ||
         dtype == at::kDouble;
}

inline bool is_known_zero(int64_t size) { return size == 0; }
inline bool is_known_zero(const c10::SymInt& size) { return TORCH_GUARD_OR_FALSE(size.sym_eq(0)); }

inline bool is_cpu_scalar(const at::Tensor& tensor) { return tensor.dim() == 0 && tensor.is_cpu(); }

// Unlike check_same_device(), this also refuses a zero-dimensional CPU tensor.
inline void check_device_of(const char* op, NamedTensor argument, NamedTensor first) {
  TORCH_CHECK(argument.tensor.device() == first.tensor.device(), op, ": ", argument.name,
              " must be on the device of ", first.name, ": expected ", first.tensor.device(),
              ", got ", argument.tensor.device());
}

inline void check_dtype_of(const char* op, NamedTensor argument, NamedTensor first) {
  TORCH_CHECK(argument.tensor.scalar_type() == first.tensor.scalar_type(), op, ": ", argument.name,
              " must have the dtype of ", first.name, ": expected ", first.tensor.scalar_type(),
              ", got ", argument.tensor.scalar_type());
}

inline void check_input_dtype(const char* op, NamedTensor argument, const at::Tensor& input) {
  TORCH_CHECK(argument.tensor.scalar_type() == input.scalar_type(), op, ": ", argument.name,
              " must have input's dtype: expected ", input.scalar_type(), ", got ",
              argument.tensor.scalar_type());
}

inline void check_index_dtype(const char* op, const char* name, at::ScalarType dtype) {
  TORCH_CHECK(dtype == at::kLong || dtype == at::kInt, op, ": ", name,
              " must be int32 or int64: expected Int or Long, got ", dtype);
}

// Returns `dim` counted from the front. A tensor without dimensions accepts 0 and -1.
inline int64_t checked_dim(const char* op, int64_t dim, int64_t rank, const char* what = "input") {
  const int64_t count = rank == 0 ? 1 : rank;
  TORCH_CHECK_INDEX(-count <= dim && dim < count, op, ": dim must be a dimension of ", what,
                    ": expected a value from ", -count, " to ", count - 1, ", got ", dim);
  return dim < 0 ? dim + count : dim;
}

// Sizes that depend on data are not compared.
inline bool may_have_shape(const at::Tensor& tensor, at::SymIntArrayRef sizes) {
  bool fits = tensor.dim() == static_cast<int64_t>(sizes.size());
  for (int64_t d = 0; fits && d < tensor.dim(); ++d) {
    fits = TORCH_GUARD_OR_TRUE(tensor.sym_size(d).sym_eq(sizes[d]));
  }
  return fits;
}

// All tensors must be on one device. Zero-dimensional CPU tensors go with any device.
inline void check_same_device(const char* op, std::initializer_list<NamedTensor> arguments) {
  const NamedTensor* first = nullptr;
  for (const NamedTensor& argument : arguments) {
    if (is_cpu_scalar(argument.tensor)) continue;
    if (first == nullptr) {
      first = &argument;
      continue;
    }
    check_device_of(op, argument, *first);
  }
}

// All shapes must broadcast together. Symbolic shapes are left to the Meta kernels, which add
// guards.
inline void check_broadcast(const char* op, std::initializer_list<NamedTensor> arguments) {
  const NamedTensor& first = *arguments.begin();
  bool equal = true;
  for (const NamedTensor& argument : arguments) {
    if (has_symbolic_shape(argument.tensor)) return;
    equal = equal && argument.tensor.sizes().equals(first.tensor.sizes());
  }
  if (equal) return;
  std::vector<int64_t> shape;  // the sizes so far, last dimension first
  for (const NamedTensor& argument : arguments) {
    const at::IntArrayRef sizes = argument.tensor.sizes();
    if (sizes.size() > shape.size()) shape.resize(sizes.size(), 1);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t size = sizes[sizes.size() - 1 - i];
      TORCH_CHECK(size == shape[i] || size == 1 || shape[i] == 1, op, ": ", argument.name,
                  " must broadcast with ", first.name, ": expected sizes that match or are 1, got ",
                  first.name, " ", first.tensor.sizes(), " and ", argument.name, " ", sizes,
                  " (dimension -", i + 1, ": ", shape[i], " against ", size, ")");
      if (shape[i] == 1) shape[i] = size;
    }
  }
}

// Checks a tensor that an operator writes to. No two elements may share an address, and no
// input may overlap it in part. An input with exactly the same elements is fine: that is an
// in-place call.
inline void check_writable(const char* op, NamedTensor written,
                           std::initializer_list<NamedTensor> inputs) {
  if (has_symbolic_shape(written.tensor)) return;
  TORCH_CHECK(
      at::has_internal_overlap(written.tensor) != at::MemOverlap::Yes, op, ": ", written.name,
      " must have every element at its own address: expected no overlap, got "
      "sizes ",
      written.tensor.sizes(), " with strides ", written.tensor.strides(), " (clone() it first)");
  for (const NamedTensor& input : inputs) {
    if (has_symbolic_shape(input.tensor)) continue;
    const auto status = at::get_overlap_status(written.tensor, input.tensor);
    TORCH_CHECK(status != at::MemOverlapStatus::Partial, op, ": ", written.name,
                " must not share memory with a part of ", input.name,
                ": expected separate or identical memory, got a partial overlap (clone() one)");
  }
}

// Whether `out`, which is to have these sizes, may be written while the input is read.
inline bool is_apart(const at::Tensor& out, const at::Tensor& input, at::IntArrayRef sizes) {
  return !out.is_alias_of(input) ||
         (out.sizes().equals(sizes) &&
          at::get_overlap_status(out, input) == at::MemOverlapStatus::No);
}

inline void check_castable(const char* op, const char* name, at::ScalarType result,
                           at::ScalarType written) {
  TORCH_CHECK(at::canCast(result, written), op, ": ", name,
              " must be able to hold the result: expected a dtype that ", result, " casts to, got ",
              written);
}

}  // namespace gpuopt
