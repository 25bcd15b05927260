// Copies that pad, roll or join tensors, and the gradients of padding.
#pragma once

#include <ATen/Operators.h>

#include <array>

#include "override/deterministic/shared.h"
#include "override/policy.h"
#include "override/predicates.h"
#include "pad/pad_ops.h"
#include "pad/pad_problem.h"

namespace gpuopt::overriding {

// Whether elements of a dtype are bits that a copy moves.
inline bool has_bits(const Tensor& tensor) {
  return is_plain(tensor) && !tensor.is_quantized() && tensor.element_size() <= 16;
}

inline std::optional<std::array<int64_t, 2 * pad::kMaxDims>> numbers_of(c10::SymIntArrayRef list) {
  std::array<int64_t, 2 * pad::kMaxDims> numbers{};
  if (list.size() > numbers.size()) return std::nullopt;
  for (size_t k = 0; k < list.size(); ++k) {
    const std::optional<int64_t> number = list[k].maybe_as_int();
    if (!number.has_value()) return std::nullopt;
    numbers[k] = *number;
  }
  return numbers;
}

// The bytes of the padded tensor, or nothing if no dimension may have these numbers.
inline std::optional<int64_t> padded_bytes(const Tensor& self, c10::SymIntArrayRef pad,
                                           pad::Mode mode) {
  const auto numbers = numbers_of(pad);
  if (!numbers.has_value() || pad.size() % 2 != 0) return std::nullopt;
  if (static_cast<int64_t>(pad.size() / 2) > self.dim()) return std::nullopt;
  int64_t bytes = bytes_of(self);
  for (size_t k = 0; k < pad.size() / 2; ++k) {
    const int64_t size = self.size(pad::dim_of_pair(self.dim(), k));
    const int64_t before = (*numbers)[2 * k], after = (*numbers)[2 * k + 1];
    const bool crops = before < 0 || after < 0;
    const bool is_too_wide = mode == pad::Mode::kReflect && std::max(before, after) >= size;
    if (is_too_wide || (crops && mode != pad::Mode::kConstant)) return std::nullopt;
    if (size + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0) <= 0) return std::nullopt;
    bytes = bytes / size * (size + before + after);
  }
  return bytes;
}

struct ConstantPad {
  using Aten = at::_ops::constant_pad_nd;
  static constexpr Operator kOperator = operator_named("constant_pad_nd");

  static Reason decide(const Tensor& self, c10::SymIntArrayRef pad, const at::Scalar& value) {
    if (!has_bits(self) || value.isSymbolic()) return Reason::kUnsupported;
    const auto bytes = padded_bytes(self, pad, pad::Mode::kConstant);
    if (!bytes.has_value()) return Reason::kUnsupported;
    return unless_always([&] { return policy::pad(bytes_of(self) + *bytes); });
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, c10::SymIntArrayRef pad,
                    const at::Scalar& value) {
    return redispatch(Pad{self, pad, "constant", value}, key);
  }
};

template <typename AtenOp, Operator op, int64_t dims, pad::Mode mode>
struct Border {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;
  static constexpr const char* kMode = mode == pad::Mode::kReflect ? "reflect" : "replicate";

  static Reason decide(const Tensor& self, c10::SymIntArrayRef padding) {
    const bool fit = is_plain(self) && padding.size() == 2 * dims &&
                     (self.dim() == dims + 1 || self.dim() == dims + 2);
    if (!fit) return Reason::kUnsupported;
    // ATen's result is contiguous on CUDA, and that of gpuopt is not.
    if (self.suggest_memory_format() != at::MemoryFormat::Contiguous) return Reason::kLayout;
    if (!is_measured(self.scalar_type())) return Reason::kDtype;
    const auto bytes = padded_bytes(self, padding, mode);
    if (!bytes.has_value()) return Reason::kUnsupported;
    return unless_always([&] { return policy::border(bytes_of(self) + *bytes); });
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, c10::SymIntArrayRef padding) {
    return redispatch(Pad{self, padding, kMode, std::nullopt}, key);
  }
};

// ATen adds atomically, and refuses to in deterministic mode.
template <typename AtenOp, Operator op, int64_t dims, pad::Mode mode>
struct BorderBackward {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  static Reason decide(const Tensor& grad, const Tensor& self, c10::SymIntArrayRef padding) {
    if (dims > 2 && !is_deterministic()) return Reason::kAtenIsFaster;
    const bool fit = is_plain_or_empty(grad) && is_plain_or_empty(self) &&
                     is_real_float(grad.scalar_type()) &&
                     grad.scalar_type() == self.scalar_type() && on_device_of(grad, {self}) &&
                     grad.dim() == self.dim() && self.dim() > dims && padding.size() == 2 * dims;
    const auto bytes = fit ? padded_bytes(self, padding, mode) : std::nullopt;
    if (!bytes.has_value()) return Reason::kUnsupported;
    for (int64_t d = 0; d < self.dim(); ++d) {
      const int64_t k = self.dim() - 1 - d;
      const auto numbers = *numbers_of(padding);
      const int64_t wider = k < dims ? numbers[2 * k] + numbers[2 * k + 1] : 0;
      if (grad.size(d) != self.size(d) + wider) return Reason::kUnsupported;
    }
    if (is_deterministic()) return Reason::kTaken;
    if (!is_measured(grad.scalar_type())) return Reason::kDtype;
    return unless_always([&] {
      return policy::border_backward(bytes_of(self) + *bytes, dims,
                                     static_cast<int64_t>(grad.element_size()));
    });
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& grad, const Tensor& self,
                    c10::SymIntArrayRef padding) {
    const char* name = mode == pad::Mode::kReflect ? "reflect" : "replicate";
    return redispatch(PadBackward{grad.contiguous(), self.sym_sizes(), padding, name}, key);
  }
};

struct Roll {
  using Aten = at::_ops::roll;
  static constexpr Operator kOperator = operator_named("roll");

  static Reason decide(const Tensor& self, c10::SymIntArrayRef shifts, at::IntArrayRef dims) {
    const bool fit = has_bits(self) && numbers_of(shifts).has_value() && !shifts.empty() &&
                     shifts.size() == (dims.empty() ? 1 : dims.size());
    if (!fit) return Reason::kUnsupported;
    for (const int64_t dim : dims) {
      if (!wrapped(dim, self).has_value()) return Reason::kUnsupported;
    }
    return unless_always([&] { return policy::pad(2 * bytes_of(self)); });
  }
  static Tensor run(c10::DispatchKeySet key, const Tensor& self, c10::SymIntArrayRef shifts,
                    at::IntArrayRef dims) {
    return redispatch(gpuopt::Roll{self, shifts, dims}, key);
  }
};

// Also stack, which calls cat.
struct Cat {
  using Aten = at::_ops::cat;
  static constexpr Operator kOperator = operator_named("cat");

  static Reason decide(const at::ITensorListRef& list, int64_t dim) {
    const auto tensors = list.materialize();
    if (tensors.size() < 2 || tensors.size() > pad::kMaxRuns) return Reason::kUnsupported;
    const Tensor& first = tensors[0];
    if (!first.defined()) return Reason::kUnsupported;
    const std::optional<int64_t> d = wrapped(dim, first);
    if (!d.has_value()) return Reason::kUnsupported;
    int64_t bytes = 0;
    for (const Tensor& tensor : tensors) {
      const bool fit = has_bits(tensor) && tensor.dim() == first.dim() &&
                       tensor.scalar_type() == first.scalar_type() &&
                       on_device_of(first, {tensor}) && has_rows_of(first, tensor, *d);
      if (!fit) return Reason::kUnsupported;
      bytes += bytes_of(tensor);
    }
    // The size of what lies in memory inside of the joined dimension.
    const bool channels_last = pad::format_of(tensors) != at::MemoryFormat::Contiguous;
    if (channels_last && *d != 1) return Reason::kLayout;
    int64_t inner = channels_last ? 1 : c10::multiply_integers(first.sizes().slice(*d + 1));
    inner *= static_cast<int64_t>(first.element_size());
    bool is_dense = !channels_last;
    int64_t narrowest = bytes;
    for (const Tensor& tensor : tensors) {
      const int64_t slice = tensor.size(*d) * inner;
      is_dense = is_dense && slice % kAccessBytes == 0 && tensor.is_contiguous();
      narrowest = std::min(narrowest, slice);
    }
    return unless_always(
        [&] { return policy::cat(2 * bytes, is_dense, tensors.size(), narrowest); });
  }
  static Tensor run(c10::DispatchKeySet key, const at::ITensorListRef& tensors, int64_t dim) {
    return redispatch(gpuopt::Cat{tensors, dim}, key);
  }
};

// ---------------------------------------------------------------- operators

#define GPUOPT_BORDERS(Name, aten, mode)                                                         \
  using Name##1d = Border<at::_ops::aten##1d, operator_named(#aten "1d"), 1, mode>;              \
  using Name##2d = Border<at::_ops::aten##2d, operator_named(#aten "2d"), 2, mode>;              \
  using Name##3d = Border<at::_ops::aten##3d, operator_named(#aten "3d"), 3, mode>;              \
  using Name##1dBackward =                                                                       \
      BorderBackward<at::_ops::aten##1d_backward, operator_named(#aten "1d_backward"), 1, mode>; \
  using Name##2dBackward =                                                                       \
      BorderBackward<at::_ops::aten##2d_backward, operator_named(#aten "2d_backward"), 2, mode>; \
  using Name##3dBackward =                                                                       \
      BorderBackward<at::_ops::aten##3d_backward, operator_named(#aten "3d_backward"), 3, mode>

GPUOPT_BORDERS(Reflection, reflection_pad, pad::Mode::kReflect);
GPUOPT_BORDERS(Replication, replication_pad, pad::Mode::kReplicate);
#undef GPUOPT_BORDERS

}  // namespace gpuopt::overriding
