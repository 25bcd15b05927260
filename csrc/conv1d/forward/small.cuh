// Small problems: one thread per output, or several if an output has many multiply-adds. A launch
// of 1 to 2 us mostly waits for code and memory, so the code is short, and all inputs and taps are
// in flight at once.
#pragma once

#include "conv1d/device/rows.cuh"
#include "conv1d/forward/small.h"

namespace gpuopt::conv1d {

// kProducts is the most multiply-adds per thread. kOneChannel means one input channel per group.
// Without a number of blocks in the launch bounds, ptxas allots too few registers to keep all loads
// in flight.
template <typename T, int kProducts, bool kOneChannel>
__global__ void __launch_bounds__(kMostSmallThreads, 1)
    small_kernel(const __grid_constant__ SmallArgs args) {
  launch_dependents();
  grid_dependency_wait();
  const uint32_t lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const uint32_t width = 1u << args.width_shift, part = lane >> args.width_shift;
  const uint32_t index = (warp << args.width_shift) + (lane & (width - 1));
  const bool works = index < args.outputs;
  uint32_t rest = works ? index : 0;
  const auto inner = static_cast<int32_t>(args.inner.divmod(rest));
  const auto outer = static_cast<int32_t>(args.outer.divmod(rest));
  const auto image = static_cast<int32_t>(rest);
  const int32_t position = args.channels_first ? outer : inner;
  const int32_t channel = args.channels_first ? inner : outer;
  auto quotient = static_cast<uint32_t>(channel);
  const auto out = static_cast<int32_t>(args.group_channels.divmod(quotient));
  const auto group = static_cast<int32_t>(quotient);
  const T bias =
      load_if(static_cast<const T*>(args.bias) + channel * args.bias_stride, args.bias != nullptr);

  // The first multiply-add of this thread's part.
  const int32_t begin = static_cast<int32_t>(part) * args.part_products;
  const int32_t left = min(args.products - begin, args.part_products);
  const auto taps_of_channel = static_cast<int32_t>(args.taps.divisor);
  int32_t tap = begin, in_channel = 0;
  if constexpr (!kOneChannel) {
    quotient = static_cast<uint32_t>(begin);
    tap = static_cast<int32_t>(args.taps.divmod(quotient));
    in_channel = static_cast<int32_t>(quotient);
  }
  const int32_t first = position * args.step - args.padding;
  int32_t under = first + tap * args.dilation;
  const T* from = static_cast<const T*>(args.from) + image * args.from_batch +
                  group * args.from_group + in_channel * args.from_channel +
                  under * args.from_stride;
  const T* weight = static_cast<const T*>(args.weight) + group * args.weight_group +
                    out * args.weight_out + in_channel * args.weight_in + tap * args.weight_tap;

  // Load.
  T values[kProducts], taps[kProducts];
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
    const bool valid =
        i < left && static_cast<uint32_t>(under) < static_cast<uint32_t>(args.from_size);
    values[i] = load_if(from, valid);
    taps[i] = load_if(weight, i < left);
    under += args.dilation;
    from += args.dilation * args.from_stride;
    weight += args.weight_tap;
    if constexpr (!kOneChannel) {
      if (++tap == taps_of_channel) {
        tap = 0;
        under = first;
        from += args.from_channel - taps_of_channel * args.dilation * args.from_stride;
        weight += args.weight_in - taps_of_channel * args.weight_tap;
      }
    }
  }
  // Multiply and reduce.
  compute_t<T> sum[1] = {};
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
    sum[0] = multiply_add(to_compute(taps[i]), to_compute(values[i]), sum[0]);
  }
#pragma unroll 1
  for (uint32_t apart = width; apart < 32; apart *= 2) {
    sum[0] += __shfl_down_sync(0xffffffffu, sum[0], apart);
  }
  // Store.
  if (part > 0 || !works) return;
  if (args.bias != nullptr) sum[0] += to_compute(bias);
  activate<T>(sum, args.activation);
  static_cast<T*>(
      args.to)[image * args.to_batch + channel * args.to_channel + position * args.to_stride] =
      from_compute<T>(sum[0]);
}

template <typename T, bool kOneChannel>
auto kernel_of_products(int products) {
  return products <= 8    ? small_kernel<T, 8, kOneChannel>
         : products <= 16 ? small_kernel<T, 16, kOneChannel>
                          : small_kernel<T, 24, kOneChannel>;
}
template <typename T>
auto kernel_of(const SmallPlan& plan) {
  return plan.one_channel ? kernel_of_products<T, true>(plan.products)
                          : kernel_of_products<T, false>(plan.products);
}

}  // namespace gpuopt::conv1d
