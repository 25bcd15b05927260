// gpuopt::upsample_nearest2d, upsample_nearest_exact2d and their backward: schemas, CPU and Meta
// kernels, and the .vec overloads, which call the others.
#include <algorithm>
#include <array>
#include <cmath>

#include "binding/aten.h"
#include "upsample/binding/upsample_check.h"

namespace gpuopt::upsample {
namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  Ops::for_each([&]<typename Op>() { define<Op>(m); });
  define<UpsampleNearest2dVec, UpsampleNearestExact2dVec>(m);
}

// ---------------------------------------------------------------- CPU: ATen's kernels

Tensor by_aten(const UpsampleNearest2d& op) {
  return at::upsample_nearest2d_symint(op.from, op.output_size, op.scales_h, op.scales_w);
}
Tensor by_aten(const UpsampleNearest2dBackward& op) {
  return at::upsample_nearest2d_backward_symint(op.from, op.output_size, op.input_size, op.scales_h,
                                                op.scales_w);
}
Tensor by_aten(const UpsampleNearestExact2d& op) {
  return at::_upsample_nearest_exact2d_symint(op.from, op.output_size, op.scales_h, op.scales_w);
}
Tensor by_aten(const UpsampleNearestExact2dBackward& op) {
  return at::_upsample_nearest_exact2d_backward_symint(op.from, op.output_size, op.input_size,
                                                       op.scales_h, op.scales_w);
}

template <typename Op>
Tensor upsample_cpu(const Op& op) {
  check<int64_t>(op);
  return call_aten(name_of<Op>(), op.from.scalar_type(), "", [&] { return by_aten(op); });
}

TORCH_LIBRARY_IMPL(gpuopt, CPU, m) {
  Ops::for_each([&]<typename Op>() { impl<Op, upsample_cpu<Op>>(m); });
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

template <typename Op>
Tensor upsample_meta(const Op& op) {
  const SymSizes sizes = check<SymInt>(op);
  const SymInt& height = kIsBackward<Op> ? sizes.in_height : sizes.out_height;
  const SymInt& width = kIsBackward<Op> ? sizes.in_width : sizes.out_width;
  const std::array<SymInt, 4> shape{sizes.batch, sizes.channels, height, width};
  return at::empty_symint(shape, op.from.options().memory_format(format_of(op.from)));
}

TORCH_LIBRARY_IMPL(gpuopt, Meta, m) {
  Ops::for_each([&]<typename Op>() { impl<Op, upsample_meta<Op>>(m); });
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

template <bool exact>
Tensor upsample_vec(const Upsample2dVec<exact>& op) {
  const char* name = name_of<Upsample2dVec<exact>>();
  const auto& [from, output_size, factors] = op;
  TORCH_CHECK(output_size.has_value() != factors.has_value(), name,
              ": exactly one of output_size and scale_factors must be given: expected one, got ",
              output_size.has_value() ? "both" : "neither");
  const SymIntArrayRef sizes = from.sym_sizes();
  check_input(name, "input", sizes);
  if (output_size.has_value()) {
    return call(Upsample2d<exact>{from, *output_size, std::nullopt, std::nullopt});
  }
  const auto scaled_to = scaled_sizes(name, sizes, *factors);
  return call(Upsample2d<exact>{from, scaled_to, (*factors)[0], (*factors)[1]});
}

TORCH_LIBRARY_IMPL(gpuopt, CompositeImplicitAutograd, m) {
  impl<UpsampleNearest2dVec, upsample_vec<false>>(m);
  impl<UpsampleNearestExact2dVec, upsample_vec<true>>(m);
}

// Without this, vmap does not see that the operator is a composite and loops over the examples.
TORCH_LIBRARY_IMPL(gpuopt, FuncTorchBatched, m) {
  impl<UpsampleNearest2dVec, upsample_vec<false>>(m);
  impl<UpsampleNearestExact2dVec, upsample_vec<true>>(m);
}

}  // namespace
}  // namespace gpuopt::upsample
