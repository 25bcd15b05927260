// Tiles of columns in shared memory that all threads of a block copy together. scan_tiles.h draws
// how they lie there.
#pragma once

#include "common/async.cuh"
#include "scan/device/scan_kernel.cuh"

namespace gpuopt::scan {

extern __shared__ uint4 scan_tiles[];  // tiles: [buffers][in, second], then the results

// The part of a tensor that a tile covers.
struct TileBox {
  int64_t offset;      // of the first value
  uint32_t phase;      // its position in shared memory, less than a vector
  uint32_t counts[3];  // values along each axis that exist
};

__device__ __forceinline__ uint32_t count_of(const TileBox& box, uint32_t axis) {
  return axis == 0 ? box.counts[0] : axis == 1 ? box.counts[1] : box.counts[2];
}

// Calls use(position, offset, begin, end) for vectors of N values of a tile, shared out among the
// threads: the position in shared memory and the offset in the tensor of a vector, and its values
// that belong to the tile.
template <int N, typename Use>
__device__ __forceinline__ void for_each_vec(const TileTensor& tensor, const TileBox& box,
                                             const Use& use) {
  const uint32_t inner = tensor.order[0], middle = tensor.order[1], last = tensor.order[2];
  const uint32_t middles = count_of(box, middle);
  const auto length = static_cast<int32_t>(count_of(box, inner) * (tensor.is_flat ? middles : 1));
  const uint32_t segments = tensor.is_flat ? 1 : middles;
  const uint32_t step = tensor.steps[middle], last_step = tensor.steps[last];
  const int64_t value_stride = N > 1 ? 1 : tensor.strides[inner];
  const int64_t stride = tensor.strides[middle], last_stride = tensor.strides[last];
  const uint32_t all = tensor.vecs.divisor * tensor.segments.divisor * count_of(box, last);
#pragma unroll 4
  for (uint32_t v = threadIdx.x; v < all; v += blockDim.x) {
    uint32_t j = v;
    const uint32_t vec = tensor.vecs.divmod(j), i = tensor.segments.divmod(j);
    const uint32_t start = box.phase + i * step + j * last_step, shift = start % N;
    const auto first = static_cast<int32_t>(vec * N - shift);  // in the segment
    const int32_t begin = max(-first, 0), end = min(length - first, N);
    if (i >= segments || begin >= end) continue;
    use(start + first, box.offset + i * stride + j * last_stride + first * value_stride, begin,
        end);
  }
}

// Starts to copy a tile to shared memory. All values are in the order of memory.
template <typename T, int N>
__device__ __forceinline__ void load_tile(const TileTensor& tensor, const TileBox& box,
                                          const T* from, T* to) {
  for_each_vec<N>(tensor, box, [&](uint32_t position, int64_t offset, int begin, int end) {
    if constexpr (N == 1 && sizeof(T) < 4) {
      to[position] = from[offset];
    } else {
      // A whole vector is read if the tensor's memory holds it, whatever belongs to the tile.
      if ((begin == 0 && end == N) || (offset >= 0 && offset + N <= tensor.span)) {
        copy_async<T, N>(to + position, from + offset);
        return;
      }
#pragma unroll 1
      for (int e = begin; e < end; ++e) to[position + e] = from[offset + e];
    }
  });
}

template <typename T, int N>
__device__ __forceinline__ void store_tile(const TileTensor& tensor, const TileBox& box,
                                           const T* from, T* to) {
  for_each_vec<N>(tensor, box, [&](uint32_t position, int64_t offset, int begin, int end) {
    if constexpr (N > 1) {
      if (begin == 0 && end == N) {
        const auto words = load_shared_whole(reinterpret_cast<const uint4*>(from + position));
        store_whole(to + offset, vec_of<T>(words));
        return;
      }
    }
#pragma unroll 1
    for (int e = begin; e < end; ++e) to[offset + e] = from[position + e];
  });
}

}  // namespace gpuopt::scan
