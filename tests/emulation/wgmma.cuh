// Replaces csrc/common/wgmma.cuh: products of tiles on the CPU, which are complete at once. They
// follow the descriptors of operands, whose addresses are relative to the dynamic shared memory.
#pragma once

#include "common/mma.cuh"
#include "common/types.cuh"

extern uint4 matmul_memory[];

namespace gpuopt {

inline uint64_t describe_operand(const void* shared, uint32_t group_bytes = 0) {
  const auto address = static_cast<const char*>(shared) - reinterpret_cast<char*>(matmul_memory);
  return static_cast<uint64_t>(address) >> 4 | uint64_t{group_bytes >> 4} << 16 |
         uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

inline void begin_products() {}
inline void end_products() {}
template <int kLeft, int kSums>
void wait_for_products(float (&)[kSums]) {}
template <int kRegisters>
void take_registers() {}
template <int kRegisters>
void release_registers() {}

// The word or value at `offset` bytes behind the beginning of an operand.
template <typename T>
T operand_word(uint64_t operand, uint32_t offset) {
  const uint32_t address = (static_cast<uint32_t>(operand & 0x3fff) << 4) + offset;
  const uint32_t swizzled = address ^ (address >> 7 & 7) << 4;
  return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(matmul_memory) + swizzled);
}
template <typename T>
float operand_value(uint64_t operand, uint32_t offset) {
  return to_compute(operand_word<T>(operand, offset));
}

template <typename T>
void multiply_operands(float (&sums)[128], uint64_t a, uint64_t b, bool adds) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  const auto eight_rows = [](uint64_t operand) {
    return static_cast<uint32_t>(operand >> 32 & 0x3fff) << 4;
  };
  const uint32_t group_bytes = static_cast<uint32_t>(b >> 16 & 0x3fff) << 4;
  float a_rows[2][16], b_column[16];
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t row = 16 * warp + lane / 4 + 8 * half;
    for (uint32_t k = 0; k < 16; ++k) {
      a_rows[half][k] = operand_value<T>(a, row / 8 * eight_rows(a) + row % 8 * 128 + k * 2);
    }
  }
  for (uint32_t pair = 0; pair < 64; ++pair) {
    const uint32_t column = pair / 2 * 8 + lane % 4 * 2 + pair % 2;
    for (uint32_t k = 0; k < 16; ++k) {
      b_column[k] = operand_value<T>(
          b, column / 64 * group_bytes + column % 64 * 2 + k / 8 * eight_rows(b) + k % 8 * 128);
    }
    for (uint32_t half = 0; half < 2; ++half) {
      float& sum = sums[pair / 2 * 4 + half * 2 + pair % 2];
      if (!adds) sum = 0;
      for (uint32_t k = 0; k < 16; ++k) sum += a_rows[half][k] * b_column[k];
    }
  }
}

inline void multiply_tf32(float (&sums)[64], const uint32_t (&a)[4], uint64_t b, bool adds) {
  const auto* warp = emulator::publish({{a[0], a[1], a[2], a[3]}});
  const uint32_t lane = threadIdx.x % 32;
  const auto truncated = [](uint32_t word) {
    word &= ~0x1fffu;
    float value;
    memcpy(&value, &word, sizeof(word));
    return value;
  };
  for (uint32_t i = 0; i < 64; ++i) {
    if (!adds) sums[i] = 0;
    const uint32_t column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    for (uint32_t k = 0; k < 8; ++k) {
      const uint32_t word = warp[lane / 4 * 4 + k % 4].a[i / 2 % 2 + k / 4 * 2];
      sums[i] += truncated(word) *
                 truncated(operand_word<uint32_t>(b, column / 8 * 1024 + column % 8 * 128 + k * 4));
    }
  }
}

}  // namespace gpuopt
