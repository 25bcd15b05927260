// How convolve computes: tap by tap, or by Fourier transforms of overlapping blocks. Plain host
// C++: tests run it without a GPU.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace gpuopt::conv1d {

// From this many taps on, Fourier transforms are used. Tap by tap, the time grows with the taps. By
// transforms of blocks it hardly does. (H200, 2^20 values of f32, 255 taps: 21 us tap by tap, 63 us
// by transforms.)
constexpr int64_t kFftTaps = 512;

// Size of a block, in multiples of the taps. A block wastes taps - 1 values, so it should be longer
// than the taps.
constexpr int64_t kFftBlockTaps = 8;

// Values per block, a power of two.
inline int64_t fft_block(int64_t taps) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(kFftBlockTaps * taps)));
}

// The smallest even number from `least` on without prime factors above 7. FFT libraries have fast
// code for these factors, and real transforms of even sizes are half as large inside.
inline int64_t fft_size(int64_t least) {
  int64_t best = INT64_MAX;
  for (int64_t sevens = 2; sevens < best; sevens *= 7) {
    for (int64_t fives = sevens; fives < best; fives *= 5) {
      for (int64_t size = fives; size < best; size *= 3) {
        int64_t even = size;
        while (even < least) even *= 2;
        best = std::min(best, even);
      }
    }
  }
  return best;
}

}  // namespace gpuopt::conv1d
