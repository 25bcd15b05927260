// What a call that works on memory directly asks of its tensors. Each question costs some
// nanoseconds.
#pragma once

#include <ATen/ATen.h>

#include <initializer_list>
#include <optional>
#include <span>

namespace gpuopt {

inline std::span<const int64_t> span_of(at::IntArrayRef values) {
  return {values.data(), values.size()};
}

// Torch 2.15 has no named dimensions.
bool has_names(const auto& tensor) {
  if constexpr (requires { tensor.has_names(); }) {
    return tensor.has_names();
  } else {
    return false;
  }
}

// Whether the memory of a tensor was not freed, as sharded training frees parameters. A meta tensor
// never has memory: tests ask it for decisions about tensors that no machine of theirs could hold.
inline bool has_memory(const at::Tensor& tensor) {
  return tensor.numel() == 0 || tensor.storage().data() != nullptr || tensor.is_meta();
}

// Whether a tensor has values, and nothing but values: no conj or neg bit, and no names of
// dimensions.
inline bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_conj() && !tensor.is_neg() && !has_names(tensor) &&
         tensor.numel() > 0 && has_memory(tensor);
}

inline bool on_device_of(const at::Tensor& tensor, std::initializer_list<at::TensorBase> others) {
  for (const at::TensorBase& other : others) {
    if (other.device() != tensor.device()) return false;
  }
  return true;
}

inline bool is_index(const at::Tensor& index) {
  return index.scalar_type() == at::kLong || index.scalar_type() == at::kInt;
}

// `dim` counted from the front, or nothing if the tensor has no such dimension.
inline std::optional<int64_t> wrapped(int64_t dim, const at::Tensor& self) {
  if (dim < -self.dim() || dim >= self.dim()) return std::nullopt;
  return dim < 0 ? dim + self.dim() : dim;
}

}  // namespace gpuopt
