// Tiles of a selective scan: a block's channels and a few positions, moved between global memory
// and shared memory, where the values have the compute type.
//
//   rows       [channels][positions + padding]   of u, delta and others
//   matrices   [positions][states + padding]     B and C: all channels of a block share them
//
// The padding of 16 bytes makes vectors of neighbouring rows begin at different banks.
#pragma once

#include "common/vec.cuh"
#include "scan/selective/selective_math.cuh"
#include "scan/selective/selective_plan.h"

namespace gpuopt::selective {

// The same value. The compiler computes what depends on it where it is used, and does not keep it
// in registers for the whole kernel. Addresses of tiles would fill 50 registers.
template <typename I>
__device__ __forceinline__ I recomputed(I value) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(I) == 8) {
    asm volatile("" : "+l"(value));
  } else {
    asm volatile("" : "+r"(value));
  }
#endif
  return value;
}

// R neighbouring values in memory, moved as vectors if they are aligned.
template <typename T, int R>
struct Run {
  static constexpr int V = R < kVecSize<T> ? R : kVecSize<T>;
  Vec<T, V> vecs[R / V];

  __device__ __forceinline__ compute_t<T> operator[](int i) const {
    return to_compute(vecs[i / V].values[i % V]);
  }
  __device__ __forceinline__ void set(int i, compute_t<T> value) {
    vecs[i / V].values[i % V] = from_compute<T>(value);
  }
};

template <typename T, int R>
__device__ __forceinline__ bool is_aligned(const T* data) {
  return reinterpret_cast<uintptr_t>(data) % sizeof(Vec<T, Run<T, R>::V>) == 0;
}

// N neighbouring values of a row in shared memory.
template <int N, typename C>
__device__ __forceinline__ Run<C, N> load_row(const C* row) {
  Run<C, N> run;
  constexpr int V = Run<C, N>::V;
#pragma unroll
  for (int i = 0; i < N / V; ++i) run.vecs[i] = load_vec<C, V>(row + i * V);
  return run;
}

// M neighbouring states of a position, which are aligned to 16 bytes.
template <int M, typename C>
__device__ __forceinline__ Vec<C, M> load_shared_states(const C* matrix) {
  const auto run = load_row<M>(matrix);
  Vec<C, M> states;
#pragma unroll
  for (int i = 0; i < M; ++i) states.values[i] = run[i];
  return states;
}

// Where a block is: its batch, and its channels of one group.
struct Block {
  int64_t batch, group;
  int64_t first;   // channel of set 0
  int64_t end;     // the first channel behind the group
  int64_t number;  // of the block in its group

  __device__ Block(const Problem& problem, const Plan& plan, int channels) {
    const auto groups = static_cast<uint32_t>(problem.groups);
    const auto parts = static_cast<uint32_t>(plan.parts);
    number = blockIdx.x % parts;
    group = blockIdx.x / parts % groups;
    batch = blockIdx.x / parts / groups;
    const int64_t own = static_cast<uint32_t>(problem.channels) / groups;
    first = group * own + number * channels * plan.sets;
    end = (group + 1) * own;
  }
};

// The run of a tile that a thread moves. Runs lie along channels if these are neighbours in memory.
template <typename Layout>
struct TileRun {
  static constexpr int R = Layout::kRun, kChannels = Layout::kChannels, kTile = Layout::kTile;
  int channel, position;  // in the tile
  bool used, along_channels;

  __device__ explicit TileRun(const Problem& problem) {
    int run = static_cast<int>(threadIdx.x);
    used = run < kChannels * kTile / R;
    along_channels = problem.channels_last && kChannels >= R;
    if (!along_channels) {
      position = run % (kTile / R) * R;
      channel = run / (kTile / R);
      return;
    }
    // Two lanes share 32 bytes of a row, a sector. The other lanes have other positions: their
    // stores to shared memory go to different banks.
    constexpr int pair = kChannels / R >= 2 ? 2 : 1;
    channel = run % pair * R;
    run /= pair;
    position = run % kTile;
    channel += run / kTile * pair * R;
  }

  // The values of the run inside of the tensor.
  __device__ __forceinline__ int valid(int64_t channels_left, int64_t positions_left) const {
    const int64_t rows = channels_left - channel, columns = positions_left - position;
    if (!used || rows <= 0 || columns <= 0) return 0;
    return static_cast<int>(min(along_channels ? rows : columns, int64_t{R}));
  }

  // The row of value i in shared memory, and its index.
  __device__ __forceinline__ int row(int i) const { return channel + (along_channels ? i : 0); }
  __device__ __forceinline__ int index(int i, int pitch) const {
    return along_channels ? (channel + i) * pitch + position : channel * pitch + position + i;
  }
};

// The address of a run, whose tile begins at a channel and a position.
template <typename T, typename Layout>
__device__ __forceinline__ T* address_of(const Sequence& sequence, const TileRun<Layout>& own_run,
                                         int64_t batch, int64_t channel, int64_t position) {
  return static_cast<T*>(sequence.data) + recomputed(batch) * sequence.batch +
         (recomputed(channel) + own_run.channel) * sequence.channel +
         (recomputed(position) + own_run.position) * sequence.position;
}

template <typename T, int R, typename Layout>
__device__ __forceinline__ Run<T, R> load_run(const Sequence& sequence,
                                              const TileRun<Layout>& own_run, int64_t batch,
                                              int64_t channel, int64_t position, int valid) {
  Run<T, R> run = {};
  if (valid == 0) return run;
  const T* from = address_of<T>(sequence, own_run, batch, channel, position);
  const int64_t stride = own_run.along_channels ? sequence.channel : sequence.position;
  constexpr int V = Run<T, R>::V;
  if (valid == R && stride == 1 && is_aligned<T, R>(from)) {
#pragma unroll
    for (int i = 0; i < R / V; ++i) run.vecs[i] = load_vec<T, V>(from + i * V);
  } else {
#pragma unroll
    for (int i = 0; i < R; ++i, from += stride) {
      if (i < valid) run.vecs[i / V].values[i % V] = *from;
    }
  }
  return run;
}

template <typename T, int R, typename Layout>
__device__ __forceinline__ void store_run(const Run<T, R>& run, const Sequence& sequence,
                                          const TileRun<Layout>& own_run, int64_t batch,
                                          int64_t channel, int64_t position, int valid) {
  if (valid == 0) return;
  T* to = address_of<T>(sequence, own_run, batch, channel, position);
  const int64_t stride = own_run.along_channels ? sequence.channel : sequence.position;
  constexpr int V = Run<T, R>::V;
  if (valid == R && stride == 1 && is_aligned<T, R>(to)) {
#pragma unroll
    for (int i = 0; i < R / V; ++i) store_vec<T, V>(to + i * V, run.vecs[i]);
  } else {
#pragma unroll
    for (int i = 0; i < R; ++i, to += stride) {
      if (i < valid) *to = run.vecs[i / V].values[i % V];
    }
  }
}

// A tile of B or C on its way to shared memory. States and positions beyond the tensor become 0.
// Neighbouring threads load values that are neighbours in memory. Offsets in a tile have 32 bits.
template <typename C, typename Layout>
struct MatrixTile {
  static constexpr int kInFlight = 4, kTile = Layout::kTile, kPadded = Layout::kPadded;
  static constexpr int kPitch = kPadded + 16 / static_cast<int>(sizeof(C));
  C values[kInFlight];

  // Loads each thread's values from its value `first` on.
  __device__ __forceinline__ void load(const Matrix& matrix, const Problem& problem,
                                       const Block& block, int64_t position, int first) {
    const int64_t base = recomputed(block.batch) * matrix.batch + block.group * matrix.group +
                         position * matrix.position;
    const int positions = static_cast<int>(min(problem.length - position, int64_t{kTile}));
    const int states = static_cast<int>(problem.states);
    const int state_stride = static_cast<int>(matrix.state);
    const int position_stride = static_cast<int>(matrix.position);
    with_type(matrix.dtype, [&](const auto* type) {
      const auto* from = static_cast<decltype(type)>(matrix.data) + base;
      each(matrix, first, [&](int k, int p, int n) {
        values[k] = 0;
        if (p < positions && n < states) {
          values[k] = static_cast<C>(to_compute(from[n * state_stride + p * position_stride]));
        }
      });
    });
  }

  __device__ __forceinline__ void store(C* shared, const Matrix& matrix, int first) const {
    each(matrix, first, [&](int k, int p, int n) {
      if (p < kTile && n < kPadded) shared[p * kPitch + n] = values[k];
    });
  }

 private:
  // Calls f with the index, position and state of each value.
  template <typename F>
  __device__ __forceinline__ static void each(const Matrix& matrix, int first, F&& f) {
    const int thread = recomputed(static_cast<int>(threadIdx.x));
    const bool by_state = matrix.state == 1 && matrix.position != 1;
    // Value number `thread + k * kThreads`: its index along the inner dimension is the remainder.
    const int inner = by_state ? thread % kPadded : thread % kTile;
    const int outer = by_state ? thread / kPadded : thread / kTile;
    const int step = by_state ? kThreads / kPadded : kThreads / kTile;
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if constexpr (kPadded <= kThreads) {
        const int at = outer + (first + k) * step;
        f(k, by_state ? at : inner, by_state ? inner : at);
      } else {
        const int i = thread + (first + k) * kThreads;
        f(k, by_state ? i / kPadded : i % kTile, by_state ? i % kPadded : i / kTile);
      }
    }
  }
};

// Loads a tile of B or C into shared memory. `ahead` holds the first values already, if given.
template <typename C, typename Layout>
__device__ __forceinline__ void load_matrix(C* shared, const Matrix& matrix, const Problem& problem,
                                            const Block& block, int64_t position,
                                            const MatrixTile<C, Layout>* ahead) {
  using Tile = MatrixTile<C, Layout>;
  constexpr int kValues = (Layout::kTile * Layout::kPadded + kThreads - 1) / kThreads;
  if (ahead != nullptr) ahead->store(shared, matrix, 0);
#pragma unroll 1
  for (int first = ahead != nullptr ? Tile::kInFlight : 0; first < kValues;
       first += Tile::kInFlight) {
    Tile tile;
    tile.load(matrix, problem, block, position, first);
    tile.store(shared, matrix, first);
  }
}

// Loads a value for each channel of a set into shared memory; 0 without `data`.
template <typename C>
__device__ __forceinline__ void load_channels(C* shared, const void* data, int64_t first,
                                              int64_t end, int channels) {
  const int64_t channel = first + threadIdx.x;
  if (threadIdx.x >= channels) return;
  const bool given = data != nullptr && channel < end;
  shared[threadIdx.x] = given ? static_cast<const C*>(data)[channel] : C{0};
}

// M values of a row of states. Only `valid` of them exist; the others become 0.
template <typename C, int M>
__device__ __forceinline__ Vec<C, M> load_states(const C* row, int valid) {
  Vec<C, M> states = {};
#pragma unroll
  for (int i = 0; i < M; ++i) {
    if (i < valid) states.values[i] = row[i];
  }
  return states;
}

template <typename C, int M>
__device__ __forceinline__ void store_states(C* row, const Vec<C, M>& states, int valid) {
#pragma unroll
  for (int i = 0; i < M; ++i) {
    if (i < valid) row[i] = states.values[i];
  }
}

// A thread's row of a constant B or C.
template <typename C, int M>
__device__ __forceinline__ Vec<C, M> load_constant(const Matrix& matrix, int64_t channel,
                                                   int64_t state, int valid) {
  Vec<C, M> values = {};
#pragma unroll
  for (int i = 0; i < M; ++i) {
    if (i < valid) {
      values.values[i] = load_as<C>(
          matrix.data, channel * matrix.group + (state + i) * matrix.state, matrix.dtype);
    }
  }
  return values;
}

}  // namespace gpuopt::selective
