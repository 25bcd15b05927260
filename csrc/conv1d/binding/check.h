// Checks of the operators' arguments, and the sizes that follow from them. The CUDA, CPU and Meta
// kernels and vmap share them. Exception types are ATen's.
#pragma once

#include <algorithm>
#include <array>

#include "binding/autocast.h"
#include "binding/check.h"
#include "conv1d/binding/call.h"

namespace gpuopt::conv1d {

// The sizes of a checked call. Size is SymInt, or int64_t for kernels.
template <typename Size>
struct BasicSizes {
  Size batch = 1, in_channels, in_size, out_channels, out_size, taps;
  Size stride, left, right, dilation, groups;  // left and right are the padding
  Size output_padding = 0;                     // of a transposed convolution
  bool transposed = false;
  bool batched = true;         // (N, C, L), or (C, L)
  bool channels_last = false;  // input's layout, and the result's
};
using Sizes = BasicSizes<int64_t>;
using SymSizes = BasicSizes<SymInt>;

inline Sizes concrete(const SymSizes& sizes) {
  const auto value = [](const SymInt& size) {
    const auto known = size.maybe_as_int();
    return known.has_value() ? *known : size.guard_int(__FILE__, __LINE__);
  };
  Sizes found{value(sizes.batch),    value(sizes.in_channels),
              value(sizes.in_size),  value(sizes.out_channels),
              value(sizes.out_size), value(sizes.taps),
              value(sizes.stride),   value(sizes.left),
              value(sizes.right),    value(sizes.dilation),
              value(sizes.groups),   value(sizes.output_padding),
              sizes.transposed,      sizes.batched,
              sizes.channels_last};
  // cuDNN may compute wrong values with a dilation of one tap (torch 2.11, (1251,1,31) to 8
  // channels, bfloat16, dilation 16).
  // ATen refuses an output padding that is neither below the stride nor below the dilation.
  if (found.taps == 1 && found.output_padding < found.stride) found.dilation = 1;
  // Products with a larger stride may overflow. Any stride from here on gives a single output, or
  // belongs to a single input of a transposed convolution.
  const int64_t padded =
      (found.transposed ? found.out_size : found.in_size) + found.left + found.right;
  found.stride = std::min(found.stride, padded - (found.taps - 1) * found.dilation);
  return found;
}

// ---------------------------------------------------------------- sizes, which may be symbolic

inline bool is_known_below(const SymInt& size, int64_t least) {
  return TORCH_GUARD_OR_FALSE(size.sym_lt(least));
}
inline bool is_known_equal(const SymInt& a, const SymInt& b) {
  return TORCH_GUARD_OR_FALSE(a.sym_eq(b));
}

// A comparison of unknown sizes becomes a guard, as in ATen.
inline bool must_equal(const SymInt& a, const SymInt& b) {
  return a.sym_eq(b).expect_true(__FILE__, __LINE__);
}
inline bool must_not_exceed(const SymInt& a, const SymInt& b) {
  return a.sym_le(b).expect_true(__FILE__, __LINE__);
}

// ---------------------------------------------------------------- layouts

// Whether a signal is (N, L, C) in memory and not also (N, C, L). Dimensions with fewer than two
// values don't count. As in ATen, a part of the channels of such a signal counts, too.
inline bool is_channels_last(const Tensor& signal) {
  const auto sizes = signal.sym_sizes(), strides = signal.sym_strides();
  const size_t c = sizes.size() - 2, l = sizes.size() - 1;
  const auto fits = [&](size_t d, const SymInt& stride) {
    return is_known_below(sizes[d], 2) || is_known_equal(strides[d], stride);
  };
  const auto holds = [&](size_t d, const SymInt& least) {
    return is_known_below(sizes[d], 2) || TORCH_GUARD_OR_FALSE(strides[d].sym_ge(least));
  };
  const SymInt one = 1;
  if (is_known_below(sizes[c], 2) ? !fits(l, sizes[c]) : !holds(l, sizes[c])) return false;
  if (c == 1 && !(is_known_below(sizes[l], 2) ? fits(0, sizes[c] * sizes[l])
                                              : holds(0, strides[l] * sizes[l]))) {
    return false;
  }
  // The channel stride of a contiguous tensor. at::empty counts a size of 0 as 1.
  const SymInt channel = is_known_zero(sizes[l]) ? one : sizes[l];
  return fits(c, one) && !(fits(c, channel) && fits(l, one));
}

// The strides of a result (N, C, L). Without channels it has the strides of at::empty, which counts
// one channel.
template <typename Size>
std::array<Size, 3> result_strides(const Size& channels, const Size& size, bool channels_last) {
  const Size one = 1;
  if (is_known_zero(channels)) return {size, size, one};
  if (channels_last) return {channels * size, one, channels};
  return {channels * size, size, one};
}

// ---------------------------------------------------------------- arguments

// Returns the only number of `values`, which must be at least `least`.
inline SymInt check_number(const char* op, const char* name, SymIntArrayRef values, int64_t least) {
  TORCH_CHECK(values.size() == 1, op, ": ", name, " must be one number: expected 1 value, got ",
              values);
  TORCH_CHECK(!is_known_below(values[0], least), op, ": ", name, " is too small: expected ", least,
              " or more, got ", values[0]);
  return values[0];
}

// The padding of one end. The padded size must fit into 63 bits.
inline SymInt check_padding(const char* op, SymIntArrayRef values) {
  constexpr int64_t kMost = int64_t{1} << 60;
  const SymInt padding = check_number(op, "padding", values, 0);
  TORCH_CHECK(!is_known_below(SymInt(kMost) - padding, 0), op,
              ": padding is too large: expected at most ", kMost, ", got ", padding);
  return padding;
}

inline void check_dtypes(const char* op, const Tensor& input,
                         std::initializer_list<NamedTensor> others) {
  for (const NamedTensor& other : others) {
    if (!other.tensor.defined()) continue;
    TORCH_CHECK(other.tensor.scalar_type() == input.scalar_type(), op, ": ", other.name,
                " must have input's dtype: expected ", input.scalar_type(), ", got ",
                other.tensor.scalar_type());
    TORCH_CHECK(other.tensor.device() == input.device(), op, ": ", other.name,
                " must be on the device of input: expected ", input.device(), ", got ",
                other.tensor.device());
  }
}

// For operators that call others. Under autocast the dtypes may differ, because the called
// operators cast them to one.
inline void check_dtypes_before_autocast(const char* op, const Tensor& input, const Tensor& weight,
                                         const TensorOption& bias) {
  if (is_autocasting(input.device().type())) return;
  check_dtypes(op, input, {{"weight", weight}, {"bias", value_or_undefined(bias)}});
}

inline void check_signal(const char* op, const Tensor& input) {
  TORCH_CHECK(input.dim() == 2 || input.dim() == 3, op,
              ": input must be (N, C, L), or (C, L) without a batch: expected 2 or 3 dimensions, ",
              "got shape ", input.sym_sizes());
}

inline void check_dimensions(const char* op, const Tensor& input, const Tensor& weight) {
  TORCH_CHECK(input.defined(), op, ": input must be a tensor, got None");
  TORCH_CHECK(weight.defined(), op, ": weight must be a tensor, got None");
  check_signal(op, input);
  TORCH_CHECK(weight.dim() == 3, op, ": weight must be (out channels, channels of a group, taps): ",
              "expected 3 dimensions, got shape ", weight.sym_sizes());
}

inline void check_taps(const char* op, const Tensor& weight) {
  TORCH_CHECK(!is_known_below(weight.sym_size(2), 1), op,
              ": weight must have taps: expected size 1 or ", "more in dimension 2, got shape ",
              weight.sym_sizes());
}

// Checks that input has the channels of weight, and that groups divide weight's output channels.
inline void check_channels(const char* op, const SymSizes& sizes, const Tensor& weight) {
  const SymInt of_group = weight.sym_size(1);
  TORCH_CHECK(!is_known_below(sizes.out_channels, 1), op, ": weight must have out channels: ",
              "expected size 1 or more in dimension 0, got shape ", weight.sym_sizes());
  check_taps(op, weight);
  TORCH_CHECK(must_equal(sizes.out_channels % sizes.groups, 0), op,
              ": weight must have as many out channels in each group: expected a multiple of ",
              sizes.groups, " in dimension 0, got shape ", weight.sym_sizes());
  TORCH_CHECK(must_equal(sizes.in_channels, of_group * sizes.groups), op,
              ": input must have the channels that weight takes: expected ",
              of_group * sizes.groups, " (", sizes.groups, " groups of ", of_group, "), got ",
              sizes.in_channels);
}

inline void check_bias(const char* op, const SymInt& channels, const TensorOption& bias,
                       const char* channel) {
  if (!is_given(bias)) return;
  TORCH_CHECK(bias->dim() == 1 && must_equal(bias->sym_size(0), channels), op,
              ": bias must have a value for each ", channel, ": expected shape [", channels,
              "], got shape ", bias->sym_sizes());
}

// Whether the distance between the first and the last of `count` positions is at most `most`. True
// for unknown numbers.
inline bool may_span(const SymInt& apart, const SymInt& count, int64_t most) {
  const auto distance = apart.maybe_as_int(), positions = count.maybe_as_int();
  int64_t span = 0;
  return !distance.has_value() || !positions.has_value() ||
         (!__builtin_mul_overflow(*distance, *positions - 1, &span) && span <= most);
}

// The distance from the first tap to the last. Numbers whose product does not fit into 63 bits are
// refused.
inline SymInt check_span(const char* op, const SymInt& dilation, const SymInt& taps) {
  TORCH_CHECK(may_span(dilation, taps, INT64_MAX - 1), op,
              ": weight must fit into the padded input: expected taps that span less than 2^63 ",
              "values, got ", taps, " taps that are ", dilation, " values apart");
  return dilation * (taps - 1);
}

inline void check_values(const char* op, const SymSizes& sizes) {
  TORCH_CHECK(!is_known_zero(sizes.in_size) || is_known_zero(sizes.batch) ||
                  is_known_zero(sizes.in_channels),
              op, ": input must have values: expected size 1 or more in its last dimension, got 0");
}

// Checks that input is long enough, and returns the result's size.
inline SymInt check_size(const char* op, const SymSizes& sizes) {
  check_values(op, sizes);
  const SymInt padded = sizes.in_size + sizes.left + sizes.right;
  const SymInt span = check_span(op, sizes.dilation, sizes.taps);
  TORCH_CHECK(must_not_exceed(span, padded - 1), op,
              ": weight must fit into the padded input: expected taps that span at most ", padded,
              " values, got ", sizes.taps, " taps that span ", span + 1);
  return (padded - 1 - span) / sizes.stride + 1;
}

// Checks a transposed convolution, and sets the result's channels and size.
inline void check_transposed(const char* op, SymSizes& sizes, const Tensor& weight,
                             SymIntArrayRef output_padding) {
  TORCH_CHECK(!is_known_below(weight.sym_size(0), 1), op, ": weight must have input channels: ",
              "expected size 1 or more in dimension 0, got shape ", weight.sym_sizes());
  check_taps(op, weight);
  TORCH_CHECK(must_equal(sizes.in_channels, weight.sym_size(0)), op,
              ": input must have the channels that weight takes: expected ", weight.sym_size(0),
              ", got ", sizes.in_channels);
  TORCH_CHECK(must_equal(sizes.in_channels % sizes.groups, 0), op,
              ": weight must have as many input channels in each group: expected a multiple of ",
              sizes.groups, " in dimension 0, got shape ", weight.sym_sizes());
  sizes.out_channels = weight.sym_size(1) * sizes.groups;

  const SymInt more = check_number(op, "output_padding", output_padding, 0);
  TORCH_CHECK(must_not_exceed(more + 1, sizes.stride.max(sizes.dilation)), op,
              ": output_padding must be smaller than stride or dilation: expected less than ",
              sizes.stride.max(sizes.dilation), ", got ", more);
  check_values(op, sizes);
  constexpr int64_t kMost = int64_t{1} << 60;
  TORCH_CHECK(may_span(sizes.stride, sizes.in_size, kMost) &&
                  may_span(sizes.dilation, sizes.taps, kMost) && !is_known_below(kMost - more, 0),
              op, ": stride and dilation must give a result of less than 2^62 positions: expected ",
              "smaller ones, got stride ", sizes.stride, " and dilation ", sizes.dilation);
  const SymInt reach =
      (sizes.in_size - 1) * sizes.stride + sizes.dilation * (sizes.taps - 1) + more + 1;
  TORCH_CHECK(must_not_exceed(sizes.left + sizes.right + 1, reach), op,
              ": padding must leave a result: expected less than half of ", reach, ", got ",
              sizes.left);
  sizes.output_padding = more;
  sizes.out_size = reach - sizes.left - sizes.right;
}

// ---------------------------------------------------------------- operators

// Checks everything except dtypes and devices.
inline SymSizes check_shapes(const ForwardCall& call) {
  const auto& [op, two_paddings, input, weight, bias, geometry, activation] = call;
  const SymIntArrayRef padding = geometry.padding;
  const SymInt& groups = geometry.groups;
  check_dimensions(op, input, weight);
  SymSizes sizes;
  sizes.stride = check_number(op, "stride", geometry.stride, 1);
  sizes.dilation = check_number(op, "dilation", geometry.dilation, 1);
  TORCH_CHECK(!is_known_below(groups, 1), op,
              ": groups must be at least 1: expected a number that is, got ", groups);
  sizes.groups = groups;
  TORCH_CHECK(padding.size() == 1 || (two_paddings && padding.size() == 2), op,
              ": padding must be one number", two_paddings ? ", or one for each end" : "",
              ": expected 1 ", two_paddings ? "or 2 values" : "value", ", got ", padding);
  sizes.left = check_padding(op, padding.slice(0, 1));
  sizes.right = check_padding(op, padding.slice(padding.size() - 1));

  sizes.batched = input.dim() == 3;
  if (sizes.batched) sizes.batch = input.sym_size(0);
  sizes.in_channels = input.sym_size(-2);
  sizes.in_size = input.sym_size(-1);
  sizes.taps = weight.sym_size(2);
  sizes.channels_last = is_channels_last(input);
  sizes.transposed = geometry.transposed;
  if (geometry.transposed) {
    check_transposed(op, sizes, weight, geometry.output_padding);
    check_bias(op, sizes.out_channels, bias, "out channel");
    return sizes;
  }
  sizes.out_channels = weight.sym_size(0);
  check_channels(op, sizes, weight);
  check_bias(op, sizes.out_channels, bias, "out channel");
  sizes.out_size = check_size(op, sizes);
  // ATen's rule: without input channels there are no output channels, whatever weight says.
  if (is_known_zero(sizes.in_channels)) sizes.out_channels = 0;
  return sizes;
}

inline SymSizes check_forward(const ForwardCall& call) {
  const SymSizes sizes = check_shapes(call);
  check_dtypes(call.op, call.input,
               {{"weight", call.weight}, {"bias", value_or_undefined(call.bias)}});
  return sizes;
}

inline SymSizes check_backward(const BackwardCall& call) {
  const Tensor& grad = call.grad_output;
  const SymSizes sizes = check_shapes(call.forward());
  TORCH_CHECK(grad.dim() == call.input.dim() &&
                  (!sizes.batched || must_equal(grad.sym_size(0), sizes.batch)) &&
                  must_equal(grad.sym_size(-2), sizes.out_channels) &&
                  must_equal(grad.sym_size(-1), sizes.out_size),
              call.op, ": grad_output must have the shape of the output: expected (",
              sizes.batched ? c10::str(sizes.batch, ", ") : std::string(), sizes.out_channels, ", ",
              sizes.out_size, "), got shape ", grad.sym_sizes());
  check_dtypes(
      call.op, call.input,
      {{"weight", call.weight}, {"grad_output", grad}, {"bias", value_or_undefined(call.bias)}});
  return sizes;
}

}  // namespace gpuopt::conv1d
