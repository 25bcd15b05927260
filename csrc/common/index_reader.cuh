// Reads the index of a caller.
#pragma once

#include <cassert>

#include "common/index_reader.h"

namespace gpuopt {

template <int N>
GPUOPT_DEVICE void Index::load(const uint32_t (&entries)[N], int count, int64_t (&bins)[N]) const {
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

template <int N>
GPUOPT_DEVICE void Index::check(int count, const int64_t (&loaded)[N]) const {
  bool in_range = true;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    in_range = in_range && (i >= count || (loaded[i] >= 0 && loaded[i] < bins));
  }
  assert(in_range && "index out of bounds");
}

}  // namespace gpuopt
