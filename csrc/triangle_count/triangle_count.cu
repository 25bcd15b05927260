// Counts triangles. A triangle of u, v and w is an edge (u, v) whose ends both have the target w.
// A team of threads has a vertex u. It puts the targets of u into a hash table in shared memory,
// and looks up the targets of each v:
//
//   table   | targets w of u: 4 to 8 slots for each                |
//   items   | targets of v0 | targets of v1        | targets of v2 |
//   warps   |       0       |          1           |       2       |
//
// Neighbouring threads read neighbouring targets. Where u has few targets and v has many, the items
// are the few: a binary search finds each among the targets of v.
//
// A warp counts a vertex of few targets. The whole block counts the others, one after the other,
// and in several tables if one is too small.
#include "common/launch.cuh"
#include "triangle_count/triangle_count_table.cuh"

namespace gpuopt::triangle_count {
namespace {

constexpr uint32_t kUnroll = 2;  // items of a thread in flight
// A step of a binary search costs as much as this many lookups in the table.
constexpr uint32_t kStepLookups = 2;
constexpr uint32_t kWarpTargets = 128;  // of a vertex that a warp counts

using Warp = Team<kWarp>;
using Block = Team<kCountThreads>;

// Neighbouring targets, ascending.
struct List {
  const int32_t* begin;
  uint32_t length;

  // The number of targets below this one.
  __device__ __forceinline__ uint32_t below(int32_t target) const {
    uint32_t low = 0, high = length;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (begin[middle] < target) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  __device__ __forceinline__ bool has(int32_t target) const {
    const uint32_t at = below(target);
    return at < length && begin[at] == target;
  }
  __device__ __forceinline__ List part(uint32_t from, uint32_t to) const {
    return {begin + from, to - from};
  }
};

template <typename Ptr>
__device__ __forceinline__ List list_of(const Lists<Ptr>& lists, int32_t row) {
  if (static_cast<uint32_t>(row) >= static_cast<uint32_t>(lists.rows)) return {nullptr, 0};
  const Ptr begin = lists.ptr[row];
  return {lists.target + begin, static_cast<uint32_t>(lists.ptr[row + 1] - begin)};
}

__device__ __forceinline__ void add(uint64_t* count, uint64_t triangles) {
  atomicAdd(reinterpret_cast<unsigned long long*>(count),
            static_cast<unsigned long long>(triangles));
}

template <typename T>
__device__ __forceinline__ T sum_of_warp(T value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

// The matches of this thread among the targets of a v, by the table of the targets of u. If
// kPerVertex, the matches of each slot are counted, too.
template <bool kPerVertex>
__device__ __forceinline__ uint32_t look_up(const Table& table, const List& of_v, uint32_t* hits) {
  uint32_t matches = 0;
  for (uint32_t item = threadIdx.x % kWarp; item < of_v.length; item += kWarp * kUnroll) {
    uint32_t wanted[kUnroll];
#pragma unroll
    for (uint32_t k = 0; k < kUnroll; ++k) {
      const uint32_t at = item + k * kWarp;
      wanted[k] = at < of_v.length ? static_cast<uint32_t>(of_v.begin[at]) : kNone;
    }
#pragma unroll
    for (uint32_t k = 0; k < kUnroll; ++k) {
      const uint32_t slot = table.find(wanted[k]);
      matches += slot != kEmpty;
      if constexpr (kPerVertex) {
        if (slot != kEmpty) atomicAdd(hits + slot, 1u);
      }
    }
  }
  return matches;
}

// The same by a binary search for each target of one list in the other list.
template <bool kPerVertex, typename Ptr>
__device__ __forceinline__ uint32_t search(const CountPlan<Ptr>& plan, const List& items,
                                           const List& others) {
  uint32_t matches = 0;
  for (uint32_t item = threadIdx.x % kWarp; item < items.length; item += kWarp) {
    const int32_t target = items.begin[item];
    if (!others.has(target)) continue;
    ++matches;
    if constexpr (kPerVertex) add(plan.count + plan.order[target], 1);
  }
  return matches;
}

// Puts targets into a table. Returns whether all have a slot.
template <typename Team>
__device__ __forceinline__ bool fill(const Table& table, const List& targets, uint32_t* hits,
                                     bool* failed) {
  for (uint32_t slot = Team::thread(); slot < table.size(); slot += Team::kThreads) {
    table.slots[slot] = kEmpty;
    if (hits != nullptr) hits[slot] = 0;
  }
  if (Team::thread() == 0) *failed = false;
  Team::sync();
  for (uint32_t w = Team::thread(); w < targets.length; w += Team::kThreads) {
    if (!table.insert(static_cast<uint32_t>(targets.begin[w]))) *failed = true;
  }
  Team::sync();
  return !*failed;
}

// Shared memory of a block. Each warp of a block may have a table.
template <bool kPerVertex>
struct Shared {
  static constexpr uint32_t kTargets = kPerVertex ? kTableTargets / 2 : kTableTargets;
  static constexpr uint32_t kSlots = kTargets * kSlotsPerTarget;

  uint32_t slots[kSlots];
  uint32_t hits[kPerVertex ? kSlots : 1];  // of each slot
  bool failed[Block::kWarps];              // whether a table lacks a target
  uint64_t sum;
};

// The matches of this thread for the vertex u. If kPerVertex, triangles are also added to the
// counts of v and w.
template <bool kPerVertex, typename Team, typename Ptr>
__device__ __forceinline__ uint64_t count_vertex(const CountPlan<Ptr>& plan, int32_t u,
                                                 Shared<kPerVertex>& shared) {
  constexpr uint32_t kMost = shared.kTargets / (Block::kThreads / Team::kThreads);
  const List edges = list_of(plan.edges, u), of_u = list_of(plan.of_u, u);
  const uint32_t lane = threadIdx.x % kWarp, team = threadIdx.x / Team::kThreads;
  uint32_t* const slots = shared.slots + team * kMost * kSlotsPerTarget;
  uint32_t* const hits = kPerVertex ? shared.hits + (slots - shared.slots) : nullptr;
  uint64_t found = 0;
  for (uint32_t first = 0; first < of_u.length; first += kMost) {
    const List few = of_u.part(first, min(of_u.length, first + kMost));
    const Table table = Table::of(slots, few.length);
    const bool is_whole = fill<Team>(table, few, hits, shared.failed + team);
    // A thread reads where the targets of its v are, and its warp counts one v after the other.
    for (uint32_t begin = Team::warp(); begin < edges.length; begin += kWarp * Team::kWarps) {
      const uint32_t edge = begin + lane * Team::kWarps;
      const int32_t v = edge < edges.length ? edges.begin[edge] : -1;
      List of_v = list_of(plan.of_v, v);
      if (few.length < of_u.length && of_v.length > 0) {
        of_v = of_v.part(of_v.below(few.begin[0]), of_v.below(few.begin[few.length - 1] + 1));
      }
      for (uint32_t i = 0; i < kWarp && begin + i * Team::kWarps < edges.length; ++i) {
        const auto from = static_cast<int>(i);
        const List many = {shuffle_from(of_v.begin, from), shuffle_from(of_v.length, from)};
        const uint32_t steps = 32 - __clz(static_cast<int>(many.length));
        uint32_t matches = 0;
        if (many.length / kStepLookups > few.length * steps) {
          matches = search<kPerVertex>(plan, few, many);
        } else if (is_whole) {
          matches = look_up<kPerVertex>(table, many, hits);
        } else {
          matches = search<kPerVertex>(plan, many, few);
        }
        found += matches;
        if constexpr (kPerVertex) {
          const uint32_t all = sum_of_warp(matches);
          if (lane == i && all > 0) add(plan.count + plan.order[v], all);
        }
      }
    }
    Team::sync();
    if constexpr (kPerVertex) {
      for (uint32_t slot = Team::thread(); is_whole && slot < table.size();
           slot += Team::kThreads) {
        if (hits[slot] > 0) add(plan.count + plan.order[slots[slot]], hits[slot]);
      }
      Team::sync();
    }
  }
  if constexpr (kPerVertex) {
    found = sum_of_warp(found);
    if (lane == 0 && found > 0) add(plan.count + plan.order[u], found);
  }
  return found;
}

template <bool kPerVertex, typename Ptr>
__global__ __launch_bounds__(kCountThreads, 10) void count_triangles(const CountPlan<Ptr> plan) {
  __shared__ Shared<kPerVertex> shared;
  if (threadIdx.x == 0) shared.sum = 0;
  // The last vertices have the longest lists, so they come first.
  const int64_t begin = plan.edges.rows - (int64_t{blockIdx.x} + 1) * Block::kWarps;
  const auto length_of = [&](unsigned i) -> uint32_t {
    if (begin + i < 0) return 0;
    const auto u = static_cast<int32_t>(begin + i);
    if (list_of(plan.edges, u).length < plan.shortest) return 0;
    return list_of(plan.of_u, u).length;
  };
  uint64_t found = 0;
  const unsigned warp = threadIdx.x / kWarp;
  const uint32_t length = length_of(warp);
  if (length > 0 && length <= kWarpTargets) {
    found += count_vertex<kPerVertex, Warp>(plan, static_cast<int32_t>(begin + warp), shared);
  }
  __syncthreads();
  for (unsigned i = 0; i < Block::kWarps; ++i) {
    if (length_of(i) <= kWarpTargets) continue;
    found += count_vertex<kPerVertex, Block>(plan, static_cast<int32_t>(begin + i), shared);
  }
  if constexpr (!kPerVertex) {
    found = sum_of_warp(found);
    if (threadIdx.x % kWarp == 0 && found > 0) add(&shared.sum, found);
    __syncthreads();
    if (threadIdx.x == 0 && shared.sum > 0) add(plan.count, shared.sum);
  }
}

template <bool kPerVertex, typename Ptr>
cudaError_t launch_count(const CountPlan<Ptr>& plan, cudaStream_t stream) {
  return launch_kernel(count_triangles<kPerVertex, Ptr>, plan.shape, stream, plan);
}

}  // namespace

cudaError_t launch(const CountPlan<int64_t>& plan, cudaStream_t stream) {
  return plan.order ? launch_count<true>(plan, stream) : launch_count<false>(plan, stream);
}

cudaError_t launch(const CountPlan<int32_t>& plan, cudaStream_t stream) {
  return launch_count<false>(plan, stream);
}

}  // namespace gpuopt::triangle_count
