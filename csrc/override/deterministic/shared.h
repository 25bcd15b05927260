// What operators have in common for which ATen has no deterministic CUDA kernel. They are composed
// of deterministic ones, and taken while torch.use_deterministic_algorithms is on.
// docs/deterministic.md lists them.
#pragma once

#include <ATen/Operators.h>

#include "index_add/binding/index_add_ops.h"
#include "override/index_add.h"
#include "override/predicates.h"

namespace gpuopt::overriding {

inline bool is_plain_or_empty(const Tensor& tensor) {
  return tensor.defined() && (tensor.numel() == 0 || is_plain(tensor));
}

// Whether the mode asks for these operands, which are floats of one dtype on one device.
template <typename... Tensors>
Reason decide_floats(const Tensor& first, const Tensors&... others) {
  if (!is_deterministic()) return Reason::kAtenIsFaster;
  if (!is_plain_or_empty(first) || (!is_plain_or_empty(others) || ...)) return Reason::kUnsupported;
  if (!is_real_float(first.scalar_type())) return Reason::kDtype;
  const bool fit =
      ((others.scalar_type() == first.scalar_type()) && ...) && on_device_of(first, {others...});
  return fit ? Reason::kTaken : Reason::kUnsupported;
}

inline Reason taken_if(bool fit) { return fit ? Reason::kTaken : Reason::kUnsupported; }

// Whether all sizes but the last `dims` agree.
inline bool has_planes_of(const Tensor& one, const Tensor& other, int64_t dims) {
  return one.dim() == other.dim() && one.dim() >= dims &&
         one.sizes().slice(0, one.dim() - dims) == other.sizes().slice(0, other.dim() - dims);
}

inline bool are_indices(const Tensor& index, const Tensor& values) {
  return is_plain_or_empty(index) && index.scalar_type() == at::kLong &&
         index.sizes() == values.sizes() && index.device() == values.device();
}

// A vector of `size` values with the sums of the values at each index.
inline Tensor sums_at(c10::DispatchKeySet key, int64_t size, const Tensor& index,
                      const Tensor& values) {
  const Tensor zeros = at::zeros({size}, values.options());
  return redispatch(
      gpuopt::IndexAdd{zeros, 0, index.reshape({-1}), values.reshape({-1}), 1, kDeterministic},
      key);
}

// An index within a plane, for each of (.., N) as an index of all planes.
inline Tensor in_all_planes(const Tensor& index, int64_t planes, int64_t plane) {
  const Tensor first = at::arange(planes, index.options()).mul_(plane).unsqueeze_(1);
  return index.reshape({planes, -1}).add(first).reshape({-1});
}

// Writes values at indices of a vector. In deterministic mode, ATen sorts the indices.
inline void put_at(const Tensor& vector, const Tensor& index, const Tensor& values,
                   bool accumulate) {
  Tensor result = vector;
  at::index_put_(result, c10::List<std::optional<Tensor>>({index.reshape({-1})}),
                 values.reshape({-1}), accumulate);
}

#define GPUOPT_OPERATOR(Name, Struct, aten, ...) \
  using Name = Struct<at::_ops::aten, operator_named(#aten), __VA_ARGS__>

}  // namespace gpuopt::overriding
