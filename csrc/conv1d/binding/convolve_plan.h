// How convolve computes: tap by tap, or by Fourier transforms of overlapping blocks. Plain host
// C++: tests run it without a GPU.
#pragma once

#include <cstdint>

namespace gpuopt::conv1d {

// From how many taps on transforms are taken. On an H200 2^20 values of f32 and 255 taps take 21 us
// tap by tap, which grows with the taps, and 63 us by transforms of blocks, which hardly do.
constexpr int64_t kFftTaps = 512;

// A block for so many times the taps: each has taps - 1 values for nothing.
constexpr int64_t kFftBlockTaps = 8;

// Values of a block, a power of two: of kFftBlockTaps times the taps, but no more than what takes
// the whole (full) result in one. Size is int64_t, or a symbolic integer.
template <typename Size>
int64_t fft_block(int64_t taps, const Size& full) {
  int64_t block = 1;
  while (block < taps) block *= 2;
  while (block < kFftBlockTaps * taps && block < full) block *= 2;
  return block;
}

}  // namespace gpuopt::conv1d
