// Tiles of a selective scan: a block's channels and a few positions, moved between global memory
// and shared memory, where the values have the compute type.
//
//   rows       [channels][positions + padding]   of u, delta and others
//   matrices   [positions][states + padding]     B and C: all channels of a block share them
//
// The padding of 16 bytes makes vectors of neighbouring rows begin at different banks.
#pragma once

#include "common/recomputed.cuh"
#include "common/vec.cuh"
#include "selective_scan/device/selective_scan_math.cuh"
#include "selective_scan/selective_scan_args.h"

namespace gpuopt::selective {

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

// Where a block is: its batch, its channels of one group, and its positions.
struct Block {
  int batch, group;
  int number;           // of the block in its group
  int row;              // of the batch and segment
  int64_t first;        // channel of set 0
  int64_t end;          // the first channel behind the group
  int64_t start, stop;  // positions

  __device__ Block(const Problem& problem, const Tiling& tiling, int channels,
                   int first_segment = 0) {
    const auto groups = static_cast<uint32_t>(problem.groups);
    const auto parts = static_cast<uint32_t>(tiling.parts);
    const auto blocks = static_cast<uint32_t>(tiling.blocks);
    const uint32_t block = blockIdx.x % blocks;
    const int64_t segment = first_segment + blockIdx.x / blocks;
    number = static_cast<int>(block % parts);
    group = static_cast<int>(block / parts % groups);
    batch = static_cast<int>(block / parts / groups);
    const int64_t own = static_cast<uint32_t>(problem.channels) / groups;
    first = group * own + number * channels * tiling.sets;
    end = (group + 1) * own;
    start = segment * tiling.segment;
    stop = min(start + tiling.segment, problem.length);
    row = static_cast<int>(batch * tiling.segments + segment);
  }
};

// The run of a tile that a thread moves. Runs lie along channels if these are neighbours in memory.
template <typename Layout>
struct TileRun {
  static constexpr int R = Layout::kRun, kChannels = Layout::kChannels, kTile = Layout::kTile;
  int channel, position;  // in the tile
  bool used, along_channels;

  __device__ explicit TileRun(const Problem& problem) {
    int run = recomputed(static_cast<int>(threadIdx.x));
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

// Moves the values of a thread's run between registers and rows in shared memory.
template <int R, typename C, typename Layout>
__device__ __forceinline__ void put_run(C* rows, int pitch, const TileRun<Layout>& own_run,
                                        const Run<C, R>& run) {
  if (!own_run.used) return;
  C* const to = rows + own_run.channel * pitch + own_run.position;
  if (own_run.along_channels) {
#pragma unroll
    for (int i = 0; i < R; ++i) to[i * pitch] = run[i];
  } else {
    constexpr int V = Run<C, R>::V;
#pragma unroll
    for (int i = 0; i < R / V; ++i) store_vec<C, V>(to + i * V, run.vecs[i]);
  }
}

template <int R, typename C, typename Layout>
__device__ __forceinline__ Run<C, R> get_run(const C* rows, int pitch,
                                             const TileRun<Layout>& own_run) {
  const C* const from = rows + own_run.channel * pitch + own_run.position;
  Run<C, R> run = {};
  if (!own_run.used) return run;
  if (!own_run.along_channels) return load_row<R>(from);
#pragma unroll
  for (int i = 0; i < R; ++i) run.set(i, from[i * pitch]);
  return run;
}

// The values of the channels of a run, out of one value for each channel.
template <int R, typename C, typename Layout>
__device__ __forceinline__ Run<C, R> get_channels(const C* values, const TileRun<Layout>& own_run) {
  Run<C, R> run = {};
  if (!own_run.used) return run;
  if (own_run.along_channels) return load_row<R>(values + own_run.channel);
  const C value = values[own_run.channel];
#pragma unroll
  for (int i = 0; i < R; ++i) run.set(i, value);
  return run;
}

// A tile of B or C on its way to shared memory. States and positions beyond the tensor become 0.
// A thread moves four neighbouring values, a quad, at once. Offsets in a tile have 32 bits.
template <typename C, typename Layout>
struct MatrixTile {
  static constexpr int kTile = Layout::kTile, kPadded = Layout::kPadded;
  static constexpr int kPitch = kPadded + 16 / static_cast<int>(sizeof(C));
  static constexpr int kQuads = kTile * kPadded / 4;
  static constexpr int kRounds = (kQuads + kThreads - 1) / kThreads;
  static constexpr int kInFlight =
      kRounds < 16 / static_cast<int>(sizeof(C)) ? kRounds : 16 / static_cast<int>(sizeof(C));
  // The inner dimension has a power of 2 quads. By shifts, because the compiler would divide.
  static constexpr int kPositionBits = log2_of(kTile / 4), kStateBits = log2_of(kPadded / 4);
  // Values of 16 bits stay as they are until they are stored, because a conversion waits for them.
  Vec<C, 4> quads[kInFlight];

  // Loads each thread's quads from number `first` on.
  __device__ __forceinline__ void load(const Matrix& matrix, const Problem& problem,
                                       const Block& block, int64_t position, int first) {
    const int64_t base = recomputed(int64_t{block.batch}) * matrix.batch +
                         block.group * matrix.group + position * matrix.position;
    const int positions = static_cast<int>(min(problem.length - position, int64_t{kTile}));
    const int states = static_cast<int>(problem.states);
    const bool by_state = is_by_state(matrix);
    const int inner = static_cast<int>(by_state ? matrix.state : matrix.position);
    const int outer = static_cast<int>(by_state ? matrix.position : matrix.state);
    each(by_state, first, [&](int k, int p, int n) {
      quads[k] = {};
      const int valid = by_state ? states - n : positions - p;
      if (p >= positions || n >= states || valid <= 0) return;
      const int64_t at = base + (by_state ? n : p) * inner + (by_state ? p : n) * outer;
      with_raw_type(matrix.dtype, [&](const auto* type) {
        load_quad(static_cast<decltype(type)>(matrix.data) + at, inner, valid, quads[k]);
      });
    });
  }

  __device__ __forceinline__ void store(C* shared, const Matrix& matrix, int first) const {
    const bool by_state = is_by_state(matrix);
    each(by_state, first, [&](int k, int p, int n) {
      const Vec<C, 4> values = converted(quads[k], matrix.dtype);
      C* const to = shared + p * kPitch + n;
      if (by_state) {
        constexpr int V = kVecSize<C> < 4 ? kVecSize<C> : 4;
#pragma unroll
        for (int i = 0; i < 4 / V; ++i) {
          store_vec<C, V>(to + i * V, reinterpret_cast<const Vec<C, V>*>(&values)[i]);
        }
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i * kPitch] = values.values[i];
      }
    });
  }

 private:
  __device__ __forceinline__ static bool is_by_state(const Matrix& matrix) {
    return kPadded >= 4 && matrix.state == 1 && matrix.position != 1;
  }

  // Calls f with the index, position and state of each quad's first value.
  template <typename F>
  __device__ __forceinline__ static void each(bool by_state, int first, F&& f) {
    const int thread = recomputed(static_cast<int>(threadIdx.x));
    const int bits = by_state ? kStateBits : kPositionBits;
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int quad = thread + (first + k) * kThreads;
      const int inner = (quad & ((1 << bits) - 1)) * 4, outer = quad >> bits;
      if (quad < kQuads) f(k, by_state ? outer : inner, by_state ? inner : outer);
    }
  }

  // Values of 16 bits lie in the first 8 bytes of a quad of f32.
  template <typename T>
  __device__ __forceinline__ static void load_quad(const T* from, int stride, int valid,
                                                   Vec<C, 4>& quad) {
    Vec<T, 4> raw = {};
    constexpr int V = kVecSize<T> < 4 ? kVecSize<T> : 4;
    if (valid >= 4 && stride == 1 && reinterpret_cast<uintptr_t>(from) % sizeof(Vec<T, V>) == 0) {
#pragma unroll
      for (int i = 0; i < 4 / V; ++i) {
        const auto vec = load_vec<T, V>(from + i * V);
#pragma unroll
        for (int j = 0; j < V; ++j) raw.values[i * V + j] = vec.values[j];
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i < valid) raw.values[i] = from[i * stride];
      }
    }
    if constexpr (sizeof(T) == 2) {
      memcpy(&quad, &raw, sizeof(raw));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) quad.values[i] = static_cast<C>(raw.values[i]);
    }
  }

  __device__ __forceinline__ static Vec<C, 4> converted(const Vec<C, 4>& quad, DType dtype) {
    if (dtype == DType::kFloat32 || dtype == DType::kFloat64) return quad;
    Vec<C, 4> result;
    const auto convert_as = [&](auto type) {
      Vec<decltype(type), 4> raw;
      memcpy(&raw, &quad, sizeof(raw));
#pragma unroll
      for (int i = 0; i < 4; ++i) result.values[i] = to_compute(raw.values[i]);
    };
    if (dtype == DType::kFloat16) {
      convert_as(__half{});
    } else {
      convert_as(__nv_bfloat16{});
    }
    return result;
  }
};

// The tiles of B and C. Either may be constant. load() begins both before store() waits.
template <typename C, typename Layout>
struct MatrixTiles {
  using Tile = MatrixTile<C, Layout>;
  Tile B, C_;
  bool has_B, has_C;

  __device__ __forceinline__ void load(const Problem& problem, const Block& block, int64_t position,
                                       int first = 0) {
    if (has_B) B.load(problem.B, problem, block, position, first);
    if (has_C) C_.load(problem.C, problem, block, position, first);
  }
  // Stores what load() has loaded, and moves the rest if there are many states.
  __device__ __forceinline__ void store(C* shared_B, C* shared_C, const Problem& problem,
                                        const Block& block, int64_t position) {
#pragma unroll 1
    for (int first = 0;;) {
      if (has_B) B.store(shared_B, problem.B, first);
      if (has_C) C_.store(shared_C, problem.C, first);
      first += Tile::kInFlight;
      if (first >= Tile::kRounds) break;
      load(problem, block, position, first);
    }
  }
};

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
