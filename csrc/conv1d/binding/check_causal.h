// Checks of the arguments of causal_conv1d and causal_conv1d_update.
#pragma once

#include "conv1d/binding/check.h"

namespace gpuopt::conv1d {

// A depthwise weight (C, taps) of an input with `channels`.
inline void check_depthwise(const char* op, const SymInt& channels, const Tensor& weight,
                            const TensorOption& bias) {
  TORCH_CHECK(weight.dim() == 2, op, ": weight must be (channels, taps): expected 2 dimensions, ",
              "got shape ", weight.sym_sizes());
  TORCH_CHECK(must_equal(weight.sym_size(0), channels), op,
              ": weight must have input's channels: expected size ", channels,
              " in dimension 0, got shape ", weight.sym_sizes());
  TORCH_CHECK(!is_known_below(channels, 1) && !is_known_below(weight.sym_size(1), 1), op,
              ": weight must have channels and taps: expected sizes of 1 or more, got shape ",
              weight.sym_sizes());
  check_bias(op, channels, bias, "channel");
}

inline Activation check_causal(const CausalConv1d& call) {
  const char* op = name_of<CausalConv1d>();
  const auto& [input, weight, bias, activation] = call;
  const Activation known = to_activation(op, activation);
  check_signal(op, input);
  check_depthwise(op, input.sym_size(-2), weight, bias);
  TORCH_CHECK(
      !is_known_zero(input.sym_size(-1)) || (input.dim() == 3 && is_known_zero(input.sym_size(0))),
      op, ": input must have values: expected size 1 or more in its last dimension, got ", "shape ",
      input.sym_sizes());
  check_dtypes_before_autocast(op, input, weight, bias);
  return known;
}

inline Activation check_update(const CausalConv1dUpdate& op) {
  const auto& [input, state, weight, bias, activation] = op;
  const Activation known = to_activation(kUpdateOp, activation);
  TORCH_CHECK(input.dim() == 2, kUpdateOp,
              ": input must be (N, C): expected 2 dimensions, got shape ", input.sym_sizes());
  TORCH_CHECK(state.dim() == 3 && must_equal(state.sym_size(0), input.sym_size(0)) &&
                  must_equal(state.sym_size(1), input.sym_size(1)),
              kUpdateOp, ": state must be (N, C, positions): expected shape (", input.sym_size(0),
              ", ", input.sym_size(1), ", positions), got shape ", state.sym_sizes());
  check_depthwise(kUpdateOp, input.sym_size(1), weight, bias);
  TORCH_CHECK(must_not_exceed(weight.sym_size(1) - 1, state.sym_size(2)), kUpdateOp,
              ": state must hold what weight's taps reach back to: expected ",
              weight.sym_size(1) - 1, " positions or more, got shape ", state.sym_sizes());
  check_dtypes(kUpdateOp, input,
               {{"state", state}, {"weight", weight}, {"bias", value_or_undefined(bias)}});
  return known;
}

// check_update(), and a check that the state can be written in place.
inline Activation check_update_in_place(const CausalConv1dUpdate& op) {
  const auto& [input, state, weight, bias, activation] = op;
  const Activation known = check_update(op);
  check_writable(kUpdateOp, {"state", state}, {{"input", input}, {"weight", weight}});
  if (is_given(bias)) check_writable(kUpdateOp, {"state", state}, {{"bias", *bias}});
  return known;
}

}  // namespace gpuopt::conv1d
