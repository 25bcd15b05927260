// Reads the index of a caller: entries that name rows of a tensor.
#pragma once

#include <cassert>
#include <cstdint>

namespace gpuopt {

// The index of the caller.
struct Index {
  const void* values = nullptr;
  bool is_long = true;  // int64, else int32
  int64_t stride = 0;
  int64_t bins = 0;

  // Loads the bins of the first `count` of N entries. They must pass check() before use. An
  // assertion after each load would make it wait for the previous load, so the two are separate.
  template <int N>
  __device__ __forceinline__ void load(const uint32_t (&entries)[N], int count,
                                       int64_t (&bins)[N]) const {
    const auto fill = [&](const auto* from) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (i < count) bins[i] = from[entries[i] * stride];
      }
    };
    if (is_long) {
      fill(static_cast<const int64_t*>(values));
    } else {
      fill(static_cast<const int32_t*>(values));
    }
  }

  // Fails an assertion if a bin is out of range, as in ATen.
  template <int N>
  __device__ __forceinline__ void check(int count, const int64_t (&loaded)[N]) const {
    bool in_range = true;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      in_range = in_range && (i >= count || (loaded[i] >= 0 && loaded[i] < bins));
    }
    assert(in_range && "index out of bounds");
  }
};

}  // namespace gpuopt
