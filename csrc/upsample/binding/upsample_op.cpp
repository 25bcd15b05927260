// gpuopt::upsample_nearest2d, upsample_nearest_exact2d and their backward: schemas, CPU and Meta
// kernels, and the .vec overloads, which call the others.
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "upsample/binding/upsample_check.h"
#include "upsample/binding/upsample_ops.h"

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  m.def(
      "upsample_nearest2d(Tensor self, SymInt[2] output_size, float? scales_h=None, "
      "float? scales_w=None) -> Tensor",
      tags);
  m.def(
      "upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) "
      "-> Tensor",
      tags);
  m.def(
      "upsample_nearest2d_backward(Tensor grad_output, SymInt[2] output_size, "
      "SymInt[4] input_size, float? scales_h=None, float? scales_w=None) -> Tensor",
      tags);
  m.def(
      "upsample_nearest_exact2d(Tensor self, SymInt[2] output_size, float? scales_h=None, "
      "float? scales_w=None) -> Tensor",
      tags);
  m.def(
      "upsample_nearest_exact2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) "
      "-> Tensor",
      tags);
  m.def(
      "upsample_nearest_exact2d_backward(Tensor grad_output, SymInt[2] output_size, "
      "SymInt[4] input_size, float? scales_h=None, float? scales_w=None) -> Tensor",
      tags);
}

namespace gpuopt::upsample {
namespace {

using at::IntArrayRef;
using at::OptionalSymIntArrayRef;
using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;
using Scale = std::optional<double>;
using ScaleFactors = std::optional<c10::ArrayRef<double>>;

// ---------------------------------------------------------------- CPU: ATen's kernels

// Calls ATen. Only ATen knows which dtypes it supports, so its error is caught and given the name
// of the operator.
template <typename Upsample>
Tensor call_aten(const char* op, const Tensor& values, Upsample upsample) {
  try {
    return upsample();
  } catch (const c10::NotImplementedError& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, op, " (CPU) is not implemented for ", values.scalar_type(),
                                ": expected another dtype (", error.what_without_backtrace(), ")");
  }
}

Tensor nearest_cpu(const Tensor& self, IntArrayRef output_size, Scale scales_h, Scale scales_w) {
  constexpr const char* op = "gpuopt::upsample_nearest2d";
  check_forward(op, self, output_size);
  return call_aten(op, self,
                   [&] { return at::upsample_nearest2d(self, output_size, scales_h, scales_w); });
}

Tensor nearest_backward_cpu(const Tensor& grad_output, IntArrayRef output_size,
                            IntArrayRef input_size, Scale scales_h, Scale scales_w) {
  constexpr const char* op = "gpuopt::upsample_nearest2d_backward";
  check_backward(op, grad_output, output_size, input_size);
  return call_aten(op, grad_output, [&] {
    return at::upsample_nearest2d_backward(grad_output, output_size, input_size, scales_h,
                                           scales_w);
  });
}

Tensor exact_cpu(const Tensor& self, IntArrayRef output_size, Scale scales_h, Scale scales_w) {
  constexpr const char* op = "gpuopt::upsample_nearest_exact2d";
  check_forward(op, self, output_size);
  return call_aten(op, self, [&] {
    return at::_upsample_nearest_exact2d(self, output_size, scales_h, scales_w);
  });
}

Tensor exact_backward_cpu(const Tensor& grad_output, IntArrayRef output_size,
                          IntArrayRef input_size, Scale scales_h, Scale scales_w) {
  constexpr const char* op = "gpuopt::upsample_nearest_exact2d_backward";
  check_backward(op, grad_output, output_size, input_size);
  return call_aten(op, grad_output, [&] {
    return at::_upsample_nearest_exact2d_backward(grad_output, output_size, input_size, scales_h,
                                                  scales_w);
  });
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  m.impl("upsample_nearest2d", nearest_cpu);
  m.impl("upsample_nearest2d_backward", nearest_backward_cpu);
  m.impl("upsample_nearest_exact2d", exact_cpu);
  m.impl("upsample_nearest_exact2d_backward", exact_backward_cpu);
}

// ---------------------------------------------------------------- Meta: shapes, maybe symbolic

// The memory format of the result. A size that depends on data has no value to ask for. The format
// is then channels_last only if the strides are exactly the channels_last strides.
at::MemoryFormat format_of(const Tensor& like) {
  const auto sizes = like.sym_sizes();
  if (std::all_of(sizes.begin(), sizes.end(), [](const SymInt& size) { return size.has_hint(); })) {
    return like.suggest_memory_format();
  }
  const bool channels_last =
      !like.is_contiguous_or_false() && like.is_contiguous_or_false(at::MemoryFormat::ChannelsLast);
  return channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

Tensor empty(const Tensor& like, const SymInt& height, const SymInt& width, const SymSizes& sizes) {
  const std::array<SymInt, 4> shape{sizes.batch, sizes.channels, height, width};
  return at::empty_symint(shape, like.options().memory_format(format_of(like)));
}

Tensor forward_meta(const char* op, const Tensor& self, SymIntArrayRef output_size) {
  const SymSizes sizes = check_forward(op, self, output_size);
  return empty(self, sizes.out_height, sizes.out_width, sizes);
}

Tensor backward_meta(const char* op, const Tensor& grad_output, SymIntArrayRef output_size,
                     SymIntArrayRef input_size) {
  const SymSizes sizes = check_backward(op, grad_output, output_size, input_size);
  return empty(grad_output, sizes.in_height, sizes.in_width, sizes);
}

Tensor nearest_meta(const Tensor& self, SymIntArrayRef output_size, Scale, Scale) {
  return forward_meta("gpuopt::upsample_nearest2d", self, output_size);
}

Tensor nearest_backward_meta(const Tensor& grad_output, SymIntArrayRef output_size,
                             SymIntArrayRef input_size, Scale, Scale) {
  return backward_meta("gpuopt::upsample_nearest2d_backward", grad_output, output_size, input_size);
}

Tensor exact_meta(const Tensor& self, SymIntArrayRef output_size, Scale, Scale) {
  return forward_meta("gpuopt::upsample_nearest_exact2d", self, output_size);
}

Tensor exact_backward_meta(const Tensor& grad_output, SymIntArrayRef output_size,
                           SymIntArrayRef input_size, Scale, Scale) {
  return backward_meta("gpuopt::upsample_nearest_exact2d_backward", grad_output, output_size,
                       input_size);
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  m.impl("upsample_nearest2d", nearest_meta);
  m.impl("upsample_nearest2d_backward", nearest_backward_meta);
  m.impl("upsample_nearest_exact2d", exact_meta);
  m.impl("upsample_nearest_exact2d_backward", exact_backward_meta);
}

// ---------------------------------------------------------------- .vec: sizes or factors

// floor(size * factor) in float64, as ATen's compute_output_size. With a whole factor the result
// stays an integer expression, which symbolic shapes can reason about.
SymInt scaled(const SymInt& size, double factor) {
  if (const auto value = size.maybe_as_int()) {
    return static_cast<int64_t>(static_cast<double>(*value) * factor);
  }
  if (factor == std::floor(factor)) return size * static_cast<int64_t>(factor);
  return SymInt((c10::SymFloat(size) * factor).toSymNodeImpl()->floor());
}

std::array<SymInt, 2> scaled_sizes(const char* op, SymIntArrayRef sizes,
                                   c10::ArrayRef<double> factors) {
  TORCH_CHECK(factors.size() == 2, op,
              ": scale_factors must be one for the height and one for the ",
              "width: expected 2 factors, got ", factors);
  for (const double factor : factors) {  // also makes the conversion to int64 defined
    TORCH_CHECK(factor > 0 && factor <= static_cast<double>(kMaxSize), op,
                ": scale_factors must be positive: expected factors above 0 and at most ", kMaxSize,
                ", got ", factors);
  }
  std::array<SymInt, 2> scaled_to{scaled(sizes[2], factors[0]), scaled(sizes[3], factors[1])};
  for (const SymInt& size : scaled_to) {
    TORCH_CHECK(!is_known_out_of_range(size), op,
                ": scale_factors must lead to an output: expected ",
                "a height and a width from 1 to ", kMaxSize, ", got factors ", factors,
                " of an input of shape ", sizes);
  }
  return scaled_to;
}

template <typename Upsample>
Tensor upsample_vec(const char* op, const Tensor& input, OptionalSymIntArrayRef output_size,
                    ScaleFactors scale_factors, const Upsample& upsample) {
  TORCH_CHECK(output_size.has_value() != scale_factors.has_value(), op,
              ": exactly one of output_size and scale_factors must be given: expected one, got ",
              output_size.has_value() ? "both" : "neither");
  const SymIntArrayRef sizes = input.sym_sizes();
  check_input(op, "input", sizes);
  if (output_size.has_value())
    return upsample.call(input, *output_size, std::nullopt, std::nullopt);
  const auto scaled_to = scaled_sizes(op, sizes, *scale_factors);
  return upsample.call(input, scaled_to, (*scale_factors)[0], (*scale_factors)[1]);
}

Tensor nearest_vec(const Tensor& input, OptionalSymIntArrayRef output_size,
                   ScaleFactors scale_factors) {
  return upsample_vec("gpuopt::upsample_nearest2d", input, output_size, scale_factors,
                      ops::upsample_nearest2d());
}

Tensor exact_vec(const Tensor& input, OptionalSymIntArrayRef output_size,
                 ScaleFactors scale_factors) {
  return upsample_vec("gpuopt::upsample_nearest_exact2d", input, output_size, scale_factors,
                      ops::upsample_nearest_exact2d());
}

TORCH_LIBRARY_IMPL(gpuopt, CompositeImplicitAutograd, m) {
  m.impl("upsample_nearest2d.vec", nearest_vec);
  m.impl("upsample_nearest_exact2d.vec", exact_vec);
}

// Without this, vmap does not see that the operator is a composite and loops over the examples.
TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  m.impl("upsample_nearest2d.vec", nearest_vec);
  m.impl("upsample_nearest_exact2d.vec", exact_vec);
}

}  // namespace
}  // namespace gpuopt::upsample
