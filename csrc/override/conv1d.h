// Convolutions of signals (N, C, L), also transposed ones, and their gradients. Convolutions of
// images are passed on at once, so a convolution that gpuopt hands back to ATen as an image does
// not return here.
#pragma once

#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <c10/core/MemoryFormat.h>

#include <array>
#include <tuple>

#include "binding/unfilled.h"
#include "conv1d/binding/check.h"
#include "conv1d/policy.h"
#include "override/predicates.h"
#include "reduce/binding/reduce_ops.h"
#include "transpose/binding/transpose_ops.h"

namespace gpuopt::overriding {

using Numbers = c10::SymIntArrayRef;  // of one dimension

// A number within limits in which the sizes of a convolution can't overflow.
inline bool is_number(Numbers values, int64_t least) {
  if (values.size() != 1) return false;
  const int64_t value = values[0].maybe_as_int().value_or(-1);
  return least <= value && value <= INT32_MAX;
}

// Whether cuDNN computes in channels-last layout because of this signal or weight, which ATen looks
// at as an image of one row. Strides of dimensions of size 1 count.
inline bool suggests_channels_last(const Tensor& operand) {
  const at::IntArrayRef sizes = operand.sizes(), strides = operand.strides();
  const std::array<int64_t, 4> image{sizes[0], sizes[1], 1, sizes[2]};
  const std::array<int64_t, 4> steps{strides[0], strides[1], sizes[2] * strides[2], strides[2]};
  return c10::is_channels_last_strides_2d_s4(at::IntArrayRef(image), at::IntArrayRef(steps));
}

// How taps lie on the input, as ATen's operators say it.
struct Taps {
  Numbers stride, padding, dilation;
  bool transposed;
  Numbers output_padding;
  const c10::SymInt& groups;

  bool are_numbers() const {
    // cuDNN refuses output padding of a stride or more.
    return is_number(stride, 1) && is_number(padding, 0) && is_number(dilation, 1) &&
           (!transposed || (is_number(output_padding, 0) && output_padding[0] < stride[0]));
  }
  int64_t in_channels(const Tensor& weight) const {
    return transposed ? weight.size(0) : weight.size(1) * groups.expect_int();
  }
  int64_t out_channels(const Tensor& weight) const {
    return transposed ? weight.size(1) * groups.expect_int() : weight.size(0);
  }
  // The size of the result's rows. ATen refuses one below 1.
  int64_t out_size(const Tensor& input, const Tensor& weight) const {
    const int64_t step = stride[0].expect_int(), size = input.size(2);
    const int64_t span = dilation[0].expect_int() * (weight.size(2) - 1);
    const int64_t ends = 2 * padding[0].expect_int();
    if (transposed) return (size - 1) * step - ends + span + output_padding[0].expect_int() + 1;
    return size + ends > span ? (size + ends - 1 - span) / step + 1 : 0;
  }
};

inline Reason decide_convolution(const Tensor& input, const Tensor& weight, const Taps& of) {
  if (input.dim() != 3 || weight.dim() != 3) return Reason::kUnsupported;
  const at::ScalarType dtype = input.scalar_type();
  if (!is_measured(dtype) || weight.scalar_type() != dtype) return Reason::kDtype;
  const int64_t groups = of.groups.maybe_as_int().value_or(0);
  if (!is_plain(input) || !is_plain(weight) || !on_device_of(input, {weight}) || groups <= 0 ||
      !of.are_numbers() || weight.size(0) % groups != 0 ||
      input.size(1) != of.in_channels(weight)) {
    return Reason::kUnsupported;
  }
  if (weight.size(2) > INT32_MAX || (of.transposed && input.size(2) > INT32_MAX) ||
      of.out_size(input, weight) < 1) {
    return Reason::kUnsupported;
  }
  // ATen makes a signal contiguous first. A copy never suggests channels last. A signal that is
  // contiguous already may do so, if it has one channel or one position.
  if (suggests_channels_last(weight) || (input.is_contiguous() && suggests_channels_last(input))) {
    return Reason::kLayout;
  }
  // attempt() asks the plan, which costs the host 0.3 to 0.5 us (README.md). Calls are declined
  // here if the weight alone shows that the plan chooses ATen.
  return unless_always([&] {
    const bool is_half = weight.element_size() == 2;
    const int64_t in = weight.size(1), out = weight.size(0) / groups, taps = weight.size(2);
    // Channels-last signals are copied to channels-first order, in vain if the plan then chooses
    // ATen. With one channel per group it tries ATen only from conv1d::kDenseWeights outputs on.
    // Tap GEMMs take every convolution, but no transposed one with a stride.
    const bool has_path =
        in == 1 || (conv1d::is_by_taps(is_half, groups, in, out, taps) && !of.transposed);
    if (conv1d::is_channels_last(input) && !has_path) return Reason::kLayout;
    return in <= conv1d::kMostChannels ? Reason::kTaken : Reason::kAtenIsFaster;
  });
}

// A signal with the values of another one. A result has the layout of gpuopt's operand, and must be
// contiguous.
inline Tensor in_rows(const Tensor& signal, c10::DispatchKeySet key) {
  if (!conv1d::is_channels_last(signal)) return signal;
  return redispatch(Transpose2D{signal.transpose(1, 2)}, key);
}

struct Convolution {
  using Aten = at::_ops::convolution;
  static constexpr Operator kOperator = operator_named("convolution");
  static constexpr bool kMayPassOn = true;

  static Reason decide(const Tensor& input, const Tensor& weight, const TensorOption& bias,
                       Numbers stride, Numbers padding, Numbers dilation, bool transposed,
                       Numbers output_padding, const c10::SymInt& groups) {
    const Taps of{stride, padding, dilation, transposed, output_padding, groups};
    const Reason known = decide_convolution(input, weight, of);
    if (known != Reason::kTaken || !is_given(bias)) return known;
    const bool fits = is_plain(*bias) && bias->dim() == 1 &&
                      bias->size(0) == of.out_channels(weight) &&
                      bias->scalar_type() == input.scalar_type() && on_device_of(input, {*bias});
    return fits ? Reason::kTaken : Reason::kUnsupported;
  }
  template <typename Rest>
  static std::optional<Tensor> attempt(c10::DispatchKeySet key, const Rest&, const Tensor& input,
                                       const Tensor& weight, const TensorOption& bias,
                                       Numbers stride, Numbers padding, Numbers dilation,
                                       bool transposed, Numbers output_padding,
                                       const c10::SymInt& groups) {
    const Tensor rows = in_rows(input, key);
    Tensor result =
        transposed
            ? redispatch(ConvTranspose1dByPath{rows, weight, bias, stride, padding, output_padding,
                                               groups, dilation},
                         key)
            : redispatch(Conv1dByPath{rows, weight, bias, stride, padding, dilation, groups}, key);
    return result.defined() ? std::optional<Tensor>(std::move(result)) : std::nullopt;
  }
};

struct ConvolutionBackward {
  using Aten = at::_ops::convolution_backward;
  using Mask = std::array<bool, 3>;
  using Gradients = std::tuple<Tensor, Tensor, Tensor>;
  static constexpr Operator kOperator = operator_named("convolution_backward");
  static constexpr bool kMayPassOn = true;

  static Reason decide(const Tensor& grad, const Tensor& input, const Tensor& weight,
                       at::OptionalSymIntArrayRef, Numbers stride, Numbers padding,
                       Numbers dilation, bool transposed, Numbers output_padding,
                       const c10::SymInt& groups, Mask mask) {
    const Taps of{stride, padding, dilation, transposed, output_padding, groups};
    const Reason known = decide_convolution(input, weight, of);
    if (known != Reason::kTaken) return known;
    if (!mask[0] && !mask[1]) return Reason::kAtenIsFaster;  // a sum, which is taken by itself
    const bool fits = is_plain(grad) && grad.dim() == 3 && grad.size(0) == input.size(0) &&
                      grad.size(1) == of.out_channels(weight) &&
                      grad.size(2) == of.out_size(input, weight) &&
                      grad.scalar_type() == input.scalar_type() && on_device_of(input, {grad});
    if (!fits) return Reason::kUnsupported;
    // The gradient is the input of a convolution here, and may suggest channels last like an input.
    const bool is_ambiguous = transposed && grad.is_contiguous() && suggests_channels_last(grad);
    return is_ambiguous ? Reason::kLayout : Reason::kTaken;
  }
  template <typename Rest>
  static std::optional<Gradients> attempt(c10::DispatchKeySet key, const Rest& rest,
                                          const Tensor& grad, const Tensor& input,
                                          const Tensor& weight,
                                          at::OptionalSymIntArrayRef bias_sizes, Numbers stride,
                                          Numbers padding, Numbers dilation, bool transposed,
                                          Numbers output_padding, const c10::SymInt& groups,
                                          Mask mask) {
    const auto backward = [&](const Tensor& result, const Tensor& operand, Mask of) {
      return redispatch(Conv1dBackwardByPath{result, operand, weight, stride, padding, dilation,
                                             groups, of, std::nullopt, "none"},
                        key);
    };
    Gradients gradients;
    auto& [grad_input, grad_weight, grad_bias] = gradients;
    if (transposed) {
      // The gradient is the convolution's input, and the input its result.
      if (mask[0]) {
        grad_input = redispatch(Conv1dByPath{in_rows(grad, key), weight, std::nullopt, stride,
                                             padding, dilation, groups},
                                key);
      }
      if (mask[1]) grad_weight = std::get<1>(backward(input, grad, {false, true, false}));
      if (mask[2] && (grad_input.defined() || grad_weight.defined())) {
        constexpr std::array<int64_t, 2> kRows{0, 2};
        grad_bias = redispatch(ReduceSum{grad, at::IntArrayRef(kRows), false, std::nullopt}, key);
      }
    } else {
      // The gradient of the input has the layout of gpuopt's operand, and must be contiguous. It
      // does not depend on the operand's values.
      const bool apart = mask[0] && conv1d::is_channels_last(input);
      gradients = backward(grad, input, {mask[0] && !apart, mask[1], mask[2]});
      if (apart) {
        const Tensor like = unfilled(input.sizes(), input.options());
        const bool bias_left = mask[2] && !grad_bias.defined();
        const Gradients of_input = backward(grad, like, {true, false, bias_left});
        grad_input = std::get<0>(of_input);
        if (bias_left) grad_bias = std::get<2>(of_input);
      }
    }
    const Mask left{mask[0] && !grad_input.defined(), mask[1] && !grad_weight.defined(), false};
    if (left == Mask{mask[0], mask[1], false}) return std::nullopt;
    if (left[0] || left[1]) {
      const Gradients others = rest(grad, input, weight, bias_sizes, stride, padding, dilation,
                                    transposed, output_padding, groups, left);
      if (left[0]) grad_input = std::get<0>(others);
      if (left[1]) grad_weight = std::get<1>(others);
    }
    return gradients;
  }
};

}  // namespace gpuopt::overriding
