// Runs kernels on the CPU: the part of CUDA's device language that they use, for g++ with CUDA's
// headers, included before any source. Threads run one after another. In launches with dynamic
// shared memory each is a fiber, which __syncthreads() parks until the others have come there too.
//
// This shows wrong indices, accesses out of bounds and wrong values on machines without a GPU. It
// knows nothing of races inside a block, of PTX, or of time.
#pragma once

#include <cuda_runtime_api.h>
#include <math.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#define __syncthreads() emulator::park()
#define cudaFuncSetAttribute(...) cudaSuccess
#define cudaGetLastError() cudaSuccess

using std::max;
using std::min;

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>(((uint64_t{high} << 32) | low) >> (shift & 31));
}

namespace emulator {

struct Fiber {
  static constexpr size_t kStack = 64 << 10;
  std::unique_ptr<char[]> stack{new char[kStack]};
  ucontext_t context;
  unsigned thread = 0;
  bool done = false;
};

inline ucontext_t scheduler;
inline Fiber* running = nullptr;
inline std::function<void()> kernel;

inline void run_fiber() {
  kernel();
  running->done = true;
}

inline void resume(Fiber& fiber) {
  running = &fiber;
  threadIdx = {fiber.thread, 0, 0};
  swapcontext(&scheduler, &fiber.context);
}

inline void park() { swapcontext(&running->context, &scheduler); }

// kernel<<<blocks, threads, shared_bytes, stream>>>(...), with the call in `body`.
template <typename Body>
void launch(unsigned blocks, unsigned threads, size_t shared_bytes, cudaStream_t, Body&& body) {
  static std::vector<Fiber> fibers;
  kernel = body;
  gridDim = dim3(blocks);
  blockDim = dim3(threads);
  for (unsigned block = 0; block < blocks; ++block) {
    blockIdx = {block, 0, 0};
    if (shared_bytes == 0) {
      for (unsigned thread = 0; thread < threads; ++thread) {
        threadIdx = {thread, 0, 0};
        body();
      }
      continue;
    }
    if (fibers.size() < threads) fibers.resize(threads);
    for (unsigned thread = 0; thread < threads; ++thread) {
      Fiber& fiber = fibers[thread];
      fiber.thread = thread;
      fiber.done = false;
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = Fiber::kStack;
      fiber.context.uc_link = &scheduler;
      makecontext(&fiber.context, run_fiber, 0);
    }
    for (bool any = true; any;) {
      any = false;
      for (unsigned thread = 0; thread < threads; ++thread) {
        if (fibers[thread].done) continue;
        any = true;
        resume(fibers[thread]);
      }
    }
  }
}

}  // namespace emulator
