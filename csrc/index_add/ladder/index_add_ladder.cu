// The steps of index_add_ladder.h. docs/ladder shows the code of a step between two equal marks in
// brackets.
#include "common/atomic.cuh"
#include "common/index.h"
#include "index_add/device/index_add_values.cuh"
#include "index_add/ladder/index_add_ladder.h"
#include "index_sort/index_sort.cuh"

namespace gpuopt::index_add {
namespace {

constexpr int kThreads = 256;

// The row of self that an entry names. A row out of range fails a device assertion, as in ATen.
__device__ __forceinline__ int64_t row_of(const Index& index, int64_t entry) {
  const int64_t row[] = {static_cast<const int64_t*>(index.values)[entry]};
  index.check(1, row);
  return row[0];
}

// [atomic_per_element]
__global__ void atomic_per_element(float* self, const float* source, Index index, int64_t width,
                                   int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const int64_t entry = i / width, column = i % width;
  atomicAdd(self + row_of(index, entry) * width + column, source[i]);
}
// [atomic_per_element]

// [half_atomic]
__global__ void half_atomic(__half* self, const __half* source, Index index, int64_t width,
                            int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const int64_t entry = i / width, column = i % width;
  atomicAdd(self + row_of(index, entry) * width + column, source[i]);
}
// [half_atomic]

// [fast_half_atomic]
template <typename T>
__global__ void fast_half_atomic(T* self, const T* source, Index index, int64_t width,
                                 int64_t size) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const int64_t entry = i / width, column = i % width;
  atomic_add(self + row_of(index, entry) * width + column, source[i], self,
             self + index.bins * width);
}
// [fast_half_atomic]

// [half2_pairs]
template <typename T>
__global__ void half2_pairs(T* self, const uint32_t* source_pairs, Index index, int64_t width_pairs,
                            int64_t pairs) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= pairs) return;
  const int64_t entry = i / width_pairs, column = i % width_pairs;
  atomic_add_pair(self + 2 * (row_of(index, entry) * width_pairs + column), source_pairs[i]);
}
// [half2_pairs]

// [vector_reductions]
template <typename T>
__global__ void vector_reductions(T* self, const T* source, Index index, int64_t width_vecs,
                                  int64_t vecs) {
  constexpr int kVec = kVecSize<T>;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= vecs) return;
  const int64_t entry = i / width_vecs, column = i % width_vecs;
  atomic_add_vec(self + kVec * (row_of(index, entry) * width_vecs + column),
                 load_vec<T, kVec>(source + kVec * i));
}
// [vector_reductions]

// entries[i] >> position_bits is a row. The bits below are its position in the index.
struct SortedIndex {
  const uint64_t* entries = nullptr;
  int position_bits = 0;
};

// [sorted_segments]
// One warp per sorted entry. The warp of a row's first entry adds all entries of the row; the other
// warps of the row return. Entries of one row are in the order of their positions. The sort has
// checked the index.
template <typename T>
__global__ void sorted_segments(T* self, const T* source, SortedIndex sorted, int64_t width,
                                int64_t entries) {
  const auto row_at = [&](int64_t i) { return sorted.entries[i] >> sorted.position_bits; };
  const uint64_t positions = (uint64_t{1} << sorted.position_bits) - 1;
  const int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  if (first >= entries) return;
  const uint64_t row = row_at(first);
  if (first > 0 && row_at(first - 1) == row) return;
  for (int64_t column = threadIdx.x % 32; column < width; column += 32) {
    T* to = self + row * width + column;
    float sum = to_compute(*to);
    for (int64_t i = first; i < entries && row_at(i) == row; ++i) {
      sum += to_compute(source[(sorted.entries[i] & positions) * width + column]);
    }
    *to = from_compute<T>(sum);
  }
}
// [sorted_segments]

// The arguments of a launcher.
struct Call {
  const LadderProblem& problem;
  const Device& device;
  Workspace& workspace;
  cudaStream_t stream;
};

Index make_index(const LadderProblem& problem) { return {problem.index, true, 1, problem.rows}; }

// Launches one thread for every `together` values of source. The kernel reads source as Units.
template <typename T, typename Unit>
cudaError_t launch_atomic(void (*kernel)(T*, const Unit*, Index, int64_t, int64_t), int together,
                          const Call& call) {
  const LadderProblem& problem = call.problem;
  const int64_t width = problem.width / together, units = problem.entries * width;
  const auto blocks = static_cast<unsigned>(ceil_div<int64_t>(units, kThreads));
  kernel<<<blocks, kThreads, 0, call.stream>>>(static_cast<T*>(problem.self),
                                               static_cast<const Unit*>(problem.source),
                                               make_index(problem), width, units);
  return cudaGetLastError();
}

// A sorted entry holds a row and a position in 64 bits, so at most 2^30 entries are sorted at once.
// More entries are added in several passes.
template <typename T>
cudaError_t launch_sorted(const Call& call) {
  const LadderProblem& problem = call.problem;
  const int64_t most = int64_t{1} << position_bits_for(problem.rows, problem.tuning);
  for (int64_t first = 0; first < problem.entries; first += most) {
    const int64_t entries = min(most, problem.entries - first);
    Index index = make_index(problem);
    index.values = problem.index + first;
    const SortPlan plan = plan_sort(index, entries, 0, call.device, problem.tuning);
    SortedIndex sorted{nullptr, plan.args.source.position_bits};
    const cudaError_t error =
        sort_index(plan, nullptr, call.workspace, call.stream, &sorted.entries);
    if (error != cudaSuccess) return error;
    const auto blocks = static_cast<unsigned>(ceil_div<int64_t>(entries, kThreads / 32));
    const T* source = static_cast<const T*>(problem.source) + first * problem.width;
    sorted_segments<T><<<blocks, kThreads, 0, call.stream>>>(static_cast<T*>(problem.self), source,
                                                             sorted, problem.width, entries);
  }
  return cudaGetLastError();
}

cudaError_t launch_float(int step, const Call& call) {
  if (step == 0) return launch_atomic(atomic_per_element, 1, call);
  if (step == 4) return launch_atomic(vector_reductions<float>, kVecSize<float>, call);
  if (step == 5) return launch_sorted<float>(call);
  return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t launch_half(int step, const Call& call) {
  if constexpr (std::is_same_v<T, __half>) {
    if (step == 1) return launch_atomic(half_atomic, 1, call);
  }
  if (step == 2) return launch_atomic(fast_half_atomic<T>, 1, call);
  if (step == 3) return launch_atomic(half2_pairs<T>, 2, call);
  if (step == 4) return launch_atomic(vector_reductions<T>, kVecSize<T>, call);
  if (step == 5) return launch_sorted<T>(call);
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t ladder_index_add(int step, const LadderProblem& problem, const Device& device,
                             Workspace& workspace, cudaStream_t stream) {
  if (problem.entries == 0 || problem.width == 0) return cudaSuccess;
  const Call call{problem, device, workspace, stream};
  if (problem.dtype == DType::kFloat32) return launch_float(step, call);
  if (problem.dtype == DType::kFloat16) return launch_half<__half>(step, call);
  if (problem.dtype == DType::kBFloat16) return launch_half<__nv_bfloat16>(step, call);
  return cudaErrorInvalidValue;
}

}  // namespace gpuopt::index_add
