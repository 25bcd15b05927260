// Rows that do not fit in registers. They are measured and then read again, from the L2 cache where
// all rows that are being read fit in it. Few rows are shared by some blocks each: one launch
// measures parts of rows, and a second one merges the parts of a row.
#pragma once

#include "common/launch.cuh"
#include "norm/device/norm_access.cuh"
#include "norm/device/norm_moments.cuh"
#include "norm/norm_plan.h"

namespace gpuopt::norm {

// The part of a row that a block has.
struct Part {
  uint32_t row, number;
  int64_t begin, end;  // in units

  __device__ __forceinline__ Part(const Tiling& tiling, const Parts& parts) {
    uint32_t rest = blockIdx.x;
    number = parts.count.divmod(rest);
    row = rest;
    begin = number * parts.units;
    end = min(begin + parts.units, tiling.units);
  }
};

// Where parts have their two sums.
template <typename C>
__device__ __forceinline__ C* sums_of(const Parts& parts, const Part& part, uint32_t number) {
  return static_cast<C*>(parts.sums) + 2 * (int64_t{part.row} * parts.count.divisor + number);
}

// Calls f(first) for every kSlots units of this thread. They lie kLongThreads apart.
template <int kSlots, typename F>
__device__ __forceinline__ void for_each_tile(const Part& part, F&& f) {
  for (int64_t unit = part.begin + threadIdx.x; unit < part.end; unit += kSlots * kLongThreads) {
    f(unit);
  }
}

template <typename T, int kValues, int kSlots>
__device__ __forceinline__ void load_tile(const T* row, int64_t first, int64_t end,
                                          Vec<T, kValues> (&tile)[kSlots]) {
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int64_t unit = first + s * kLongThreads;
    tile[s] = load_unit<T, kValues>(row + unit * kValues, unit < end);
  }
}

// ---------------------------------------------------------------- forward

// A row of the input. Its sum with a row of the residual is stored when it is measured, and is what
// is read again.
template <typename T>
struct LongRow {
  const T* input;
  const T* residual = nullptr;
  T* sum = nullptr;

  __device__ __forceinline__ LongRow(const ForwardArgs& args, uint32_t row)
      : input(static_cast<const T*>(args.input) + args.input_rows.of(row)) {
    if (args.residual == nullptr) return;
    residual = static_cast<const T*>(args.residual) + args.residual_rows.of(row);
    sum = static_cast<T*>(args.sum) + row * args.tiling.length;
  }
  // What is subtracted from all values of a row before they are measured: one of them. A mean far
  // from 0 would be rounded to more than the deviations of small variances.
  __device__ __forceinline__ compute_t<T> shift(bool is_rms) const {
    if (is_rms) return 0;
    if (residual == nullptr) return to_compute(input[0]);
    return to_compute(from_compute<T>(to_compute(input[0]) + to_compute(residual[0])));
  }
  __device__ __forceinline__ const T* read_again() const { return sum != nullptr ? sum : input; }
};

// The moments of the shifted values of this thread.
template <typename T, int kValues, int kSlots>
__device__ __forceinline__ Moments<compute_t<T>> measure(const LongRow<T>& row, const Part& part,
                                                         bool is_rms) {
  using C = compute_t<T>;
  const C shift = row.shift(is_rms);
  Moments<C> moments;
  for_each_tile<kSlots>(part, [&](int64_t first) {
    Vec<T, kValues> tile[kSlots];
    load_tile<T, kValues>(row.input, first, part.end, tile);
    if (row.residual != nullptr) {
      Vec<T, kValues> others[kSlots];
      load_tile<T, kValues>(row.residual, first, part.end, others);
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const int64_t unit = first + s * kLongThreads;
        tile[s] = add_units<T, kValues>(tile[s], others[s]);
        if (unit < part.end) store_vec(row.sum + unit * kValues, tile[s]);
      }
    }
    const auto slots = static_cast<int>(
        min(int64_t{kSlots}, (part.end - first + kLongThreads - 1) / kLongThreads));
    Moments<C> found;
    found.count = static_cast<C>(slots * kValues);
    if (!is_rms) {
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        if (s >= slots) break;
#pragma unroll
        for (int i = 0; i < kValues; ++i) found.mean += to_compute(tile[s].values[i]) - shift;
      }
      found.mean /= found.count;
    }
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (s >= slots) break;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const C deviation = to_compute(tile[s].values[i]) - shift - found.mean;
        found.squares += deviation * deviation;
      }
    }
    moments.add(found);
  });
  return moments;
}

// The moments of a whole row, from the moments of its parts.
template <typename C>
__device__ __forceinline__ Moments<C> merge_parts(const Tiling& tiling, const Parts& parts,
                                                  const Part& part, const Group& block, int values,
                                                  C* shared) {
  Moments<C> found;
  for (uint32_t number = threadIdx.x; number < parts.count.divisor; number += kLongThreads) {
    const C* sums = sums_of<C>(parts, part, number);
    const int64_t units = min(parts.units, tiling.units - number * parts.units);
    found.add({static_cast<C>(units * values), sums[0], sums[1]});
  }
  return merge(block, found, static_cast<C>(tiling.length), shared);
}

template <typename T, int kValues, int kSlots>
__global__ void __launch_bounds__(kLongThreads, kLongBlocks)
    normalize_long_rows(const __grid_constant__ ForwardArgs args,
                        const __grid_constant__ Parts parts) {
  using C = compute_t<T>;
  __shared__ C shared[2 * kMaxWarps];
  const Tiling& tiling = args.tiling;
  const Parameters& parameters = args.parameters;
  const Group block{kLongThreads};
  const Part part(tiling, parts);
  grid_dependency_wait();
  launch_next();
  const LongRow<T> row(args, part.row);
  Moments<C> moments;
  if (parts.pass == Pass::kApply) {
    moments = merge_parts<C>(tiling, parts, part, block, kValues, shared);
  } else {
    const auto count = static_cast<C>((part.end - part.begin) * kValues);
    moments = merge(block, measure<T, kValues, kSlots>(row, part, args.is_rms), count, shared);
  }
  if (parts.pass == Pass::kMeasure) {
    C* sums = sums_of<C>(parts, part, part.number);
    if (threadIdx.x == 0) sums[0] = moments.mean, sums[1] = moments.squares;
    return;
  }
  const C mean = row.shift(args.is_rms) + moments.mean;
  const C rstd =
      inverse_root(moments.squares / static_cast<C>(tiling.length) + static_cast<C>(args.eps));
  if (threadIdx.x == 0 && part.number == 0) {
    if (args.mean != nullptr) static_cast<C*>(args.mean)[part.row] = mean;
    if (args.rstd != nullptr) static_cast<C*>(args.rstd)[part.row] = rstd;
  }
  T* out = static_cast<T*>(args.out) + int64_t{part.row} * tiling.length;
  for_each_tile<kSlots>(part, [&](int64_t first) {
    Vec<T, kValues> tile[kSlots];
    load_tile<T, kValues>(row.read_again(), first, part.end, tile);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int64_t unit = first + s * kLongThreads;
      if (unit >= part.end) break;
      C weights[kValues], biases[kValues];
      load_parameters<T>(parameters.weight, parameters.is_wide, unit * kValues, C{1}, weights);
      load_parameters<T>(parameters.bias, parameters.is_wide, unit * kValues, C{0}, biases);
      Vec<T, kValues> result;
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        const C normal = (to_compute(tile[s].values[i]) - mean) * rstd;
        result.values[i] = from_compute<T>(multiply_add(normal, weights[i], biases[i]));
      }
      store_vec(out + unit * kValues, result);
    }
  });
}

// ---------------------------------------------------------------- backward

// The gradient of the input. sums[0] is the mean of grad * weight over a row, sums[1] its mean
// product with the normalised values.
template <typename T, int kValues, int kSlots>
__global__ void __launch_bounds__(kLongThreads, kLongBlocks)
    differentiate_long_rows(const __grid_constant__ BackwardArgs args,
                            const __grid_constant__ Parts parts) {
  using C = compute_t<T>;
  __shared__ C shared[2 * kMaxWarps];
  const Tiling& tiling = args.tiling;
  const Parameters& parameters = args.parameters;
  const Group block{kLongThreads};
  const Part part(tiling, parts);
  grid_dependency_wait();
  launch_next();
  const T* input = static_cast<const T*>(args.input) + args.input_rows.of(part.row);
  const T* grad = static_cast<const T*>(args.grad) + args.grad_rows.of(part.row);
  T* out = static_cast<T*>(args.input_grad) + int64_t{part.row} * tiling.length;
  const C mean = args.mean != nullptr ? static_cast<const C*>(args.mean)[part.row] : C{0};
  const C rstd = static_cast<const C*>(args.rstd)[part.row];
  // Calls f(index within the unit, scaled gradient, normalised value), and after_unit(unit, what is
  // added to the gradient of the input).
  const auto for_each_value = [&](const T* sum_grad, auto&& f, auto&& after_unit) {
    for_each_tile<kSlots>(part, [&](int64_t first) {
      Vec<T, kValues> inputs[kSlots], grads[kSlots], added[kSlots] = {};
      load_tile<T, kValues>(input, first, part.end, inputs);
      load_tile<T, kValues>(grad, first, part.end, grads);
      if (sum_grad != nullptr) load_tile<T, kValues>(sum_grad, first, part.end, added);
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const int64_t unit = first + s * kLongThreads;
        if (unit >= part.end) break;
        C weights[kValues];
        load_parameters<T>(parameters.weight, parameters.is_wide, unit * kValues, C{1}, weights);
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          f(i, to_compute(grads[s].values[i]) * weights[i],
            (to_compute(inputs[s].values[i]) - mean) * rstd);
        }
        after_unit(unit, added[s]);
      }
    });
  };
  C sums[2] = {};
  if (parts.pass == Pass::kApply) {
    for (uint32_t number = threadIdx.x; number < parts.count.divisor; number += kLongThreads) {
      const C* of_part = sums_of<C>(parts, part, number);
      sums[0] += of_part[0], sums[1] += of_part[1];
    }
  } else {
    for_each_value(
        nullptr,
        [&](int, C scaled, C normal) {
          sums[0] += scaled;
          sums[1] = multiply_add(scaled, normal, sums[1]);
        },
        [](int64_t, const Vec<T, kValues>&) {});
  }
  add_up(block, sums, shared);
  if (parts.pass == Pass::kMeasure) {
    C* of_part = sums_of<C>(parts, part, part.number);
    if (threadIdx.x == 0) of_part[0] = sums[0], of_part[1] = sums[1];
    return;
  }
  const auto length = static_cast<C>(tiling.length);
  const C mean_scaled = args.mean != nullptr ? sums[0] / length : C{0};
  const C mean_product = sums[1] / length;
  const T* sum_grad = static_cast<const T*>(args.sum_grad);
  if (sum_grad != nullptr) sum_grad += int64_t{part.row} * tiling.length;
  C results[kValues];
  for_each_value(
      sum_grad,
      [&](int i, C scaled, C normal) {
        results[i] = rstd * (scaled - mean_scaled - normal * mean_product);
      },
      [&](int64_t unit, const Vec<T, kValues>& added) {
        Vec<T, kValues> rounded;
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          rounded.values[i] = from_compute<T>(results[i] + to_compute(added.values[i]));
        }
        store_vec(out + unit * kValues, rounded);
      });
}

}  // namespace gpuopt::norm
