// Replaces csrc/common/mma.cuh: the same functions on the CPU. Threads publish their fragments,
// wait for the warp and compute their part of C.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "common/types.cuh"

namespace emulator {

struct Fragments {
  uint32_t a[4], b[2];
  const uint4* row;
};
inline Fragments fragments[2][1024];

// Publishes this thread's fragments and returns the fragments of lane 0 of its warp.
inline const Fragments* publish(const Fragments& own) {
  Fragments* const all = fragments[running->iteration];
  all[threadIdx.x] = own;
  (void)exchange(0, ~0u, 0);
  return all + (threadIdx.x & ~31u);
}

}  // namespace emulator

namespace gpuopt {

template <typename T>
void mma_half(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const auto* warp = emulator::publish({{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (uint32_t i = 0; i < 4; ++i) {
    for (uint32_t k = 0; k < 16; ++k) {
      const auto value = [k](uint32_t word) {
        T values[2];
        memcpy(values, &word, sizeof(word));
        return to_compute(values[k % 2]);
      };
      const uint32_t thread = k % 8 / 2, column = 2 * t + i % 2;
      c[i] += value(warp[4 * g + thread].a[i / 2 + k / 8 * 2]) *
              value(warp[4 * column + thread].b[k / 8]);
    }
  }
}

inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const auto* warp = emulator::publish({{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const auto value = [](uint32_t word) {
    word &= ~0x1fffu;
    float result;
    memcpy(&result, &word, sizeof(word));
    return result;
  };
  for (uint32_t i = 0; i < 4; ++i) {
    for (uint32_t k = 0; k < 8; ++k) {
      const uint32_t column = 2 * t + i % 2;
      c[i] += value(warp[4 * g + k % 4].a[i / 2 + k / 4 * 2]) *
              value(warp[4 * column + k % 4].b[k / 4]);
    }
  }
}

inline void load_matrices(uint32_t (&words)[4], const uint4* row) {
  const auto* warp = emulator::publish({{}, {}, row});
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (uint32_t i = 0; i < 4; ++i) {
    words[i] = reinterpret_cast<const uint32_t*>(warp[8 * i + g].row)[t];
  }
}

inline void load_matrices_transposed(uint32_t (&words)[4], const uint4* row) {
  const auto* warp = emulator::publish({{}, {}, row});
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (uint32_t i = 0; i < 4; ++i) {
    const auto half = [&](uint32_t r) {
      return uint32_t{reinterpret_cast<const uint16_t*>(warp[8 * i + r].row)[g]};
    };
    words[i] = half(2 * t) | half(2 * t + 1) << 16;
  }
}

}  // namespace gpuopt
