// Rows that fit in registers, forward. A group of threads reads a row once, and keeps it as it was
// read. Two passes over the registers find the mean and then the variance.
//
//   row 0   | u0  u1  u2  u3 | u4  u5  u6  u7 | u8  u9  u10 u11 |    units of 16 bytes
//   lane      0   1   2   3    0   1   2   3    0   1   2   3        slots 0, 1 and 2
//   row 1     lanes 4 to 7, and so on: a warp has 8 rows of 96 values of a half type
#pragma once

#include "common/launch.cuh"
#include "norm/device/norm_access.cuh"
#include "norm/device/norm_group.cuh"
#include "norm/norm_plan.h"

namespace gpuopt::norm {

// A group has kRows rows at once. They are as far apart as the block has groups, so that a block
// reads neighbouring rows.
template <typename T, int kValues, int kSlots, int kRows>
__global__ void __launch_bounds__(kForwardThreads)
    normalize_rows(const __grid_constant__ ForwardArgs args) {
  using C = compute_t<T>;
  __shared__ C shared[2][kMaxWarps * kRows];
  const Tiling& tiling = args.tiling;
  const Group group(tiling);
  const int64_t first = int64_t{blockIdx.x} * tiling.groups * kRows + group.number;
  const auto units = static_cast<uint32_t>(tiling.units);
  const auto row_of = [&](int k) { return first + k * static_cast<int64_t>(tiling.groups); };
  const auto is_valid = [&](int k, int s) {
    return group.lane + s * group.lanes < units && row_of(k) < tiling.rows;
  };
  grid_dependency_wait();
  launch_next();

  // Load.
  Vec<T, kValues> rows[kRows][kSlots];
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    const T* row = static_cast<const T*>(args.input) + args.input_rows.of(row_of(k));
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const uint32_t unit = group.lane + s * group.lanes;
      rows[k][s] = load_unit<T, kValues>(row + unit * kValues, is_valid(k, s));
    }
  }

  // Measure.
  const auto length = static_cast<C>(tiling.length);
  C means[kRows] = {}, rstds[kRows] = {};
  if (!args.is_rms) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        C sum = 0;
#pragma unroll
        for (int i = 0; i < kValues; ++i) sum += to_compute(rows[k][s].values[i]);
        means[k] += sum;
      }
    }
    add_up(group, means, shared[0]);
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      means[k] /= length;
      forget_conversions(rows[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      C sum = 0;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const C deviation = to_compute(rows[k][s].values[i]) - means[k];
        sum += deviation * deviation;
      }
      rstds[k] += is_valid(k, s) ? sum : C{0};
    }
  }
  add_up(group, rstds, shared[1]);
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    forget_conversions(rows[k]);
    rstds[k] = inverse_root(rstds[k] / length + static_cast<C>(args.eps));
    if (group.lane != 0 || row_of(k) >= tiling.rows) continue;
    if (args.mean != nullptr) static_cast<C*>(args.mean)[row_of(k)] = means[k];
    if (args.rstd != nullptr) static_cast<C*>(args.rstd)[row_of(k)] = rstds[k];
  }

  // Scale and store.
  const Parameters& parameters = args.parameters;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const uint32_t position = (group.lane + s * group.lanes) * kValues;
    if (position >= tiling.length) break;
    C weights[kValues], biases[kValues];
    load_parameters<T>(parameters.weight, parameters.is_wide, position, C{1}, weights);
    load_parameters<T>(parameters.bias, parameters.is_wide, position, C{0}, biases);
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      Vec<T, kValues> out;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const C normal = (to_compute(rows[k][s].values[i]) - means[k]) * rstds[k];
        out.values[i] = from_compute<T>(multiply_add(normal, weights[i], biases[i]));
      }
      if (row_of(k) < tiling.rows) {
        store_vec(static_cast<T*>(args.out) + row_of(k) * tiling.length + position, out);
      }
    }
  }
}

}  // namespace gpuopt::norm
