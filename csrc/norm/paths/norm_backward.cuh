// Rows that fit in registers, backward. A block reads the rows of the input and of the gradient
// once, writes the gradient of the input, and adds up what its rows contribute to the gradients of
// weight and bias. A second kernel adds these partial gradients.
//
//   normal = (input - mean) * rstd          scaled = grad * weight
//   input_grad = rstd * (scaled - mean(scaled) - normal * mean(scaled * normal))
//   weight_grad = sum over the rows of grad * normal,  bias_grad = sum of grad
#pragma once

#include "common/launch.cuh"
#include "norm/device/norm_access.cuh"
#include "norm/device/norm_group.cuh"
#include "norm/norm_plan.h"

namespace gpuopt::norm {

// Adds the sums of all groups of a block, and writes them as the block's partial gradient. Every
// thread has the sums of its units. `shared` has a value for each thread and value of a unit.
template <typename C, int kValues, int kSlots>
__device__ __forceinline__ void store_partial(const Tiling& tiling, const Group& group,
                                              C (&sums)[kSlots][kValues], C* shared, C* partial) {
  const uint32_t width = group.lanes * kValues;  // values of a slot
  // Groups within a warp meet in its registers, so each set of threads in memory is a warp or a
  // larger group.
  const uint32_t sets = group.lanes < 32 ? blockDim.x / 32 : tiling.groups;
  const uint32_t set = group.lanes < 32 ? threadIdx.x / 32 : group.number;
  const bool is_first = group.lanes >= 32 || threadIdx.x % 32 < group.lanes;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int64_t begin = int64_t{s} * width;
    if (begin >= tiling.length) break;
    for (uint32_t step = group.lanes; step < 32; step *= 2) {
#pragma unroll
      for (int i = 0; i < kValues; ++i)
        sums[s][i] += shuffle_xor(sums[s][i], static_cast<int>(step));
    }
    __syncthreads();
    if (is_first) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) shared[set * width + group.lane * kValues + i] = sums[s][i];
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < width && begin + i < tiling.length; i += blockDim.x) {
      C sum = 0;
      for (uint32_t other = 0; other < sets; ++other) sum += shared[other * width + i];
      partial[begin + i] = sum;
    }
  }
}

template <typename T, int kValues, int kSlots, int kRows>
__global__ void __launch_bounds__(kBackwardThreads)
    differentiate_rows(const __grid_constant__ BackwardArgs args) {
  using C = compute_t<T>;
  __shared__ C exchanged[2][kMaxWarps * 2 * kRows];  // iterations alternate
  __shared__ C shared[kBackwardThreads * kValues];
  const Tiling& tiling = args.tiling;
  const Parameters& parameters = args.parameters;
  const Group group(tiling);
  const auto units = static_cast<uint32_t>(tiling.units);
  const auto length = static_cast<C>(tiling.length);
  const int64_t block_rows = int64_t{tiling.groups} * kRows;
  const bool has_partials = args.partials != nullptr;
  C weight_sums[kSlots][kValues] = {}, bias_sums[kSlots][kValues] = {};
  grid_dependency_wait();
  launch_next();

  int iteration = 0;
  for (int64_t begin = blockIdx.x * block_rows; begin < tiling.rows;
       begin += gridDim.x * block_rows, iteration ^= 1) {
    const auto row_of = [&](int k) {
      return begin + k * static_cast<int64_t>(tiling.groups) + group.number;
    };

    // Load. What is not valid is 0 and adds nothing.
    Vec<T, kValues> inputs[kRows][kSlots], grads[kRows][kSlots];
    C means[kRows] = {}, rstds[kRows] = {};
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const bool is_row = row_of(k) < tiling.rows;
      const int64_t row = is_row ? row_of(k) : 0;
      const T* input = static_cast<const T*>(args.input) + args.input_rows.of(row);
      const T* grad = static_cast<const T*>(args.grad) + args.grad_rows.of(row);
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const uint32_t unit = group.lane + s * group.lanes;
        inputs[k][s] = load_unit<T, kValues>(input + unit * kValues, is_row && unit < units);
        grads[k][s] = load_unit<T, kValues>(grad + unit * kValues, is_row && unit < units);
      }
      if (!is_row) continue;
      if (args.mean != nullptr) means[k] = static_cast<const C*>(args.mean)[row];
      rstds[k] = static_cast<const C*>(args.rstd)[row];
    }

    // Add up over rows and over columns.
    C sums[2 * kRows] = {};
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const uint32_t position = (group.lane + s * group.lanes) * kValues;
      if (position >= tiling.length) break;
      C weights[kValues];
      load_parameters<T>(parameters.weight, parameters.is_wide, position, C{1}, weights);
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          const C grad = to_compute(grads[k][s].values[i]);
          const C normal = (to_compute(inputs[k][s].values[i]) - means[k]) * rstds[k];
          const C scaled = grad * weights[i];
          sums[2 * k] += scaled;
          sums[2 * k + 1] = multiply_add(scaled, normal, sums[2 * k + 1]);
          weight_sums[s][i] = multiply_add(grad, normal, weight_sums[s][i]);
          bias_sums[s][i] += grad;
        }
      }
    }
    if (args.input_grad == nullptr) continue;
    add_up(group, sums, exchanged[iteration]);

    // Store.
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      forget_conversions(inputs[k]);
      forget_conversions(grads[k]);
    }
#pragma unroll
    for (int k = 0; k < 2 * kRows; ++k) sums[k] /= length;
    if (args.mean == nullptr) {
#pragma unroll
      for (int k = 0; k < kRows; ++k) sums[2 * k] = 0;
    }
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const uint32_t position = (group.lane + s * group.lanes) * kValues;
      if (position >= tiling.length) break;
      C weights[kValues];
      load_parameters<T>(parameters.weight, parameters.is_wide, position, C{1}, weights);
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        Vec<T, kValues> out;
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          const C scaled = to_compute(grads[k][s].values[i]) * weights[i];
          const C normal = (to_compute(inputs[k][s].values[i]) - means[k]) * rstds[k];
          out.values[i] =
              from_compute<T>(rstds[k] * (scaled - sums[2 * k] - normal * sums[2 * k + 1]));
        }
        if (row_of(k) < tiling.rows) {
          store_vec(static_cast<T*>(args.input_grad) + row_of(k) * tiling.length + position, out);
        }
      }
    }
  }

  if (!has_partials) return;
  C* partial = static_cast<C*>(args.partials) + int64_t{blockIdx.x} * 2 * tiling.length;
  store_partial(tiling, group, weight_sums, shared, partial);
  store_partial(tiling, group, bias_sums, shared, partial + tiling.length);
}

}  // namespace gpuopt::norm
