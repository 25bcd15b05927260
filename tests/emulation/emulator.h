// Runs kernels on the CPU: the part of CUDA's device language that they use, for g++ with CUDA's
// headers, included before any source. Threads run one after another. In launches with dynamic
// shared memory and by launch_kernel() each is a fiber, which __syncthreads() and shuffles park until
// the others have come there too.
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
template <typename T>
inline void __stcs(T* to, const T& value) {
  *to = value;
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>(((uint64_t{high} << 32) | low) >> (shift & 31));
}

namespace emulator {

struct Fiber {
  static constexpr size_t kStack = 64 << 10;
  std::unique_ptr<char[]> stack{new char[kStack]};
  ucontext_t context;
  unsigned thread = 0;
  int turn = 0;
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

// One word from another thread of the warp. Every thread parks once, so that all words are there;
// two sets of places take turns, so that none is overwritten before it has been read.
inline uint32_t exchange(uint32_t word, int mask) {
  static uint32_t places[2][1024];
  auto& own = places[running->turn];
  running->turn ^= 1;
  own[running->thread] = word;
  park();
  return own[running->thread ^ static_cast<unsigned>(mask)];
}

// Where not null, launches leave their numbers of blocks here and are not run.
inline std::vector<unsigned>* noted = nullptr;

// The call of a kernel in `body`, on `blocks` blocks; with `fibers`, threads may wait for each other.
template <typename Body>
void launch(unsigned blocks, unsigned threads, bool with_fibers, Body&& body) {
  static std::vector<Fiber> fibers;
  if (noted != nullptr) return noted->push_back(blocks);
  kernel = body;
  gridDim = dim3(blocks);
  blockDim = dim3(threads);
  for (unsigned block = 0; block < blocks; ++block) {
    blockIdx = {block, 0, 0};
    if (!with_fibers) {
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
      fiber.turn = 0;
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

// kernel<<<blocks, threads, shared_bytes, stream>>>(...)
template <typename Body>
void launch(unsigned blocks, unsigned threads, size_t shared_bytes, cudaStream_t, Body&& body) {
  launch(blocks, threads, shared_bytes > 0, body);
}

}  // namespace emulator

inline uint32_t __shfl_xor_sync(uint32_t, uint32_t word, int mask) {
  return emulator::exchange(word, mask);
}
