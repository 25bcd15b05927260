// A tile in shared memory. Each thread copies its own units there and reads only these, so there is
// no barrier. No register holds a tile while its loads are in flight or its block waits for others:
// an SM has 192 KB of tiles in flight.
#pragma once

#include "common/async.cuh"
#include "scan/device/scan_kernel.cuh"

namespace gpuopt::scan {

extern __shared__ uint4 scan_tiles[];  // [buffers][units][inputs][threads]

template <typename Op, typename In, typename Mid, int N>
struct Stage {
  using M = Memory<Op, In, Mid, N>;
  using Raw = typename M::Raw;
  using Unit = std::conditional_t<M::kAny, Vec<typename Op::Stored, 1>, Vec<In, M::kAny ? 1 : N>>;
  static constexpr bool kAsync = !M::kAny && sizeof(Unit) >= 4;
  static constexpr int kBatch = 4;  // units that are loaded at once

  // Bytes of a thread for each unit.
  static constexpr int kBytes = static_cast<int>(sizeof(Unit)) * Op::kInputs;

  Unit* own;  // the thread's first unit

  __device__ __forceinline__ Stage(uint32_t buffer, uint32_t units)
      : own(reinterpret_cast<Unit*>(scan_tiles) + buffer * units * Op::kInputs * blockDim.x +
            threadIdx.x) {}

  __device__ __forceinline__ Unit* slot(uint32_t unit, int input) const {
    return own + (unit * Op::kInputs + input) * blockDim.x;
  }

  // Starts to copy units `first` to `first` + kBatch - 1. valid[i] is N, or 0 if a unit does not
  // exist.
  __device__ __forceinline__ void load(const Args& args, uint32_t first,
                                       const Offsets (&offsets)[kBatch],
                                       const int (&valid)[kBatch]) const {
    if constexpr (kAsync) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (valid[i] == 0) continue;
        copy_async<In, N>(reinterpret_cast<In*>(slot(first + i, 0)),
                          static_cast<const In*>(args.in) + offsets[i].in);
        if constexpr (Op::kInputs == 2) {
          In* to = reinterpret_cast<In*>(slot(first + i, 1));
          const In* second = static_cast<const In*>(args.second) + offsets[i].second;
          if (N == 1 || !args.second_is_one) {
            copy_async<In, N>(to, second);
          } else if constexpr (sizeof(In) >= 4) {
            copy_async<In, 1>(to, second);
          } else {
            *to = *second;
          }
        }
      }
    } else {
      Raw raw[kBatch];
      M::load(args, offsets, valid, raw);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (valid[i] != 0) put(first + i, raw[i]);
      }
    }
  }

  __device__ __forceinline__ void put(uint32_t unit, const Raw& raw) const {
    if constexpr (Op::kInputs == 2) {
      *slot(unit, 0) = raw.first;
      *slot(unit, 1) = raw.second;
    } else {
      *slot(unit, 0) = raw;
    }
  }

  __device__ __forceinline__ Raw get(const Args& args, uint32_t unit) const {
    if constexpr (Op::kInputs == 2) {
      Raw raw;
      raw.first = read(slot(unit, 0));
      if (N > 1 && args.second_is_one) {
        const In one = slot(unit, 1)->values[0];
#pragma unroll
        for (int v = 0; v < N; ++v) raw.second.values[v] = one;
      } else {
        raw.second = read(slot(unit, 1));
      }
      return raw;
    } else {
      return read(slot(unit, 0));
    }
  }

 private:
  __device__ __forceinline__ static Unit read(const Unit* from) {
    if constexpr (sizeof(Unit) == 16 && !M::kAny && N > 1) {
      return vec_of<In>(load_shared_whole(reinterpret_cast<const uint4*>(from)));
    } else {
      return *from;
    }
  }
};

}  // namespace gpuopt::scan
