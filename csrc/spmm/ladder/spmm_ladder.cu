// The steps of spmm_ladder.h. docs/ladder shows the code of a step between two equal marks in
// brackets.
#include <cassert>

#include "common/index.h"
#include "common/types.cuh"
#include "common/vec.cuh"
#include "spmm/ladder/spmm_ladder.h"

namespace gpuopt::spmm {
namespace {

constexpr int kThreads = 128;

// The operands of a product.
template <typename T>
struct Product {
  const int32_t* ptr;    // [rows + 1]
  const int32_t* index;  // [entries]
  const T* value;        // [entries]; null: 1
  const T* dense;        // [columns][features]
  T* out;                // [rows][features]
  int64_t rows, columns, features;

  __device__ __forceinline__ bool has_column(int64_t column) const {
    return static_cast<uint64_t>(column) < static_cast<uint64_t>(columns);
  }
  __device__ __forceinline__ float weight(int64_t entry) const {
    return value == nullptr ? 1.0f : to_compute(value[entry]);
  }
};

// [thread_per_row]
// The sum of one feature over the entries of a row.
template <typename T>
__device__ float row_sum(const Product<T>& a, int64_t row, int64_t feature) {
  float sum = 0;
  const int64_t end = a.ptr[row + 1];
  for (int64_t entry = a.ptr[row]; entry < end; ++entry) {
    const int64_t column = a.index[entry];
    assert(a.has_column(column));
    sum += a.weight(entry) * to_compute(a.dense[column * a.features + feature]);
  }
  return sum;
}

template <typename T>
__global__ void thread_per_row(Product<T> a) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.rows * a.features) return;
  const int64_t row = i % a.rows, feature = i / a.rows;
  a.out[row * a.features + feature] = from_compute<T>(row_sum(a, row, feature));
}
// [thread_per_row]

// [warp_per_row]
template <typename T>
__global__ void warp_per_row(Product<T> a) {
  const int64_t warp = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  const int64_t tiles = (a.features + 31) / 32;
  const int64_t row = warp / tiles, feature = warp % tiles * 32 + threadIdx.x % 32;
  if (row >= a.rows || feature >= a.features) return;
  a.out[row * a.features + feature] = from_compute<T>(row_sum(a, row, feature));
}
// [warp_per_row]

// [vectors]
// Adds kCount entries to the sums of N neighbouring features. No load waits for the value of
// another entry, so all of them are in flight together.
template <int kCount, typename T, int N>
__device__ __forceinline__ void add_some(const Product<T>& a, int64_t first, int64_t feature,
                                         float (&sums)[N]) {
  int64_t columns[kCount];
  float weights[kCount];
  Vec<T, N> values[kCount];
  bool in_range = true;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    columns[k] = a.index[first + k];
    weights[k] = a.weight(first + k);
    in_range &= a.has_column(columns[k]);
  }
  assert(in_range);
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    values[k] = load_vec<T, N>(a.dense + columns[k] * a.features + feature);
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
#pragma unroll
    for (int j = 0; j < N; ++j) sums[j] += weights[k] * to_compute(values[k].values[j]);
  }
}

template <typename T, int N>
__device__ __forceinline__ void add_entries(const Product<T>& a, int64_t begin, int64_t end,
                                            int64_t feature, float (&sums)[N]) {
  int64_t entry = begin;
  for (; entry + 4 <= end; entry += 4) add_some<4>(a, entry, feature, sums);
  for (; entry + 2 <= end; entry += 2) add_some<2>(a, entry, feature, sums);
  if (entry < end) add_some<1>(a, entry, feature, sums);
}

template <typename T, int N>
__device__ __forceinline__ void write_row(const Product<T>& a, int64_t row, int64_t feature,
                                          const float (&sums)[N]) {
  Vec<T, N> rounded;
#pragma unroll
  for (int j = 0; j < N; ++j) rounded.values[j] = from_compute<T>(sums[j]);
  store_vec(a.out + row * a.features + feature, rounded);
}

// A group is `lanes` threads, a power of two of at most 32. It has a row.
template <typename T, int N>
__global__ void vectors(Product<T> a, int lanes) {
  const int64_t row = int64_t{blockIdx.x} * (kThreads / lanes) + threadIdx.x / lanes;
  if (row >= a.rows) return;
  for (int64_t feature = threadIdx.x % lanes * N; feature < a.features; feature += lanes * N) {
    float sums[N] = {};
    add_entries(a, a.ptr[row], a.ptr[row + 1], feature, sums);
    write_row(a, row, feature, sums);
  }
}
// [vectors]

// [split_rows]
// The number of rows that come before something, by binary search.
template <typename IsBefore>
__device__ int64_t count_rows(int64_t rows, IsBefore is_before) {
  int64_t low = 0, high = rows;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (is_before(middle)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// A long row is cut at every entry whose number is a multiple of `piece`:
//
//   entries   0         piece     2 * piece
//   pieces    |    0    |    1    |    2    |
//   rows      |short|       long        |short |
//   cut into        | 0 |    1    |  2  |
//
// The first kernel adds pieces of long rows, parts[number][feature]. In the second one, each row's
// group adds the entries before the first cut, and then the parts in order.
template <typename T, int N>
__global__ void add_pieces(Product<T> a, float* parts, int64_t piece, int64_t pieces, int lanes) {
  const int64_t number = int64_t{blockIdx.x} * (kThreads / lanes) + threadIdx.x / lanes;
  if (number >= pieces) return;
  const int64_t begin = number * piece;
  const int64_t row = count_rows(a.rows, [&](int64_t other) { return a.ptr[other] <= begin; }) - 1;
  const int64_t end = a.ptr[row + 1];
  if (end - a.ptr[row] <= piece) return;
  for (int64_t feature = threadIdx.x % lanes * N; feature < a.features; feature += lanes * N) {
    float sums[N] = {};
    add_entries(a, begin, min(begin + piece, end), feature, sums);
    for (int j = 0; j < N; ++j) parts[number * a.features + feature + j] = sums[j];
  }
}

template <typename T, int N>
__global__ void split_rows(Product<T> a, const float* parts, int64_t piece, int lanes) {
  const int64_t row = int64_t{blockIdx.x} * (kThreads / lanes) + threadIdx.x / lanes;
  if (row >= a.rows) return;
  const int64_t begin = a.ptr[row], end = a.ptr[row + 1];
  const int64_t cut = (begin + piece - 1) / piece;
  const int64_t head_end = end - begin > piece ? cut * piece : end;
  for (int64_t feature = threadIdx.x % lanes * N; feature < a.features; feature += lanes * N) {
    float sums[N] = {};
    add_entries(a, begin, head_end, feature, sums);
    for (int64_t number = cut; head_end < end && number * piece < end; ++number) {
      for (int j = 0; j < N; ++j) sums[j] += parts[number * a.features + feature + j];
    }
    write_row(a, row, feature, sums);
  }
}
// [split_rows]

// [equal_entries]
// The path lists each row, followed by its entries. Row r has position ptr[r] + r. A window is
// `length` positions of the path: rows `row` to `end_row` begin in it, and it has entries `begin`
// to `end`. Entries before row `row` belong to the row before.
struct Window {
  int64_t row, end_row;
  int64_t begin, end;
};

template <typename T>
__device__ Window window_of(const Product<T>& a, int64_t number, int64_t length) {
  const auto rows_before = [&](int64_t position) {
    return count_rows(a.rows, [&](int64_t row) { return a.ptr[row] + row < position; });
  };
  const int64_t first = number * length, last = first + length;
  const int64_t row = rows_before(first), end_row = rows_before(last);
  return {row, end_row, first - row, min(last - end_row, int64_t{a.ptr[a.rows]})};
}

// Adds the entries of a window row by row. A row that begins and ends in it is written. The window
// has two parts, parts[2][features]: of the row that began before, and of the row that does not
// end.
template <typename T, int N>
__device__ __forceinline__ void add_window(const Product<T>& a, const Window& window,
                                           int64_t feature, float* parts) {
  int64_t begin = window.begin;
  for (int64_t row = max(window.row - 1, int64_t{0}); row < window.end_row; ++row) {
    const int64_t row_end = a.ptr[row + 1], end = min(row_end, window.end);
    float sums[N] = {};
    add_entries(a, begin, end, feature, sums);
    if (row >= window.row && row_end <= window.end) {
      write_row(a, row, feature, sums);
    } else {
      float* const part = parts + (row < window.row ? 0 : a.features) + feature;
      for (int j = 0; j < N; ++j) part[j] = sums[j];
    }
    begin = end;
  }
}

template <typename T, int N>
__global__ void equal_entries(Product<T> a, float* parts, int64_t length, int64_t windows,
                              int lanes) {
  const int64_t number = int64_t{blockIdx.x} * (kThreads / lanes) + threadIdx.x / lanes;
  if (number >= windows) return;
  const Window window = window_of(a, number, length);
  for (int64_t feature = threadIdx.x % lanes * N; feature < a.features; feature += lanes * N) {
    add_window<T, N>(a, window, feature, parts + 2 * number * a.features);
  }
}

// The group of a window adds the parts of the row that begins in it and ends in another one.
template <typename T, int N>
__global__ void add_parts(Product<T> a, const float* parts, int64_t length, int64_t windows,
                          int lanes) {
  const int64_t number = int64_t{blockIdx.x} * (kThreads / lanes) + threadIdx.x / lanes;
  if (number >= windows) return;
  const Window window = window_of(a, number, length);
  const int64_t row = window.end_row - 1;
  if (row < window.row || a.ptr[row + 1] <= window.end) return;
  const int64_t last = (a.ptr[row + 1] + row) / length;  // the window of the row's last entry
  for (int64_t feature = threadIdx.x % lanes * N; feature < a.features; feature += lanes * N) {
    float sums[N];
    for (int j = 0; j < N; ++j) sums[j] = parts[(2 * number + 1) * a.features + feature + j];
    for (int64_t next = number + 1; next <= last; ++next) {
      for (int j = 0; j < N; ++j) sums[j] += parts[2 * next * a.features + feature + j];
    }
    write_row(a, row, feature, sums);
  }
}
// [equal_entries]

// [feature_slices]
// Blocks begin in the order of their numbers, so the grid has all windows of a slice of `width`
// features before the windows of the next slice. add_parts comes after it.
template <typename T, int N>
__global__ void feature_slices(Product<T> a, float* parts, int64_t length, int64_t windows,
                               int64_t width, unsigned blocks, int lanes) {
  const int64_t slice = blockIdx.x / blocks, block = blockIdx.x % blocks;
  const int64_t number = block * (kThreads / lanes) + threadIdx.x / lanes;
  if (number >= windows) return;
  const Window window = window_of(a, number, length);
  const int64_t first = slice * width, end = min(first + width, a.features);
  for (int64_t feature = first + threadIdx.x % lanes * N; feature < end; feature += lanes * N) {
    add_window<T, N>(a, window, feature, parts + 2 * number * a.features);
  }
}
// [feature_slices]

// The arguments of a launcher.
struct Call {
  const LadderProblem& problem;
  Workspace& workspace;
  cudaStream_t stream;

  template <typename T>
  Product<T> product() const {
    return {problem.ptr,
            problem.index,
            static_cast<const T*>(problem.value),
            static_cast<const T*>(problem.dense),
            static_cast<T*>(problem.out),
            problem.rows,
            problem.columns,
            problem.features};
  }
  // Parts of rows, [count][features].
  float* parts(int64_t count) const {
    return static_cast<float*>(workspace.allocate(count * problem.features * sizeof(float)));
  }
};

// The threads of a group whose threads have N of `features` features each.
int lanes_of(int64_t features, int N) {
  return static_cast<int>(min(int64_t{kWarp}, pow2_ceil(ceil_div<int64_t>(features, N))));
}

unsigned blocks_of(int64_t groups, int lanes) {
  return static_cast<unsigned>(ceil_div<int64_t>(groups, kThreads / lanes));
}

// The widest slice that fills at most half of the L2 cache, over all dense rows. The other half is
// for the matrix and the results.
int64_t slice_width(const LadderProblem& problem) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  int64_t width = problem.tuning.least_slice_bytes / size;
  while (width < problem.features && 2 * width * size * problem.columns <= problem.l2_bytes / 2) {
    width *= 2;
  }
  return min(width, problem.features);
}

template <typename T, int N>
cudaError_t launch_split_rows(const Call& call) {
  const LadderProblem& problem = call.problem;
  const int64_t piece = problem.tuning.piece, pieces = ceil_div(problem.entries, piece);
  const int lanes = lanes_of(problem.features, N);
  float* parts = nullptr;
  if (pieces > 0) {
    parts = call.parts(pieces);
    add_pieces<T, N><<<blocks_of(pieces, lanes), kThreads, 0, call.stream>>>(
        call.product<T>(), parts, piece, pieces, lanes);
  }
  split_rows<T, N><<<blocks_of(problem.rows, lanes), kThreads, 0, call.stream>>>(
      call.product<T>(), parts, piece, lanes);
  return cudaGetLastError();
}

template <typename T, int N>
cudaError_t launch_windows(bool in_slices, const Call& call) {
  const LadderProblem& problem = call.problem;
  const int64_t path = problem.rows + problem.entries;
  const int64_t length =
      max(problem.tuning.shortest_window, ceil_div(path, problem.tuning.most_windows));
  const int64_t windows = ceil_div(path, length);
  float* const parts = call.parts(2 * windows);
  const int lanes = lanes_of(problem.features, N);
  if (in_slices) {
    const int64_t width = slice_width(problem), slices = ceil_div(problem.features, width);
    const int slice_lanes = lanes_of(width, N);
    const unsigned blocks = blocks_of(windows, slice_lanes);
    feature_slices<T, N><<<static_cast<unsigned>(blocks * slices), kThreads, 0, call.stream>>>(
        call.product<T>(), parts, length, windows, width, blocks, slice_lanes);
  } else {
    equal_entries<T, N><<<blocks_of(windows, lanes), kThreads, 0, call.stream>>>(
        call.product<T>(), parts, length, windows, lanes);
  }
  add_parts<T, N><<<blocks_of(windows, lanes), kThreads, 0, call.stream>>>(call.product<T>(), parts,
                                                                           length, windows, lanes);
  return cudaGetLastError();
}

template <typename T, int N>
cudaError_t launch_vectors(int step, const Call& call) {
  if (step == 3) return launch_split_rows<T, N>(call);
  if (step > 3) return launch_windows<T, N>(step == 5, call);
  const int lanes = lanes_of(call.problem.features, N);
  vectors<T, N>
      <<<blocks_of(call.problem.rows, lanes), kThreads, 0, call.stream>>>(call.product<T>(), lanes);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch(int step, const Call& call) {
  const LadderProblem& problem = call.problem;
  if (step == 0) {
    thread_per_row<T><<<blocks_of(problem.rows * problem.features, 1), kThreads, 0, call.stream>>>(
        call.product<T>());
    return cudaGetLastError();
  }
  if (step == 1) {
    const int64_t warps = problem.rows * ceil_div<int64_t>(problem.features, kWarp);
    warp_per_row<T><<<blocks_of(warps, kWarp), kThreads, 0, call.stream>>>(call.product<T>());
    return cudaGetLastError();
  }
  const uint64_t bits = reinterpret_cast<uintptr_t>(problem.dense) |
                        reinterpret_cast<uintptr_t>(problem.out) | problem.features * sizeof(T);
  return bits % kAccessBytes == 0 ? launch_vectors<T, kVecSize<T>>(step, call)
                                  : launch_vectors<T, 1>(step, call);
}

}  // namespace

cudaError_t ladder_spmm(int step, const LadderProblem& problem, Workspace& workspace,
                        cudaStream_t stream) {
  if (step < 0 || step > 5) return cudaErrorInvalidValue;
  if (problem.rows == 0 || problem.features == 0) return cudaSuccess;
  const Call call{problem, workspace, stream};
  if (problem.dtype == DType::kFloat32) return launch<float>(step, call);
  if (problem.dtype == DType::kBFloat16) return launch<__nv_bfloat16>(step, call);
  return cudaErrorInvalidValue;
}

}  // namespace gpuopt::spmm
