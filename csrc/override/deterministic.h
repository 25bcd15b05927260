// Operators for which ATen has no deterministic CUDA kernel, composed of deterministic ones:
// gradients of padding and of maxima, and writes at indices. docs/deterministic.md lists all of
// them. They are taken while torch.use_deterministic_algorithms is on, and never otherwise.
#pragma once

#include <ATen/Operators.h>

#include <tuple>

#include "index_add/binding/index_add_ops.h"
#include "override/predicates.h"
#include "override/scatter_reduce.h"

namespace gpuopt::overriding {

// ---------------------------------------------------------------- what the operators share

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

// ---------------------------------------------------------------- padding

// Values of the border are added to the values that they repeat, one dimension after the other.
template <typename AtenOp, Operator op, int64_t dims, bool reflects>
struct PaddingBackward {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  static Reason decide(const Tensor& grad, const Tensor& self, c10::SymIntArrayRef padding) {
    const Reason known = decide_floats(grad, self);
    if (known != Reason::kTaken) return known;
    if (padding.size() != 2 * dims || !has_planes_of(grad, self, dims)) return Reason::kUnsupported;
    for (int64_t k = 0; k < dims; ++k) {
      const int64_t dim = self.dim() - 1 - k, size = self.size(dim);
      const int64_t before = padding[2 * k].expect_int(), after = padding[2 * k + 1].expect_int();
      const bool fits = !reflects || std::max(before, after) < size;
      if (before < 0 || after < 0 || !fits || grad.size(dim) != before + size + after) {
        return Reason::kUnsupported;
      }
    }
    return Reason::kTaken;
  }
  static Tensor run(c10::DispatchKeySet, const Tensor& grad, const Tensor& self,
                    c10::SymIntArrayRef padding) {
    Tensor sums = grad.to(wide_type(grad), /*non_blocking=*/false, /*copy=*/true);
    for (int64_t k = 0; k < dims; ++k) {
      const int64_t dim = self.dim() - 1 - k, size = self.size(dim);
      const int64_t before = padding[2 * k].expect_int(), after = padding[2 * k + 1].expect_int();
      const Tensor core = sums.narrow(dim, before, size);
      add(core, dim, 0, sums.narrow(dim, 0, before));
      add(core, dim, size - 1, sums.narrow(dim, before + size, after));
      sums = core;
    }
    return at::empty(self.sizes(), self.options()).copy_(sums);
  }

 private:
  // Adds a border to the values beside position `edge`, or to the value there.
  static void add(const Tensor& core, int64_t dim, int64_t edge, const Tensor& border) {
    const int64_t size = border.size(dim);
    if (size == 0) return;
    if (reflects) {
      core.narrow(dim, edge == 0 ? 1 : edge - size, size).add_(border.flip(dim));
    } else {
      core.narrow(dim, edge, 1).add_(border.sum(dim, /*keepdim=*/true));
    }
  }
};

// ---------------------------------------------------------------- maxima of windows

// The last argument has the position of each maximum in its plane. Some gradients keep the layout
// of the input.
template <typename AtenOp, Operator op, int64_t dims, bool keeps_layout>
struct MaxPoolBackward {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  template <typename... Rest>
  static Reason decide(const Tensor& grad, const Tensor& self, const Rest&... rest) {
    const Reason known = decide_floats(grad, self);
    if (known != Reason::kTaken) return known;
    return taken_if(has_planes_of(grad, self, dims) && are_indices(last_of(rest...), grad));
  }
  template <typename... Rest>
  static Tensor run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& self,
                    const Rest&... rest) {
    if (grad.numel() == 0) return at::zeros(self.sizes(), self.options());
    const int64_t plane = c10::multiply_integers(self.sizes().slice(self.dim() - dims));
    const Tensor index = in_all_planes(last_of(rest...), self.numel() / plane, plane);
    const Tensor sums = sums_at(key, self.numel(), index, grad).view(self.sizes());
    return keeps_layout ? sums.contiguous(self.suggest_memory_format()) : sums;
  }

 private:
  static const Tensor& last_of(const auto&... rest) {
    return std::get<sizeof...(rest) - 1>(std::tie(rest...));
  }
};

// Of several values with one index, the deterministic index_put writes the same one in each run.
template <typename AtenOp, Operator op, int64_t dims>
struct MaxUnpool {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  static Reason decide(const Tensor& self, const Tensor& indices, c10::SymIntArrayRef output_size,
                       const auto&...) {
    const Reason known = decide_floats(self);
    if (known != Reason::kTaken) return known;
    const auto is_positive = [](const c10::SymInt& size) { return size.expect_int() > 0; };
    return taken_if(is_plain(self) && are_indices(indices, self) && output_size.size() == dims &&
                    std::all_of(output_size.begin(), output_size.end(), is_positive) &&
                    (self.dim() == dims + 1 || self.dim() == dims + 2));
  }
  static Tensor run(c10::DispatchKeySet, const Tensor& self, const Tensor& indices,
                    c10::SymIntArrayRef output_size, const auto&...) {
    at::DimVector sizes(self.sizes().slice(0, self.dim() - dims));
    const int64_t planes = c10::multiply_integers(sizes);
    for (const c10::SymInt& size : output_size) sizes.push_back(size.expect_int());
    const Tensor result = at::zeros(sizes, self.options());
    const Tensor index = in_all_planes(indices, planes, result.numel() / planes);
    put_at(result.view({-1}), index, self, /*accumulate=*/false);
    return result;
  }
};

// ---------------------------------------------------------------- operators

#define GPUOPT_OPERATOR(Name, Struct, aten, ...) \
  using Name = Struct<at::_ops::aten, operator_named(#aten), __VA_ARGS__>

GPUOPT_OPERATOR(Reflection1d, PaddingBackward, reflection_pad1d_backward, 1, true);
GPUOPT_OPERATOR(Reflection2d, PaddingBackward, reflection_pad2d_backward, 2, true);
GPUOPT_OPERATOR(Reflection3d, PaddingBackward, reflection_pad3d_backward, 3, true);
GPUOPT_OPERATOR(Replication1d, PaddingBackward, replication_pad1d_backward, 1, false);
GPUOPT_OPERATOR(Replication2d, PaddingBackward, replication_pad2d_backward, 2, false);
GPUOPT_OPERATOR(Replication3d, PaddingBackward, replication_pad3d_backward, 3, false);
GPUOPT_OPERATOR(MaxPool3d, MaxPoolBackward, max_pool3d_with_indices_backward, 3, true);
GPUOPT_OPERATOR(AdaptiveMax2d, MaxPoolBackward, adaptive_max_pool2d_backward, 2, true);
GPUOPT_OPERATOR(AdaptiveMax3d, MaxPoolBackward, adaptive_max_pool3d_backward, 3, false);
GPUOPT_OPERATOR(FractionalMax2d, MaxPoolBackward, fractional_max_pool2d_backward, 2, false);
GPUOPT_OPERATOR(FractionalMax3d, MaxPoolBackward, fractional_max_pool3d_backward, 3, false);
GPUOPT_OPERATOR(MaxUnpool2d, MaxUnpool, max_unpool2d, 2);
GPUOPT_OPERATOR(MaxUnpool3d, MaxUnpool, max_unpool3d, 3);

}  // namespace gpuopt::overriding
