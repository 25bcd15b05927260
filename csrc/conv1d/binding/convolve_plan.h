// How convolve computes: tap by tap, or by Fourier transforms of overlapping blocks. Plain host
// C++: tests run it without a GPU.
#pragma once

#include <cstdint>

namespace gpuopt::conv1d {

// From this many taps on, Fourier transforms are used. Tap by tap, the time grows with the taps. By
// transforms of blocks it hardly does. (H200, 2^20 values of f32, 255 taps: 21 us tap by tap, 63 us
// by transforms.)
constexpr int64_t kFftTaps = 512;

// Size of a block, in multiples of the taps. A block wastes taps - 1 values, so it should be longer
// than the taps.
constexpr int64_t kFftBlockTaps = 8;

// Values per block, a power of two: at least kFftBlockTaps times the taps, unless a smaller block
// holds the full result. Size is int64_t or a symbolic integer.
template <typename Size>
int64_t fft_block(int64_t taps, const Size& full) {
  int64_t block = 1;
  while (block < taps) block *= 2;
  while (block < kFftBlockTaps * taps && block < full) block *= 2;
  return block;
}

}  // namespace gpuopt::conv1d
