// What a call that works on memory directly asks of its tensors. Each question costs some
// nanoseconds.
#pragma once

#include <ATen/ATen.h>

#include <initializer_list>
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

// Whether a tensor has values, and nothing but values: no conj or neg bit, no names of dimensions,
// and memory that was not freed, as sharded training frees parameters.
inline bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_conj() && !tensor.is_neg() && !has_names(tensor) &&
         tensor.numel() > 0 && tensor.storage().data() != nullptr;
}

inline bool on_device_of(const at::Tensor& tensor, std::initializer_list<at::TensorBase> others) {
  for (const at::TensorBase& other : others) {
    if (other.device() != tensor.device()) return false;
  }
  return true;
}

}  // namespace gpuopt
