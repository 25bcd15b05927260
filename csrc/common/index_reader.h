// The index of a caller: entries that name rows of a tensor. Plain host C++, for plans.
#pragma once

#include <cstdint>

#include "common/index.h"

namespace gpuopt {

struct Index {
  const void* values = nullptr;
  bool is_long = true;  // int64, else int32
  int64_t stride = 0;
  int64_t bins = 0;

  // For kernels (index_reader.cuh). Loads the bins of the first `count` of N entries. They must
  // pass check() before use. An assertion after each load would make it wait for the previous load,
  // so the two are separate.
  template <int N>
  GPUOPT_DEVICE void load(const uint32_t (&entries)[N], int count, int64_t (&bins)[N]) const;

  // Fails an assertion if a bin is out of range, as in ATen.
  template <int N>
  GPUOPT_DEVICE void check(int count, const int64_t (&loaded)[N]) const;
};

}  // namespace gpuopt
