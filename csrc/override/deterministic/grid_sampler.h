// Gradients of sampling images and volumes at a grid. The gradient of the input is a product with a
// sparse matrix, whose rows are the inputs. The gradient of the grid is a product of the rows that
// each sample reads. They are taken while torch.use_deterministic_algorithms is on.
#pragma once

#include <array>
#include <tuple>
#include <vector>

#include "override/deterministic/linear_maps.h"

namespace gpuopt::overriding {

// Where a dimension of a grid samples `size` inputs, and the derivative by the grid's coordinate.
struct Position {
  Tensor value, derivative;
};

enum class GridPadding : int64_t { kZeros, kBorder, kReflection };

inline Position sampled_position(const Tensor& coordinate, int64_t size, GridPadding padding,
                                 bool align_corners) {
  Tensor x = align_corners ? (coordinate + 1) / 2 * (size - 1) : ((coordinate + 1) * size - 1) / 2;
  Tensor slope = at::full_like(x, static_cast<double>(align_corners ? size - 1 : size) / 2);
  if (padding == GridPadding::kReflection) {
    const double low = align_corners ? 0 : -0.5, span = align_corners ? size - 1 : size;
    if (span == 0) return {at::zeros_like(x), at::zeros_like(x)};
    const Tensor shifted = x - low, distance = shifted.abs();
    const Tensor flips = (distance / span).floor_(), rest = distance.fmod(span);
    const Tensor is_odd = flips.remainder(2).eq(1);
    x = at::where(is_odd, span - rest, rest) + low;
    slope = at::where(shifted.lt(0).logical_xor_(is_odd), -slope, slope);
  }
  if (padding != GridPadding::kZeros) {
    slope = slope.masked_fill(x.le(0).logical_or_(x.ge(size - 1)), 0);
    x = x.clamp(0, size - 1);
  }
  return {x, slope};
}

inline std::tuple<Tensor, Tensor> grid_gradients(c10::DispatchKeySet key, const Tensor& grad,
                                                 const Tensor& input, const Tensor& grid,
                                                 bool is_nearest, GridPadding padding,
                                                 bool align_corners, std::array<bool, 2> mask) {
  const int64_t dims = input.dim() - 2, images = input.size(0), channels = input.size(1);
  const int64_t corners = is_nearest ? 1 : int64_t{1} << dims;
  const auto wide = wide_type(input);
  const int64_t plane = c10::multiply_integers(input.sizes().slice(2));
  const int64_t rows = images * plane, samples = grid.numel() / dims;
  const Tensor points = grid.reshape({images, -1, dims}).to(wide);
  // Of each sample and corner: the input, whether there is one, and the weights of the dimensions.
  Tensor index = at::arange(images, grid.options().dtype(at::kLong)).view({-1, 1, 1});
  Tensor inside = at::ones_like(index, index.options().dtype(at::kBool));
  std::vector<Tensor> weights, slopes;
  const Tensor corner = at::arange(corners, index.options());
  for (int64_t d = 0; d < dims; ++d) {
    const int64_t size = input.size(d + 2);
    const auto [value, slope] =
        sampled_position(points.select(2, dims - 1 - d), size, padding, align_corners);
    const Tensor x = value.unsqueeze(2).nan_to_num(-100.0);  // outside, as ATen has it
    const Tensor first = is_nearest ? x.round() : x.floor();
    const Tensor side = corner.div(int64_t{1} << d, "floor").remainder(2);
    const Tensor position = first + side;
    weights.push_back(1 - (position - x).abs());
    slopes.push_back(slope.unsqueeze(2) * (2 * side - 1));
    inside = inside.logical_and(position.ge(0)).logical_and_(position.le(size - 1));
    index = index * size + position.clamp(0, size - 1).to(at::kLong);
  }
  const Tensor outer = grad.to(wide).flatten(2).transpose(1, 2).reshape({samples, channels});
  Tensor of_input, of_grid;
  if (mask[0]) {
    Tensor weight = at::ones_like(inside, points.options());
    if (!is_nearest) {
      for (const Tensor& factor : weights) weight = weight * factor;
    }
    const Tensor entry = index.masked_fill(inside.logical_not(), rows).view({-1});
    const LinearMap map{entry, corners, weight.expand_as(index).reshape({-1}), true};
    of_input = map.gradient(key, outer, rows)
                   .reshape({images, plane, channels})
                   .transpose(1, 2)
                   .to(input.scalar_type())
                   .contiguous()
                   .view(input.sizes());
  }
  if (mask[1] && is_nearest) of_grid = at::zeros_like(grid, at::MemoryFormat::Contiguous);
  if (mask[1] && !is_nearest) {
    const Tensor inputs = input.to(wide).flatten(2).transpose(1, 2).reshape({rows, channels});
    const Tensor ptr = at::arange(samples + 1, index.options()).mul_(corners);
    const TensorOption none, entry = index.view({-1});
    const Tensor products =
        redispatch(spmm::Sddmm{ptr, entry, none, outer, inputs, false, none, none, none}, key)
            .view(index.sizes())
            .masked_fill(inside.logical_not(), 0);
    std::vector<Tensor> parts;  // of the coordinates, innermost dimension first
    for (int64_t d = dims - 1; d >= 0; --d) {
      Tensor part = products * slopes[d];
      for (int64_t other = 0; other < dims; ++other) {
        if (other != d) part = part * weights[other];
      }
      parts.push_back(part.sum(2));
    }
    of_grid = at::stack(parts, 2).to(grid.scalar_type()).view(grid.sizes());
  }
  return {of_input, of_grid};
}

template <typename AtenOp, Operator op, int64_t dims>
struct GridSamplerBackward {
  using Aten = AtenOp;
  static constexpr Operator kOperator = op;

  static Reason decide(const Tensor& grad, const Tensor& input, const Tensor& grid, int64_t mode,
                       int64_t padding, bool, std::array<bool, 2>) {
    const Reason known = decide_floats(grad, input, grid);
    if (known != Reason::kTaken) return known;
    // Mode 2 is bicubic.
    bool fit = is_plain(grad) && is_plain(input) && is_plain(grid) && (mode == 0 || mode == 1) &&
               0 <= padding && padding <= 2 && input.dim() == dims + 2 && grad.dim() == dims + 2 &&
               grid.dim() == dims + 2 && grid.size(-1) == dims && grid.size(0) == input.size(0) &&
               grad.size(0) == input.size(0) && grad.size(1) == input.size(1);
    for (int64_t d = 0; fit && d < dims; ++d) fit = grad.size(d + 2) == grid.size(d + 1);
    return taken_if(fit);
  }
  static std::tuple<Tensor, Tensor> run(c10::DispatchKeySet key, const Tensor& grad,
                                        const Tensor& input, const Tensor& grid, int64_t mode,
                                        int64_t padding, bool align_corners,
                                        std::array<bool, 2> mask) {
    return grid_gradients(key, grad, input, grid, mode == 1, static_cast<GridPadding>(padding),
                          align_corners, mask);
  }
};

GPUOPT_OPERATOR(GridSampler2dBackward, GridSamplerBackward, grid_sampler_2d_backward, 2);
GPUOPT_OPERATOR(GridSampler3dBackward, GridSamplerBackward, grid_sampler_3d_backward, 3);

// cuDNN's gradient adds in any order, and torch does not say so.
struct CudnnGridSamplerBackward {
  using Aten = at::_ops::cudnn_grid_sampler_backward;
  static constexpr Operator kOperator = operator_named("cudnn_grid_sampler_backward");

  static Reason decide(const Tensor& input, const Tensor& grid, const Tensor& grad) {
    return GridSampler2dBackward::decide(grad, input, grid, 0, 0, true, {true, true});
  }
  static std::tuple<Tensor, Tensor> run(c10::DispatchKeySet key, const Tensor& input,
                                        const Tensor& grid, const Tensor& grad) {
    return GridSampler2dBackward::run(key, grad, input, grid, 0, 0, true, {true, true});
  }
};

}  // namespace gpuopt::overriding
