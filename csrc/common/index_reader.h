// The index of a caller: entries that name rows of a tensor. Plain host C++. The members that
// kernels call are defined in index_reader.cuh.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define GPUOPT_DEVICE __device__ __forceinline__
#else
#define GPUOPT_DEVICE inline
#endif

namespace gpuopt {

struct Index {
  const void* values = nullptr;
  bool is_long = true;  // int64, else int32
  int64_t stride = 0;
  int64_t bins = 0;

  // Loads the bins of the first `count` of N entries. They must pass check() before use. An
  // assertion after each load would make it wait for the previous load, so the two are separate.
  template <int N>
  GPUOPT_DEVICE void load(const uint32_t (&entries)[N], int count, int64_t (&bins)[N]) const;

  // Fails an assertion if a bin is out of range, as in ATen.
  template <int N>
  GPUOPT_DEVICE void check(int count, const int64_t (&loaded)[N]) const;
};

}  // namespace gpuopt
