// Argument checks of the forward and backward, which return the sizes of the call. The CUDA, CPU
// and Meta kernels and vmap share them. Exception types are the same as in ATen.
#pragma once

#include <limits>

#include "binding/check.h"
#include "upsample/binding/upsample_ops.h"

namespace gpuopt::upsample {

using Ops = OpList<UpsampleNearest2d, UpsampleNearest2dBackward, UpsampleNearestExact2d,
                   UpsampleNearestExact2dBackward>;

// Largest height or width: indices are float32 and int32, as in ATen.
constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();

// The sizes of a checked call. Size is int64_t, or c10::SymInt where sizes may be symbolic.
template <typename Size>
struct BasicSizes {
  Size batch, channels, in_height, in_width, out_height, out_width;
};
using Sizes = BasicSizes<int64_t>;
using SymSizes = BasicSizes<c10::SymInt>;

// Whether Op is an Upsample2dBackward.
template <typename Op>
constexpr bool kIsBackward = requires(const Op& op) { op.input_size; };

inline bool is_known_different(int64_t a, int64_t b) { return a != b; }
inline bool is_known_different(const c10::SymInt& a, const c10::SymInt& b) {
  return TORCH_GUARD_OR_FALSE(a.sym_ne(b));
}

// The kernels check the upper limit of a symbolic size, since they see its value. A guard here
// would force everyone who exports with a dynamic dimension to state the limit.
inline bool is_known_out_of_range(int64_t size) { return size < 1 || size > kMaxSize; }
inline bool is_known_out_of_range(const c10::SymInt& size) {
  const auto value = size.maybe_as_int();
  return value.has_value() ? is_known_out_of_range(*value) : TORCH_GUARD_OR_FALSE(size.sym_lt(1));
}

template <typename Size>
void check_output_size(const char* op, c10::ArrayRef<Size> output_size) {
  TORCH_CHECK(output_size.size() == 2, op,
              ": output_size must be a height and a width: expected 2 sizes, got ", output_size);
  TORCH_CHECK(!is_known_out_of_range(output_size[0]) && !is_known_out_of_range(output_size[1]), op,
              ": output_size must be positive: expected sizes from 1 to ", kMaxSize, ", got ",
              output_size);
}

// Checks the shape of the forward's input. It may have no channels, which only the backward allows.
template <typename Size>
void check_input_size(const char* op, const char* name, c10::ArrayRef<Size> sizes) {
  TORCH_CHECK(sizes.size() == 4, op, ": ", name, " must be (N, C, H, W): expected 4 dimensions, ",
              "got shape ", sizes);
  TORCH_CHECK(!is_known_out_of_range(sizes[2]) && !is_known_out_of_range(sizes[3]), op, ": ", name,
              " must have a height and a width: expected sizes from 1 to ", kMaxSize,
              " in dimensions 2 and 3, got shape ", sizes);
}

// Checks the input of a forward call.
template <typename Size>
void check_input(const char* op, const char* name, c10::ArrayRef<Size> sizes) {
  check_input_size(op, name, sizes);
  TORCH_CHECK(!is_known_zero(sizes[1]), op, ": ", name, " must have channels: expected size 1 or ",
              "more in dimension 1, got shape ", sizes);
}

// Unlike the forward, the backward supports 0 channels, as in ATen.
template <typename Size>
BasicSizes<Size> check_backward(const char* op, const at::Tensor& grad_output,
                                c10::ArrayRef<Size> output_size, c10::ArrayRef<Size> input_size) {
  const auto sizes = sizes_of<Size>(grad_output);
  check_output_size(op, output_size);
  check_input_size(op, "input_size", input_size);
  TORCH_CHECK(sizes.size() == 4 && !is_known_different(sizes[0], input_size[0]) &&
                  !is_known_different(sizes[1], input_size[1]) &&
                  !is_known_different(sizes[2], output_size[0]) &&
                  !is_known_different(sizes[3], output_size[1]),
              op, ": grad_output must have the shape of the output: expected (", input_size[0],
              ", ", input_size[1], ", ", output_size[0], ", ", output_size[1], "), got shape ",
              sizes);
  return {sizes[0], sizes[1], input_size[2], input_size[3], output_size[0], output_size[1]};
}

// Sizes of an argument. Kernels that need values refuse symbolic ones.
template <typename Size>
c10::ArrayRef<Size> sizes_as(c10::SymIntArrayRef sizes) {
  if constexpr (std::is_same_v<Size, c10::SymInt>) {
    return sizes;
  } else {
    return C10_AS_INTARRAYREF_SLOW(sizes);
  }
}

template <typename Size, typename Op>
BasicSizes<Size> check(const Op& op) {
  const char* name = name_of<Op>();
  const auto output_size = sizes_as<Size>(op.output_size);
  if constexpr (kIsBackward<Op>) {
    return check_backward(name, op.from, output_size, sizes_as<Size>(op.input_size));
  } else {
    const auto sizes = sizes_of<Size>(op.from);
    check_output_size(name, output_size);
    check_input(name, "input", sizes);
    return {sizes[0], sizes[1], sizes[2], sizes[3], output_size[0], output_size[1]};
  }
}

}  // namespace gpuopt::upsample
