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
  const uint32_t first = blockIdx.x * (tiling.groups * kRows) + group.number;
  const auto length = static_cast<uint32_t>(tiling.length);
  const auto row_of = [&](int k) { return first + k * tiling.groups; };
  const auto position_of = [&](int s) { return (group.lane + s * group.lanes) * kValues; };
  const auto is_valid = [&](int k, int s) {
    return position_of(s) < length && row_of(k) < tiling.rows;
  };
  grid_dependency_wait();
  launch_next();

  // Load.
  Words<T, kValues> units[kRows][kSlots];
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    const T* row = static_cast<const T*>(args.input) + args.input_rows.of(row_of(k));
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      units[k][s] = load_words<T, kValues>(row + position_of(s), is_valid(k, s));
    }
  }

  if (args.residual != nullptr) {
    // More units at once would take more registers than the norm does.
    constexpr int kUnits = kRows * kSlots, kAtOnce = kRows > 1 ? kRows : (kSlots + 1) / 2;
    const T* residuals[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      residuals[k] = static_cast<const T*>(args.residual) + args.residual_rows.of(row_of(k));
    }
#pragma unroll
    for (int first = 0; first < kUnits; first += kAtOnce) {
      Words<T, kValues> others[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int k = (first + j) / kSlots, s = (first + j) % kSlots;
        others[j] = load_words<T, kValues>(residuals[k] + position_of(s), is_valid(k, s));
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int k = (first + j) / kSlots, s = (first + j) % kSlots;
        units[k][s] = add_units<T, kValues>(units[k][s], others[j]);
        T* sums = static_cast<T*>(args.sum) + int64_t{row_of(k)} * length;
        if (!is_valid(k, s)) continue;
        *reinterpret_cast<Words<T, kValues>*>(sums + position_of(s)) = units[k][s];
      }
    }
  }

  // Measure. The values become deviations from the mean.
  C values[kRows][kSlots][kValues], means[kRows] = {}, rstds[kRows] = {};
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) widen<T, kValues>(units[k][s], values[k][s]);
  }
  if (!args.is_rms) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
#pragma unroll
      for (int s = 0; s < kSlots; ++s) means[k] += sum_of(values[k][s]);
    }
    add_up(group, means, shared[0]);
#pragma unroll
    for (int k = 0; k < kRows; ++k) means[k] /= static_cast<C>(length);
  }
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      C squares = 0;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        values[k][s][i] -= means[k];
        squares = multiply_add(values[k][s][i], values[k][s][i], squares);
      }
      rstds[k] += is_valid(k, s) ? squares : C{0};
    }
  }
  add_up(group, rstds, shared[1]);
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    rstds[k] = inverse_root(rstds[k] / static_cast<C>(length) + static_cast<C>(args.eps));
    if (group.lane != 0 || row_of(k) >= tiling.rows) continue;
    if (args.mean != nullptr) static_cast<C*>(args.mean)[row_of(k)] = means[k];
    if (args.rstd != nullptr) static_cast<C*>(args.rstd)[row_of(k)] = rstds[k];
  }

  // Scale and store.
  const Parameters& parameters = args.parameters;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const uint32_t position = position_of(s);
    if (position >= length) break;
    C weights[kValues], biases[kValues];
    load_parameters<T>(parameters.weight, parameters.is_wide, position, C{1}, weights);
    load_parameters<T>(parameters.bias, parameters.is_wide, position, C{0}, biases);
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (row_of(k) >= tiling.rows) break;
      Vec<T, kValues> out;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        out.values[i] =
            from_compute<T>(multiply_add(values[k][s][i] * rstds[k], weights[i], biases[i]));
      }
      store_vec(static_cast<T*>(args.out) + int64_t{row_of(k)} * length + position, out);
    }
  }
}

}  // namespace gpuopt::norm
