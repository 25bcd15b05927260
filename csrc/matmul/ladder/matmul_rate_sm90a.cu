// The kernels of matmul_rate.h.
#include "common/launch.cuh"
#include "common/types.cuh"
#include "common/wgmma.cuh"
#include "matmul/device/matmul_tile.cuh"
#include "matmul/ladder/matmul_rate.h"

namespace gpuopt::matmul {
namespace {

struct Moment {
  int64_t cycles, ns;
};
__device__ __forceinline__ Moment now() {
  Moment moment{};
#if defined(__CUDA_ARCH__)
  asm volatile("mov.u64 %0, %%clock64;\nmov.u64 %1, %%globaltimer;"
               : "=l"(moment.cycles), "=l"(moment.ns)::"memory");
#endif
  return moment;
}

// Calls `step` and stores how long block 0 took. The sums are stored where the compiler cannot know
// that nobody reads them.
template <int kSums, typename Step>
__device__ __forceinline__ void repeat(float (&sums)[kSums], int iterations, int64_t* clock,
                                       float* sink, Step step) {
  const Moment begin = now();
#pragma unroll 1
  for (int i = 0; i < iterations; ++i) step();
  const Moment end = now();
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    clock[0] = end.cycles - begin.cycles;
    clock[1] = end.ns - begin.ns;
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum += sums[i];
  if (sum == 1) *sink = sum;
}

__global__ void __launch_bounds__(1024) fma_kernel(int iterations, int64_t* clock, float* sink) {
  float sums[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[i] = static_cast<float>(threadIdx.x + i);
  const float a = 0.5f + static_cast<float>(blockIdx.x) * 1e-6f, b = 0.25f;
  repeat(sums, iterations, clock, sink, [&] {
#pragma unroll
    for (int q = 0; q < 128; ++q) sums[q % 8] = fmaf(sums[q % 8], a, b);
  });
}

// Two warpgroups.
template <Unit kUnit>
__global__ void __launch_bounds__(256) wgmma_kernel(int iterations, int64_t* clock, float* sink) {
  constexpr int kSums = kUnit == Unit::kBf16 ? 128 : 64;
  for (int i = threadIdx.x; i < 64 << 10 >> 4; i += 256) matmul_memory[i] = uint4{};
  __syncthreads();
  float sums[kSums] = {};
  const uint32_t words[4] = {};
  const uint64_t a = describe_operand(matmul_memory);
  const uint64_t b = describe_operand(matmul_memory + 1024, 8192);
  repeat(sums, iterations, clock, sink, [&] {
    begin_products();
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      if constexpr (kUnit == Unit::kBf16) {
        multiply_operands<__nv_bfloat16>(sums, a, b, true);
      } else {
        multiply_tf32(sums, words, b, true);
      }
    }
    end_products();
    wait_for_products<0>(sums);
  });
}

}  // namespace

cudaError_t run_unit(Unit unit, int iterations, int64_t* clock, float* sink, int sms,
                     cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(sms);
  if (unit == Unit::kFma) {
    return launch_kernel(fma_kernel, {blocks, 1024}, stream, iterations, clock, sink);
  }
  const auto kernel = unit == Unit::kBf16 ? wgmma_kernel<Unit::kBf16> : wgmma_kernel<Unit::kTf32>;
  return launch_kernel(kernel, {blocks, 256, 64 << 10}, stream, iterations, clock, sink);
}

}  // namespace gpuopt::matmul
