// The features of a thread, loaded and stored.
#pragma once

#include "common/types.cuh"
#include "common/vec.cuh"
#include "rows/rows_plan.h"

namespace gpuopt::rows {

template <typename T, Access kAccess>
constexpr int kElements = kAccess == Access::kVector   ? kVecSize<T>
                          : kAccess == Access::kSpread ? kSpread
                                                       : 1;

// A word of memory that holds a T.
template <typename T>
using Word =
    std::conditional_t<sizeof(T) == 8, uint64_t,
                       std::conditional_t<sizeof(T) == 4, uint32_t,
                                          std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

template <typename T>
__device__ __forceinline__ T load_if(const T* from, bool valid) {
  if constexpr (sizeof(T) == 1) {
    return valid ? *from : T{};
  } else {
    const auto word = load_word<Word<T>>(from, valid);
    T value;
    memcpy(&value, &word, sizeof(T));
    return value;
  }
}

// Which features of a row are this thread's: first + j * step, j < kElements, if less than `count`.
template <typename T, Access kAccess>
struct Features {
  static constexpr int kCount = kElements<T, kAccess>;
  uint32_t first;
  uint32_t step;
  uint32_t count;

  __device__ __forceinline__ Features(uint32_t lanes, uint32_t tile, uint32_t lane, int64_t all)
      : step(kAccess == Access::kVector ? 1 : lanes), count(static_cast<uint32_t>(all)) {
    first = tile * lanes * kCount + (kAccess == Access::kVector ? lane * kCount : lane);
  }
  __device__ __forceinline__ uint32_t at(int j) const { return first + j * step; }
  __device__ __forceinline__ bool has(int j) const { return at(j) < count; }

  // Values that a thread has no right to read are undefined. The loads of several calls are in
  // flight together.
  __device__ __forceinline__ void load(const T* row, bool valid, T (&values)[kCount]) const {
    if constexpr (kAccess == Access::kVector) {
      const uint4 words = load_16_bytes(row + first, valid && has(0), false);
      memcpy(values, &words, sizeof(words));
    } else {
#pragma unroll
      for (int j = 0; j < kCount; ++j) values[j] = load_if(row + at(j), valid && has(j));
    }
  }
  template <typename Out>
  __device__ __forceinline__ void store(Out* row, const Out (&values)[kCount]) const {
    if constexpr (kAccess == Access::kVector && sizeof(Out) == sizeof(T)) {
      uint4 words;
      memcpy(&words, values, sizeof(words));
      if (has(0)) *reinterpret_cast<uint4*>(row + first) = words;
    } else {  // also for a wide vector, which would take more registers than there are
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        if (has(j)) row[at(j)] = values[j];
      }
    }
  }
};

}  // namespace gpuopt::rows
