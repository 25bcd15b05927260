// Convolutions of the half types, of step 1 along contiguous rows, on tensor cores. Of 16 blocks of 8 outputs each, the 16
// inputs from the beginning of a block on are a row of A, and a block's outputs a row of C = A B: column n of B holds the
// taps from row n on, so that B is a Toeplitz matrix of the taps (PTX ISA, "Matrix Fragments for mma.m16n8k16").
#pragma once

#include <utility>

#include "conv1d/conv1d_kernel.cuh"

namespace gpuopt::conv1d {

struct MmaArgs {
  const void *from, *weight, *bias;
  void* to;
  const char *first_pack, *last_pack;  // see Rows
  int64_t from_batch, from_channel, to_batch, to_channel;
  int64_t weight_group, weight_out, weight_in, weight_tap, bias_stride;
  int32_t from_size, to_size, padding, taps;
  uint32_t in_channels;              // of a group
  uint32_t warps;                    // of the launch
  uint32_t warp_tiles;               // of kMmaTile outputs, of a warp: at most kMmaTiles
  uint32_t warp_packs;               // of an input row in a warp's shared memory
  FastDiv row_warps, dilation;       // warps of a row
  FastDiv channels, group_channels;  // output channels in all and of a group
  Activation activation;
};

// The taps that a lane has of B: of rows 2 * (lane % 4) and 8 more, and the next of each; of column lane / 4.
template <typename T>
struct TapPairs {
  uint32_t low, high;
};

// Where the lane's row of ldmatrix is, of matrices of 8 rows: the upper and the lower blocks of the first tile, and the
// same one pack further.
__device__ __forceinline__ uint32_t matrix_address(const uint4* packs) {
#if defined(__CUDA_ARCH__)
  const uint32_t lane = threadIdx.x % 32;
  return static_cast<uint32_t>(__cvta_generic_to_shared(packs + lane % 16 + lane / 16));
#else
  return 0;
#endif
}

// C += A B, where A is in shared memory, row by row of 16 bytes, `kTile` tiles behind `packs` (whose address is
// matrix_address's); `taps` is the lane's part of B.
template <int kTile, typename T>
__device__ __forceinline__ void multiply_tile(float (&sums)[4], uint32_t address,
                                              const uint4* packs, const TapPairs<T>& taps) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t a[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4+%5];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address), "n"(kTile * kMmaTile * 2));
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(taps.low), "r"(taps.high));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(taps.low), "r"(taps.high));
  }
#else
  // Without tensor cores for both half types lanes pass their taps around.
  const uint32_t lane = threadIdx.x % 32;
  const T* const values = reinterpret_cast<const T*>(packs) + kTile * kMmaTile;
  const auto tap_of = [](uint32_t word, uint32_t half) {
    const auto bits = static_cast<uint16_t>(word >> (16 * half));
    T tap;
    memcpy(&tap, &bits, sizeof(tap));
    return to_compute(tap);
  };
  for (uint32_t column = 0; column < 2; ++column) {
    for (uint32_t pair = 0; pair < 4; ++pair) {
      const int other = static_cast<int>(4 * (2 * (lane % 4) + column) + pair);
      const uint32_t low = __shfl_sync(0xffffffffu, taps.low, other);
      const uint32_t high = __shfl_sync(0xffffffffu, taps.high, other);
      for (uint32_t half = 0; half < 2; ++half) {
        const T* const own = values + 8 * (lane / 4 + 8 * half) + 2 * pair;
        for (uint32_t k = 0; k < 2; ++k) {
          sums[2 * half + column] += to_compute(own[k]) * tap_of(low, k);
          sums[2 * half + column] += to_compute(own[8 + k]) * tap_of(high, k);
        }
      }
    }
  }
#endif
}

template <typename T, bool kDilated>
__global__ void __launch_bounds__(kMmaThreads, 6) mma_kernel(const __grid_constant__ MmaArgs args) {
  constexpr int N = kPackSize<T>;
  extern __shared__ uint4 shared[];
  let_next_grid_start();
  const uint32_t lane = threadIdx.x % 32;
  uint32_t image = blockIdx.x * (kMmaThreads / 32) + threadIdx.x / 32;
  const bool works = image < args.warps;
  const uint32_t chunk = args.row_warps.divmod(image);
  const uint32_t channel = args.channels.divmod(image);
  uint32_t group = channel;
  const uint32_t out_channel = args.group_channels.divmod(group);
  uint4* const packs = shared + threadIdx.x / 32 * args.in_channels * args.warp_packs;
  wait_for_grid_before();
  if (!works) return;

  T* const to = static_cast<T*>(args.to) + image * args.to_batch + channel * args.to_channel;
  const auto misaligned = static_cast<int32_t>(reinterpret_cast<uintptr_t>(to) / sizeof(T) % N);
  const int32_t begin = static_cast<int32_t>(chunk * args.warp_tiles * kMmaTile) - misaligned;
  const int32_t first = begin - args.padding;  // the first tap's place
  const T* const from = static_cast<const T*>(args.from) + image * args.from_batch +
                        int64_t{group} * args.in_channels * args.from_channel;
  const T* const weight = static_cast<const T*>(args.weight) + group * args.weight_group +
                          out_channel * args.weight_out;
  const Rows<T> rows{args.first_pack, args.last_pack};
  const auto ahead_of = [&](const T* row) {
    return static_cast<int32_t>(reinterpret_cast<uintptr_t>(row + first) / sizeof(T) % N);
  };
  for (uint32_t c = 0; c < args.in_channels; ++c) {
    const T* const row = from + c * args.from_channel;
    rows.copy_packs(packs + c * args.warp_packs, row, first - ahead_of(row), args.from_size,
                    static_cast<int32_t>(args.warp_packs), static_cast<int32_t>(lane), 32);
  }

  // An output by itself, from the warp's shared memory.
  const auto sum_at = [&](int32_t offset) {
    float sum = 0;
    for (uint32_t c = 0; c < args.in_channels; ++c) {
      const auto* input = reinterpret_cast<const T*>(packs + c * args.warp_packs) +
                          ahead_of(from + c * args.from_channel) + offset;
      for (int32_t k = 0; k < args.taps; ++k) {
        sum = multiply_add(to_compute(input[k * args.dilation.divisor]),
                           to_compute(weight[c * args.weight_in + k * args.weight_tap]), sum);
      }
    }
    return sum;
  };
  const auto pair_of = [](float first, float second) {
    const Pack<T, 2> pack{from_compute<T>(first), from_compute<T>(second)};
    uint32_t word;
    memcpy(&word, &pack, sizeof(word));
    return word;
  };

  const auto tiles = static_cast<int>(args.warp_tiles);
  float sums[kMmaTiles][4] = {};
  const auto span = static_cast<int32_t>((args.taps - 1) * args.dilation.divisor);
  bool waits = true;
  for (uint32_t c = 0; c < args.in_channels; ++c) {
    const int32_t ahead = ahead_of(from + c * args.from_channel);
    const uint4* const own_packs = packs + c * args.warp_packs;
    const uint32_t address = matrix_address(own_packs);
    // The tap of row j and column n lies j - n - ahead places behind the first.
    const auto tap_at = [&](int32_t place) -> uint32_t {
      if (static_cast<uint32_t>(place) > static_cast<uint32_t>(span)) return 0;
      auto k = static_cast<uint32_t>(place);
      if (kDilated && args.dilation.divmod(k) != 0) return 0;
      const T tap = weight[c * args.weight_in + int64_t{k} * args.weight_tap];
      uint16_t bits;
      memcpy(&bits, &tap, sizeof(bits));
      return bits;
    };
    const int32_t own =
        static_cast<int32_t>(2 * (lane % 4)) - static_cast<int32_t>(lane / 4) - ahead;
    for (int32_t step = 0; step <= span + ahead + 7; step += 16) {
      TapPairs<T> taps;
      taps.low = tap_at(own + step) | tap_at(own + step + 1) << 16;
      taps.high = tap_at(own + step + 8) | tap_at(own + step + 9) << 16;
      if (waits) {
        wait_for_copies();
        __syncwarp();
        waits = false;
      }
      const auto multiply = [&]<int... kTile>(std::integer_sequence<int, kTile...>) {
        ((kTile < tiles ? multiply_tile<kTile, T>(sums[kTile], address + step * sizeof(T),
                                                  own_packs + step / N, taps)
                        : void()),
         ...);
      };
      multiply(std::make_integer_sequence<int, kMmaTiles>());
    }
  }

  float total = 0;
#pragma unroll
  for (int m = 0; m < kMmaTiles; ++m) {
    total += (sums[m][0] + sums[m][1]) + (sums[m][2] + sums[m][3]);
  }
  const auto offset_of = [lane](int m, int half) {
    return m * kMmaTile + half * (kMmaTile / 2) + static_cast<int32_t>(2 * lane);
  };
  if (total != total) {
    // Perhaps a tap of 0 times an infinite value that isn't under an output at all.
#pragma unroll
    for (int m = 0; m < kMmaTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (m < tiles && sums[m][i] != sums[m][i]) {
          sums[m][i] = sum_at(offset_of(m, i / 2) + i % 2);
        }
      }
    }
  }
  if (args.bias != nullptr) {
    const float bias = to_compute(static_cast<const T*>(args.bias)[channel * args.bias_stride]);
#pragma unroll
    for (int m = 0; m < kMmaTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][i] += bias;
    }
  }
  if (args.activation != Activation::kNone) {
#pragma unroll
    for (int m = 0; m < kMmaTiles; ++m) activate(sums[m], args.activation);
  }
  if (begin >= 0 && begin <= args.to_size - tiles * kMmaTile) {
#pragma unroll
    for (int m = 0; m < kMmaTiles; ++m) {
      if (m < tiles) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          *reinterpret_cast<uint32_t*>(to + begin + offset_of(m, half)) =
              pair_of(sums[m][2 * half], sums[m][2 * half + 1]);
        }
      }
    }
    return;
  }
#pragma unroll
  for (int m = 0; m < kMmaTiles; ++m) {
    if (m < tiles) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t place = begin + offset_of(m, half);
        if (place >= 0 && place + 1 < args.to_size) {
          *reinterpret_cast<uint32_t*>(to + place) =
              pair_of(sums[m][2 * half], sums[m][2 * half + 1]);
        } else if (place >= 0 && place < args.to_size) {
          to[place] = from_compute<T>(sums[m][2 * half]);
        } else if (place == -1) {
          to[0] = from_compute<T>(sums[m][2 * half + 1]);
        }
      }
    }
  }
}

}  // namespace gpuopt::conv1d
