// The operators by ATen: on the CPU, and for tensors that the kernels do not support.
#pragma once

#include <ATen/ATen.h>

#include "binding/unfilled.h"
#include "pad/pad_check.h"

namespace gpuopt::pad {

inline at::Tensor by_aten(const Pad& op) {
  return op.mode == "constant" ? at::constant_pad_nd_symint(op.self, op.pad, op.value.value_or(0.0))
                               : at::pad_symint(op.self, op.pad, op.mode);
}
inline at::Tensor roll_by_aten(const Roll& op) {
  return at::roll_symint(op.self, op.shifts, op.dims);
}
inline at::Tensor cat_by_aten(const Cat& op) { return at::cat(op.tensors, op.dim); }

// Values of the border are added to the values that they repeat, one dimension after the other.
inline at::Tensor sum_borders(const PadBackward& op) {
  using at::Tensor;
  const Mode mode = checked_mode(name_of<PadBackward>(), op.mode);
  const at::IntArrayRef pad = C10_AS_INTARRAYREF_SLOW(op.pad);
  const bool is_half = op.grad.scalar_type() == at::kHalf || op.grad.scalar_type() == at::kBFloat16;
  Tensor sums = is_half ? op.grad.to(at::kFloat) : op.grad;
  for (size_t k = 0; k < pad.size() / 2; ++k) {
    const int64_t dim = dim_of_pair(sums.dim(), k), size = op.size[dim].expect_int();
    const int64_t before = std::max<int64_t>(pad[2 * k], 0);
    const int64_t after = std::max<int64_t>(pad[2 * k + 1], 0);
    // What was cropped has no gradient, but may be repeated on the other side.
    std::vector<int64_t> cropped(2 * (k + 1), 0);
    cropped[2 * k] = before - pad[2 * k];
    cropped[2 * k + 1] = after - pad[2 * k + 1];
    sums = at::constant_pad_nd(sums, cropped, 0);
    const Tensor core = sums.narrow(dim, before, size);
    const auto add = [&](int64_t begin, int64_t count, int64_t to) {
      if (count == 0) return;
      const Tensor border = sums.narrow(dim, begin, count);
      if (mode == Mode::kReplicate) {
        core.narrow(dim, to, 1).add_(border.sum(dim, /*keepdim=*/true));
      } else {
        core.narrow(dim, to, count).add_(mode == Mode::kReflect ? border.flip(dim) : border);
      }
    };
    const bool reflects = mode == Mode::kReflect, wraps = mode == Mode::kCircular;
    add(0, before, reflects ? 1 : wraps ? size - before : 0);
    add(before + size, after, reflects ? size - 1 - after : wraps ? 0 : size - 1);
    sums = core;
  }
  const auto format = op.grad.suggest_memory_format();
  return unfilled(sums.sizes(), op.grad.options().memory_format(format)).copy_(sums);
}

}  // namespace gpuopt::pad
