// Checks the arguments of group, instance and batch norm, and finds the shapes of results.
#pragma once

#include "norm/binding/norm_channels_ops.h"
#include "norm/binding/norm_check.h"

namespace gpuopt::norm {

// The sizes of a value for each channel.
inline c10::SymIntArrayRef channel_sizes(const Tensor& input) {
  return input.sym_sizes().slice(1, 1);
}

inline void check_factors(const char* op, const Tensor& input, const TensorOption& weight,
                          const TensorOption& bias) {
  check_parameters(op, input, weight, bias, channel_sizes(input), "a value for each channel");
}

inline void check_rank(const char* op, const Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, op,
              ": input must have samples and channels: expected at least 2 dimensions, got shape ",
              input.sym_sizes());
}

inline void check_groups(const char* op, const Tensor& input, const c10::SymInt& groups) {
  check_rank(op, input);
  TORCH_CHECK(TORCH_GUARD_OR_TRUE(groups.sym_gt(0)), op,
              ": num_groups must be positive: expected at least 1, got ", groups);
  TORCH_CHECK(TORCH_GUARD_OR_TRUE((input.sym_size(1) % groups).sym_eq(0)), op,
              ": num_groups must divide the channels of input: expected a divisor of ",
              input.sym_size(1), ", got ", groups);
}

// A statistic of each channel, or of each group.
inline void check_channels(const char* op, NamedTensor statistic, const Tensor& input,
                           const c10::SymInt& count) {
  check_device_of(op, statistic, {"input", input});
  TORCH_CHECK(TORCH_GUARD_OR_TRUE(statistic.tensor.sym_numel().sym_eq(count)), op, ": ",
              statistic.name, " must have a value for each channel: expected ", count, ", got ",
              statistic.tensor.sym_numel());
}

template <typename Op>
void check_channel_norm(const Op& op) {
  const char* name = name_of<Op>();
  check_input(name, op.input);
  if constexpr (Op::kIsBatch) {
    check_rank(name, op.input);
  } else {
    check_groups(name, op.input, op.groups);
  }
  if constexpr (requires { op.activation; }) {
    TORCH_CHECK(0 <= op.activation && op.activation < static_cast<int64_t>(kActivations.size()),
                name, ": activation must be known: expected a value from 0 to ",
                kActivations.size() - 1, ", got ", op.activation);
  }
  check_factors(name, op.input, op.weight, bias_of(op));
  const c10::SymIntArrayRef sizes = channel_sizes(op.input);
  if constexpr (requires { op.grad; }) {
    check_like_input(name, {"grad", op.grad}, op.input);
    const c10::SymInt count = Op::kIsBatch ? sizes[0] : op.input.sym_size(0) * groups_of(op);
    check_channels(name, {"mean", op.mean}, op.input, count);
    check_channels(name, {"rstd", op.rstd}, op.input, count);
  } else if constexpr (requires { op.variance; }) {
    TORCH_CHECK(is_given(op.mean) == is_given(op.variance), name,
                ": mean and variance must be given together: expected both or neither");
    if (is_given(op.mean)) check_channels(name, {"mean", *op.mean}, op.input, sizes[0]);
    if (is_given(op.mean)) check_channels(name, {"variance", *op.variance}, op.input, sizes[0]);
  }
}

// Whether samples lie one after the other, with their channels innermost, and not also in the order
// of dimensions.
inline bool is_channels_last(const Tensor& tensor) {
  const auto sizes = tensor.sym_sizes(), strides = tensor.sym_strides();
  const int64_t rank = tensor.dim();
  const auto has_order = [&](auto&& dim_at) {
    c10::SymInt stride = 1;
    for (int64_t i = 0; i < rank; ++i) {
      const int64_t d = dim_at(i);
      if (!TORCH_GUARD_OR_FALSE(sizes[d].sym_eq(1)) &&
          !TORCH_GUARD_OR_FALSE(strides[d].sym_eq(stride))) {
        return false;
      }
      stride = stride * sizes[d];
    }
    return true;
  };
  if (rank < 3 || has_order([&](int64_t i) { return rank - 1 - i; })) return false;
  return has_order([&](int64_t i) { return i == 0 ? 1 : i == rank - 1 ? 0 : rank - i; });
}

// Strides of a dense tensor with channels innermost.
template <typename Size>
std::vector<Size> channels_last_strides(c10::ArrayRef<Size> sizes) {
  std::vector<Size> strides(sizes.size());
  Size stride = 1;
  const auto set = [&](size_t d) {
    strides[d] = stride;
    stride = stride * sizes[d];
  };
  set(1);
  for (size_t d = sizes.size() - 1; d > 1; --d) set(d);
  set(0);
  return strides;
}

}  // namespace gpuopt::norm
