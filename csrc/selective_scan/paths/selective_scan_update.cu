// One position of a selective scan, as generation needs it. The state is read and written once, and
// everything else is small. Neighbouring lanes hold four states each and add up y by exchanges.
#include "common/index.h"
#include "common/launch.cuh"
#include "common/vec.cuh"
#include "selective_scan/device/selective_scan_math.cuh"
#include "selective_scan/selective_scan.h"

namespace gpuopt::selective {
namespace {

constexpr int kFour = kUpdateStates;

template <typename C>
using Four = Vec<C, kFour>;

template <typename C, typename T>
__device__ __forceinline__ Four<C> load_typed(const T* from, int64_t stride, int valid) {
  Four<C> result = {};
  if (valid == kFour && stride == 1 && reinterpret_cast<uintptr_t>(from) % sizeof(Four<T>) == 0) {
    const auto vec = load_vec<T, kFour>(from);
#pragma unroll
    for (int i = 0; i < kFour; ++i) result.values[i] = to_compute(vec.values[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kFour; ++i) {
      if (i < valid) result.values[i] = to_compute(from[i * stride]);
    }
  }
  return result;
}

template <typename T, typename C>
__device__ __forceinline__ void store_typed(T* to, int64_t stride, int valid,
                                            const Four<C>& states) {
  if (valid == kFour && stride == 1 && reinterpret_cast<uintptr_t>(to) % sizeof(Four<T>) == 0) {
    Four<T> vec;
#pragma unroll
    for (int i = 0; i < kFour; ++i) vec.values[i] = convert<T>(states.values[i]);
    store_vec<T, kFour>(to, vec);
  } else {
#pragma unroll
    for (int i = 0; i < kFour; ++i) {
      if (i < valid) to[i * stride] = convert<T>(states.values[i]);
    }
  }
}

// Calls f with a pointer to the operand's element `index` of its type.
template <typename F>
__device__ __forceinline__ auto at(const Operand& operand, int64_t index, F&& f) {
  return with_float(operand.dtype, [&](auto type) {
    return f(static_cast<decltype(type)*>(operand.data) + index);
  });
}

template <typename C>
__device__ __forceinline__ Four<C> load_four(const Operand& operand, int64_t index, int valid) {
  if constexpr (sizeof(C) == 8) {  // rare, and vectors of every type would spill registers
    Four<C> result = {};
#pragma unroll
    for (int i = 0; i < kFour; ++i) {
      if (i < valid) {
        result.values[i] = load_as<C>(operand.data, index + i * operand.strides[3], operand.dtype);
      }
    }
    return result;
  } else {
    return at(operand, index,
              [&](const auto* from) { return load_typed<C>(from, operand.strides[3], valid); });
  }
}

// Each group of `lanes` lanes updates one channel.
template <typename C>
__global__ __launch_bounds__(kThreads, 4) void update_states(const __grid_constant__ Update args,
                                                             int lanes) {
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const uint32_t number = blockIdx.x * (kThreads / lanes) + threadIdx.x / lanes;
  const auto channels = static_cast<uint32_t>(args.channels);
  const auto heads = static_cast<uint32_t>(args.heads);
  const bool own = number < args.batch * args.heads * args.channels;
  const uint32_t row = own ? number : 0;  // the other lanes take part in exchanges
  const int64_t channel = row % channels, head = row / channels % heads;
  const int64_t batch = row / channels / heads;
  const auto index = [&](const Operand& operand, int64_t of_head) {
    return batch * operand.strides[0] + of_head * operand.strides[1] + channel * operand.strides[2];
  };
  const auto value = [&](const Operand& operand) {
    return load_as<C>(operand.data, index(operand, head), operand.dtype);
  };

  launch_dependents();
  grid_dependency_wait();
  const C x = value(args.x);
  C dt = value(args.dt);
  if (args.dt_bias.data != nullptr) dt += value(args.dt_bias);
  if (args.softplus) dt = softplus(dt);
  const int64_t group = static_cast<uint32_t>(head) / static_cast<uint32_t>(args.heads_per_group);
  C y = 0;
  for (int64_t n = lane * kFour; own && n < args.states; n += lanes * kFour) {
    const int valid = static_cast<int>(min(args.states - n, int64_t{kFour}));
    const auto from = [&](const Operand& operand, int64_t of_head) {
      return index(operand, of_head) + n * operand.strides[3];
    };
    auto states = load_four<C>(args.state, from(args.state, head), valid);
    const auto A = load_four<C>(args.A, from(args.A, head), valid);
    const auto B = load_four<C>(args.B, from(args.B, group), valid);
    const auto c = load_four<C>(args.C, from(args.C, group), valid);
#pragma unroll
    for (int i = 0; i < kFour; ++i) {
      const C a = exp2_of(dt * (A.values[i] * kLog2E<C>));
      states.values[i] = multiply_add(a, states.values[i], dt * x * B.values[i]);
      y = multiply_add(c.values[i], states.values[i], y);
    }
    at(args.state, from(args.state, head),
       [&](auto* to) { store_typed(to, args.state.strides[3], valid, states); });
  }
  for (int bit = 1; bit < lanes; bit *= 2) y += shuffle_xor(y, bit);
  if (!own || lane > 0) return;
  if (args.D.data != nullptr) y = multiply_add(value(args.D), x, y);
  if (args.z.data != nullptr) {
    const C z = value(args.z);
    y *= z * sigmoid(z);
  }
  store_as<C>(args.out.data, index(args.out, head), args.out.dtype, y);
}

}  // namespace

cudaError_t launch(const UpdatePlan& plan, cudaStream_t stream) {
  const Update& args = plan.args;
  if (args.batch * args.heads * args.channels > kMaxIndex32) return cudaErrorInvalidValue;
  const auto kernel = args.wide ? update_states<double> : update_states<float>;
  return launch_kernel(kernel, plan.shape, stream, args, plan.lanes);
}

}  // namespace gpuopt::selective
