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

// Some rows of a block, as a thread reads them. What is not valid is 0 and adds nothing.
template <typename T, int kValues, int kSlots, int kRows>
struct BackwardTile {
  using C = compute_t<T>;
  Words<T, kValues> inputs[kRows][kSlots], grads[kRows][kSlots];
  C means[kRows], rstds[kRows];

  __device__ __forceinline__ void load(const BackwardArgs& args, const Group& group,
                                       uint32_t first) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const uint32_t row = first + k * args.tiling.groups;
      const bool is_row = row < args.tiling.rows;
      const T* input = static_cast<const T*>(args.input) + args.input_rows.of(row);
      const T* grad = static_cast<const T*>(args.grad) + args.grad_rows.of(row);
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const uint32_t position = (group.lane + s * group.lanes) * kValues;
        const bool is_valid = is_row && position < static_cast<uint32_t>(args.tiling.length);
        inputs[k][s] = load_words<T, kValues>(input + position, is_valid);
        grads[k][s] = load_words<T, kValues>(grad + position, is_valid);
      }
      means[k] = is_row && args.mean != nullptr ? static_cast<const C*>(args.mean)[row] : C{0};
      rstds[k] = is_row ? static_cast<const C*>(args.rstd)[row] : C{0};
    }
  }
};

// With kPrefetch, the next rows are in flight while a row is computed.
template <typename T, int kValues, int kSlots, int kRows, bool kPrefetch>
__global__ void __launch_bounds__(kBackwardThreads)
    differentiate_rows(const __grid_constant__ BackwardArgs args) {
  using C = compute_t<T>;
  __shared__ C exchanged[2][kMaxWarps * 2 * kRows];  // iterations alternate
  __shared__ C shared[kBackwardThreads * kValues];
  const Tiling& tiling = args.tiling;
  const Parameters& parameters = args.parameters;
  const Group group(tiling);
  const auto length = static_cast<uint32_t>(tiling.length);
  const C share = 1 / static_cast<C>(length);
  const uint32_t step = gridDim.x * tiling.groups * kRows;
  uint32_t begin = blockIdx.x * tiling.groups * kRows;
  C weight_sums[kSlots][kValues] = {}, bias_sums[kSlots][kValues] = {};
  grid_dependency_wait();
  launch_next();
  BackwardTile<T, kValues, kSlots, kRows> tile;
  if constexpr (kPrefetch) tile.load(args, group, begin + group.number);
#pragma unroll 1
  for (int iteration = 0; begin < tiling.rows; begin += step, iteration ^= 1) {
    if constexpr (!kPrefetch) tile.load(args, group, begin + group.number);

    C scaled[kRows][kSlots][kValues], normal[kRows][kSlots][kValues];
    C sums[2 * kRows] = {}, rstds[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      rstds[k] = tile.rstds[k];
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        widen<T, kValues>(tile.grads[k][s], scaled[k][s]);
        widen<T, kValues>(tile.inputs[k][s], normal[k][s]);
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          normal[k][s][i] = (normal[k][s][i] - tile.means[k]) * rstds[k];
        }
      }
    }
    if constexpr (kPrefetch) tile.load(args, group, begin + step + group.number);

    // Add up over rows and over columns.
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const uint32_t position = (group.lane + s * group.lanes) * kValues;
      if (position >= length) break;
      C weights[kValues];
      load_parameters<T>(parameters.weight, parameters.is_wide, position, C{1}, weights);
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          C& value = scaled[k][s][i];
          weight_sums[s][i] = multiply_add(value, normal[k][s][i], weight_sums[s][i]);
          bias_sums[s][i] += value;
          value *= weights[i];
          sums[2 * k] += value;
          sums[2 * k + 1] = multiply_add(value, normal[k][s][i], sums[2 * k + 1]);
        }
      }
    }
    if (args.input_grad == nullptr) continue;
    add_up(group, sums, exchanged[iteration]);

    // Store.
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const uint32_t row = begin + group.number + k * tiling.groups;
      if (row >= tiling.rows) break;
      const C mean_scaled = args.mean != nullptr ? sums[2 * k] * share : C{0};
      const C mean_product = sums[2 * k + 1] * share;
      T* out = static_cast<T*>(args.input_grad) + int64_t{row} * length;
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const uint32_t position = (group.lane + s * group.lanes) * kValues;
        if (position >= length) break;
        Vec<T, kValues> result;
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          const C inner = scaled[k][s][i] - mean_scaled - normal[k][s][i] * mean_product;
          result.values[i] = from_compute<T>(rstds[k] * inner);
        }
        store_vec(out + position, result);
      }
    }
  }

  if (args.partials == nullptr) return;
  C* partial = static_cast<C*>(args.partials) + int64_t{blockIdx.x} * 2 * tiling.length;
  store_partial(tiling, group, weight_sums, shared, partial);
  if (args.has_bias) store_partial(tiling, group, bias_sums, shared, partial + tiling.length);
}

}  // namespace gpuopt::norm
