// Runs kernels on the CPU: the part of CUDA's device language that they use, for g++ with CUDA's
// headers, included before any source. Threads run one after another. In launches with dynamic
// shared memory and by launch_kernel() each is a fiber, which __syncthreads() parks until the rest
// of the block has come there or ended, and an exchange within a warp until the rest of its mask
// has.
//
// This shows wrong indices, accesses out of bounds and wrong values on machines without a GPU. It
// knows nothing of races inside a block, of PTX, or of time.
#pragma once

#include <cuda_runtime_api.h>
#include <math.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#define __syncthreads() emulator::wait_for_block()
#define __syncwarp() ((void)emulator::exchange(0, ~0u, 0))
#define __threadfence() ((void)0)
#define cudaFuncSetAttribute(...) cudaSuccess
#define cudaGetLastError() cudaSuccess
#define cudaGetDevice(device) (*(device) = 0, cudaSuccess)
// The one that is asked for: cudaDevAttrMaxSharedMemoryPerBlockOptin.
#define cudaDeviceGetAttribute(value, ...) \
  (*(value) = static_cast<int>(emulator::most_shared_bytes), cudaSuccess)
#define cudaMemsetAsync(to, value, bytes, stream) (memset(to, value, bytes), cudaSuccess)
#define cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, stream) \
  (memcpy(reinterpret_cast<char*>(symbol) + (offset), from, bytes), cudaSuccess)

using std::max;
using std::min;

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

[[noreturn]] inline void __trap() { abort(); }
inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
template <typename T>
inline T __ldcg(const T* from) {
  return *from;
}
template <typename T>
inline void __stcs(T* to, const T& value) {
  *to = value;
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>(((uint64_t{high} << 32) | low) >> (shift & 31));
}

namespace emulator {

enum class Wait : uint8_t { kNone, kBlock, kWarp };

struct Fiber {
  static constexpr size_t kStack = 64 << 10;
  std::unique_ptr<char[]> stack{new char[kStack]};
  ucontext_t context;
  unsigned thread = 0;
  Wait wait = Wait::kNone;
  uint32_t mask = 0;
  int turn = 0;
  bool done = false;
};

inline ucontext_t scheduler;
inline std::vector<Fiber> fibers;
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

inline void wait_for_block() {
  running->wait = Wait::kBlock;
  swapcontext(&running->context, &scheduler);
}

// Words of the lanes of a warp. Two sets of places take turns, so that none is overwritten before
// it has been read.
inline uint32_t places[2][1024];

// Leaves a word for the lanes of `mask`, waits for theirs and returns that of `lane`.
inline uint32_t exchange(uint32_t word, uint32_t mask, unsigned lane) {
  auto& own = places[running->turn];
  own[running->thread] = word;
  running->wait = Wait::kWarp;
  running->mask = mask;
  swapcontext(&running->context, &scheduler);
  running->turn ^= 1;
  return own[(running->thread & ~31u) + (lane & 31)];
}

// Lets those go on who have waited for no one else. Returns whether there were any.
inline bool release(unsigned threads) {
  bool any = false, block = true;
  for (unsigned t = 0; t < threads; ++t) {
    block = block && (fibers[t].done || fibers[t].wait == Wait::kBlock);
  }
  for (unsigned first = 0; first < threads; first += 32) {
    bool ready[32] = {};
    for (unsigned lane = 0; lane < 32 && first + lane < threads; ++lane) {
      const Fiber& fiber = fibers[first + lane];
      if (fiber.done || fiber.wait != Wait::kWarp) continue;
      ready[lane] = true;
      for (unsigned other = 0; other < 32 && first + other < threads; ++other) {
        const Fiber& its = fibers[first + other];
        ready[lane] =
            ready[lane] && (!(fiber.mask >> other & 1) || its.done || its.wait == Wait::kWarp);
      }
    }
    for (unsigned lane = 0; lane < 32 && first + lane < threads; ++lane) {
      Fiber& fiber = fibers[first + lane];
      if (fiber.done || !(ready[lane] || (block && fiber.wait == Wait::kBlock))) continue;
      fiber.wait = Wait::kNone;
      any = true;
    }
  }
  return any;
}

// Where not null, launches leave their numbers of blocks here and are not run.
inline std::vector<unsigned>* noted = nullptr;

// Called before each block, where not empty; bytes of dynamic shared memory of the launch.
inline std::function<void()> before_block;
inline size_t shared_bytes = 0;
inline size_t most_shared_bytes = 227 << 10;  // that a block may have: sm_90's

// An array that the threads of a block share, and bytes behind it that must stay.
struct Guard {
  static constexpr size_t kBytes = 1 << 10;
  static inline std::vector<const Guard*> all;

  Guard() {
    memset(bytes, 0xa5, kBytes);
    all.push_back(this);
  }
  bool intact() const {
    return std::all_of(bytes, bytes + kBytes, [](unsigned char byte) { return byte == 0xa5; });
  }

  unsigned char bytes[kBytes];
};
template <typename Array>
struct Guarded {
  Array array;
  Guard guard;
};

// The call of a kernel in `body`, on `blocks` blocks; with `fibers`, threads may wait for each
// other.
template <typename Body>
void launch(unsigned blocks, unsigned threads, bool with_fibers, Body&& body) {
  if (noted != nullptr) return noted->push_back(blocks);
  kernel = body;
  gridDim = dim3(blocks);
  blockDim = dim3(threads);
  for (unsigned block = 0; block < blocks; ++block) {
    blockIdx = {block, 0, 0};
    if (before_block) before_block();
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
      fiber.wait = Wait::kNone;
      fiber.done = false;
      fiber.turn = 0;
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = Fiber::kStack;
      fiber.context.uc_link = &scheduler;
      makecontext(&fiber.context, run_fiber, 0);
    }
    do {
      for (unsigned thread = 0; thread < threads; ++thread) {
        if (!fibers[thread].done && fibers[thread].wait == Wait::kNone) resume(fibers[thread]);
      }
    } while (release(threads));
    for (unsigned thread = 0; thread < threads; ++thread) {
      if (fibers[thread].done) continue;
      fprintf(stderr, "emulator: threads of a block wait for each other at different places\n");
      abort();
    }
  }
  for (const Guard* guard : Guard::all) {
    if (guard->intact()) continue;
    fprintf(stderr, "emulator: a block wrote behind an array that its threads share\n");
    abort();
  }
}

// Whether threads may wait for each other in launches without dynamic shared memory too, which are
// slower then.
inline bool always_fibers = false;

// kernel<<<blocks, threads, shared_bytes, stream>>>(...)
template <typename Body>
void launch(unsigned blocks, unsigned threads, size_t shared_bytes, cudaStream_t, Body&& body) {
  if (shared_bytes > most_shared_bytes) abort();
  launch(blocks, threads, always_fibers || shared_bytes > 0, body);
}

}  // namespace emulator

inline uint32_t __shfl_xor_sync(uint32_t mask, uint32_t word, int change) {
  return emulator::exchange(word, mask, threadIdx.x ^ static_cast<unsigned>(change));
}
inline uint32_t __shfl_sync(uint32_t mask, uint32_t word, int lane) {
  return emulator::exchange(word, mask, static_cast<unsigned>(lane));
}
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = low | static_cast<uint64_t>(high) << 32;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = selector >> 4 * i & 7;
    result |= static_cast<uint32_t>(bytes >> 8 * from & 0xff) << 8 * i;
  }
  return result;
}
inline uint32_t __shfl_up_sync(uint32_t mask, uint32_t word, unsigned distance) {
  const unsigned lane = threadIdx.x & 31;
  return emulator::exchange(word, mask, lane < distance ? lane : lane - distance);
}
inline float __shfl_down_sync(uint32_t mask, float value, unsigned distance) {
  const unsigned lane = threadIdx.x & 31;
  uint32_t word;
  memcpy(&word, &value, sizeof(word));
  word = emulator::exchange(word, mask, lane + distance < 32 ? lane + distance : lane);
  memcpy(&value, &word, sizeof(word));
  return value;
}
inline uint32_t __match_any_sync(uint32_t mask, uint32_t word) {
  const auto& words = emulator::places[emulator::running->turn];
  (void)emulator::exchange(word, mask, 0);
  uint32_t equal = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    const bool own = (mask >> lane & 1) && words[(threadIdx.x & ~31u) + lane] == word;
    equal |= uint32_t{own} << lane;
  }
  return equal;
}

inline uint32_t __ballot_sync(uint32_t mask, bool predicate) {
  const auto& words = emulator::places[emulator::running->turn];
  (void)emulator::exchange(predicate, mask, 0);
  uint32_t ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    const bool own = (mask >> lane & 1) && words[(threadIdx.x & ~31u) + lane] != 0;
    ballot |= uint32_t{own} << lane;
  }
  return ballot;
}

// Atomic, as threads take turns at barriers alone.
template <typename T>
inline T atomicAdd(T* to, T value) {
  const T before = *to;
  *to = before + value;
  return before;
}
template <typename T>
inline T atomicCAS(T* to, T expected, T value) {
  const T before = *to;
  if (before == expected) *to = value;
  return before;
}
template <typename T>
inline T atomicMax(T* to, T value) {
  const T before = *to;
  *to = max(before, value);
  return before;
}
template <typename T>
inline T atomicMin(T* to, T value) {
  const T before = *to;
  *to = min(before, value);
  return before;
}
inline int __float_as_int(float value) {
  int bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline uint32_t __vadd2(uint32_t a, uint32_t b) {
  return ((a & 0x7fff7fffu) + (b & 0x7fff7fffu)) ^ ((a ^ b) & 0x80008000u);
}
inline uint32_t __vadd4(uint32_t a, uint32_t b) {
  return ((a & 0x7f7f7f7fu) + (b & 0x7f7f7f7fu)) ^ ((a ^ b) & 0x80808080u);
}
