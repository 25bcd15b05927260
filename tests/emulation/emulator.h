// Runs kernels on the CPU. This header implements the part of CUDA's device language that the
// kernels use, for g++ with CUDA's headers. It is included before any source.
//
// Threads run one after another, each as a fiber. __syncthreads() suspends a fiber until all other
// threads of the block have reached it or ended. An exchange within a warp suspends it until all
// threads in its mask have.
//
// The emulator finds wrong indices, accesses out of bounds and wrong values without a GPU. It has
// no detection of races inside a block, runs no PTX and measures no time.
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
#include <type_traits>
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
#define cudaDeviceGetAttribute(value, attribute, device) \
  (*(value) = emulator::attribute_of(attribute), cudaSuccess)
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

// The threads of a block are fibers. A stack is made once and runs one thread after another, so
// threads that wait for no other all run on one stack, which stays in the cache.
#if defined(__x86_64__) || defined(__aarch64__)
// Saves the callee-saved registers on this stack and the stack pointer in *from, then continues
// where the stack `to` was suspended.
extern "C" void gpuopt_switch_stack(void** from, void* to);
#ifdef __x86_64__
asm(R"(
  .pushsection .text
  .weak gpuopt_switch_stack
  .hidden gpuopt_switch_stack
  .type gpuopt_switch_stack, @function
gpuopt_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .popsection
)");
constexpr size_t kSavedWords = 6, kReturnWord = 6;
#else
asm(R"(
  .pushsection .text
  .weak gpuopt_switch_stack
  .hidden gpuopt_switch_stack
  .type gpuopt_switch_stack, @function
gpuopt_switch_stack:
  stp x29, x30, [sp, #-160]!
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #160
  ret
  .popsection
)");
constexpr size_t kSavedWords = 20, kReturnWord = 1;
#endif

struct Context {
  void* stack_pointer = nullptr;

  // The first switch to this context calls `start`, which never returns.
  void make(char* stack, size_t bytes, void (*start)()) {
    const auto end = reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t{15};
    // On x86-64 a function begins with its return address on the stack, which is then not 16-byte
    // aligned.
    void** words = reinterpret_cast<void**>(end) - 2 - kSavedWords;
    std::fill_n(words, kSavedWords + 2, nullptr);
    words[kReturnWord] = reinterpret_cast<void*>(start);
    stack_pointer = words;
  }
  void switch_to(Context& other) { gpuopt_switch_stack(&stack_pointer, other.stack_pointer); }
};
#else
struct Context {
  ucontext_t context;

  void make(char* stack, size_t bytes, void (*start)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = bytes;
    makecontext(&context, start, 0);
  }
  void switch_to(Context& other) { swapcontext(&context, &other.context); }
};
#endif

// A thread that spins waits for a change of memory by another thread.
enum class Wait : uint8_t { kNone, kWarp, kBlock, kSpin, kDone };

inline std::function<void()> kernel;
void run_fiber();

struct Stack {
  // The odd size makes stacks begin at different cache sets.
  static constexpr size_t kBytes = (64 << 10) + 320;
  std::unique_ptr<char[]> bytes{new char[kBytes]};
  Context context;

  Stack() { context.make(bytes.get(), kBytes, run_fiber); }
};

struct Fiber {
  std::unique_ptr<Stack> stack;  // while the thread runs or waits
  Wait wait = Wait::kNone;
  uint32_t mask = 0;
  int iteration = 0;
};

inline Context scheduler;
inline std::vector<Fiber> fibers(1024);
inline std::vector<std::unique_ptr<Stack>> free_stacks;
inline Fiber* running = nullptr;

inline void wait(Wait what) {
  running->wait = what;
  running->stack->context.switch_to(scheduler);
}

// Runs a thread until it waits or ends.
inline void resume(Fiber& fiber) {
  if (!fiber.stack) {
    if (free_stacks.empty()) free_stacks.push_back(std::make_unique<Stack>());
    fiber.stack = std::move(free_stacks.back());
    free_stacks.pop_back();
  }
  running = &fiber;
  scheduler.switch_to(fiber.stack->context);
  if (fiber.wait == Wait::kDone) free_stacks.push_back(std::move(fiber.stack));
}
inline void wait_for_block() { wait(Wait::kBlock); }

inline void run_fiber() {
  for (;;) {
    kernel();
    wait(Wait::kDone);
  }
}

// The words that threads exchange within a warp. Two buffers alternate, so that no word is
// overwritten before it has been read.
inline uint32_t positions[2][1024];

// Stores a word for the lanes in `mask`, waits for their words and returns the word of `lane`.
inline uint32_t exchange(uint32_t word, uint32_t mask, unsigned lane) {
  auto& own = positions[running->iteration];
  const unsigned thread = threadIdx.x;
  own[thread] = word;
  running->mask = mask;
  wait(Wait::kWarp);
  running->iteration ^= 1;
  return own[(thread & ~31u) + (lane & 31)];
}

// Every second block runs its threads from the last to the first. With a missing barrier, one of
// the two orders makes a thread read before another has written.
inline bool descending = false;

inline unsigned in_order(unsigned i, unsigned count) { return descending ? count - 1 - i : i; }

// Runs a warp until all of its threads have ended or wait for the block.
inline void run_warp(unsigned first, unsigned lanes) {
  bool released = true;
  while (released) {
    uint32_t absent = 0;  // neither at an exchange nor ended
    for (unsigned i = 0; i < lanes; ++i) {
      const unsigned lane = in_order(i, lanes);
      Fiber& fiber = fibers[first + lane];
      if (fiber.wait == Wait::kNone) {
        threadIdx = {first + lane, 0, 0};
        resume(fiber);
      }
      if (fiber.wait == Wait::kBlock || fiber.wait == Wait::kSpin) absent |= 1u << lane;
    }
    released = false;
    for (unsigned lane = 0; lane < lanes; ++lane) {
      Fiber& fiber = fibers[first + lane];
      if (fiber.wait != Wait::kWarp || (fiber.mask & absent) != 0) continue;
      fiber.wait = Wait::kNone;
      released = true;
    }
  }
}

inline void run_block(unsigned threads) {
  descending = !descending;
  for (unsigned thread = 0; thread < threads; ++thread) {
    fibers[thread].wait = Wait::kNone;
    fibers[thread].iteration = 0;
  }
  const unsigned warps = (threads + 31) / 32;
  unsigned done = 0, rounds = 0;  // rounds in which a thread spins
  while (done < threads) {
    for (unsigned i = 0; i < warps; ++i) {
      const unsigned first = in_order(i, warps) * 32;
      run_warp(first, min(32u, threads - first));
    }
    const bool spins = std::any_of(fibers.begin(), fibers.begin() + threads,
                                   [](const Fiber& fiber) { return fiber.wait == Wait::kSpin; });
    rounds = spins ? rounds + 1 : 0;
    done = 0;
    for (unsigned thread = 0; thread < threads; ++thread) {
      Wait& wait = fibers[thread].wait;
      if ((wait == Wait::kWarp && !spins) || rounds > 100'000) {
        fprintf(stderr, "emulator: threads of a block wait for each other at different places\n");
        abort();
      }
      done += wait == Wait::kDone;
      // Threads wait at the barrier of the block until no thread spins.
      if (wait == (spins ? Wait::kSpin : Wait::kBlock)) wait = Wait::kNone;
    }
  }
}

// If not null, launches append their numbers of blocks here and are not run.
inline std::vector<unsigned>* noted = nullptr;

// Called before each block, unless empty.
inline std::function<void()> before_block;
inline size_t shared_bytes = 0;               // dynamic, of the launch
inline size_t most_shared_bytes = 227 << 10;  // per block, on sm_90

inline int attribute_of(cudaDeviceAttr attribute) {
  if (attribute != cudaDevAttrMaxSharedMemoryPerBlockOptin) abort();
  return static_cast<int>(most_shared_bytes);
}

inline bool is_filled(const void* from, size_t bytes, unsigned char with) {
  const auto* first = static_cast<const unsigned char*>(from);
  return bytes == 0 || (*first == with && memcmp(first, first + 1, bytes - 1) == 0);
}

// Bytes after an array in shared memory, which must not change.
struct Guard {
  static constexpr size_t kBytes = 1 << 10;
  static inline std::vector<const Guard*> all;

  Guard() {
    memset(bytes, 0xa5, kBytes);
    all.push_back(this);
  }
  bool intact() const { return is_filled(bytes, kBytes, 0xa5); }

  unsigned char bytes[kBytes];
};
template <typename Array>
struct Guarded {
  Array array;
  Guard guard;
};

// Runs `body`, which calls a kernel, for all threads of all blocks.
template <typename Body>
void launch(unsigned blocks, unsigned threads, Body&& body) {
  if (noted != nullptr) return noted->push_back(blocks);
  kernel = body;
  gridDim = dim3(blocks);
  blockDim = dim3(threads);
  for (unsigned block = 0; block < blocks; ++block) {
    blockIdx = {block, 0, 0};
    if (before_block) before_block();
    run_block(threads);
  }
  for (const Guard* guard : Guard::all) {
    if (guard->intact()) continue;
    fprintf(stderr, "emulator: a block wrote behind an array that its threads share\n");
    abort();
  }
}

// kernel<<<blocks, threads, shared_bytes, stream>>>(...)
template <typename Body>
void launch(unsigned blocks, unsigned threads, size_t shared_bytes, cudaStream_t, Body&& body) {
  if (shared_bytes > most_shared_bytes) abort();
  launch(blocks, threads, body);
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
template <typename T>
inline T __shfl_down_sync(uint32_t mask, T value, unsigned distance) {
  const unsigned lane = threadIdx.x & 31;
  uint32_t words[sizeof(T) / 4];
  memcpy(words, &value, sizeof(value));
  for (uint32_t& word : words) {
    word = emulator::exchange(word, mask, lane + distance < 32 ? lane + distance : lane);
  }
  memcpy(&value, words, sizeof(value));
  return value;
}
inline uint32_t __match_any_sync(uint32_t mask, uint32_t word) {
  const auto& words = emulator::positions[emulator::running->iteration];
  (void)emulator::exchange(word, mask, 0);
  uint32_t equal = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    const bool own = (mask >> lane & 1) && words[(threadIdx.x & ~31u) + lane] == word;
    equal |= uint32_t{own} << lane;
  }
  return equal;
}

inline uint32_t __ballot_sync(uint32_t mask, bool predicate) {
  const auto& words = emulator::positions[emulator::running->iteration];
  (void)emulator::exchange(predicate, mask, 0);
  uint32_t ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    const bool own = (mask >> lane & 1) && words[(threadIdx.x & ~31u) + lane] != 0;
    ballot |= uint32_t{own} << lane;
  }
  return ballot;
}

// Thread 0 must take part.
inline int __syncthreads_or(int predicate) {
  static int any = 0;
  any |= predicate;
  __syncthreads();
  const int result = any;
  __syncthreads();
  if (threadIdx.x == 0) any = 0;
  __syncthreads();
  return result;
}

inline bool __any_sync(uint32_t mask, bool predicate) {
  return __ballot_sync(mask, predicate) != 0;
}

// This is atomic, because threads only switch at barriers and exchanges.
template <typename T>
inline T atomicAdd(T* to, std::type_identity_t<T> value) {
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
inline T atomicExch(T* to, T value) {
  const T before = *to;
  *to = value;
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
