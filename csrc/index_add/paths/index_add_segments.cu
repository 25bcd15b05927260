#include "common/index.h"
#include "common/launch.cuh"
#include "index_add/paths/index_add_segments.cuh"

namespace gpuopt::index_add {
namespace {

constexpr uint32_t kProbes = 8;

// Returns the first entry after `low` for which `holds` is false. It is true for `low` and false
// for `high`, and changes once. Eight loads at a time replace three loads in sequence.
template <typename Holds>
__device__ __forceinline__ uint32_t find_border(uint32_t low, uint32_t high, Holds holds) {
  while (high - low > 1) {
    const uint32_t step = (high - low - 1) / (kProbes + 1) + 1;
    uint32_t held = 0;
#pragma unroll
    for (uint32_t p = 1; p <= kProbes; ++p) {
      const uint32_t at = low + p * step;
      held += at < high && holds(at);
    }
    low += held * step;
    high = min(high, low + step);
  }
  return high;
}

// Returns the same without a known `high`, but below `count`. Most segments end nearby, so the
// search begins there and its distance grows by factors of four.
template <typename Holds>
__device__ __forceinline__ uint32_t find_end(uint32_t low, uint32_t count, Holds holds) {
  uint32_t held = 0;
#pragma unroll
  for (uint32_t p = 1; p <= kProbes; ++p) {
    const uint64_t at = low + (uint64_t{kShortSegment} << (2 * p - 2));
    held += at < count && holds(static_cast<uint32_t>(at));
  }
  const uint64_t high = low + (uint64_t{kShortSegment} << 2 * held);
  if (held > 0) low += kShortSegment << (2 * held - 2);
  return find_border(low, held == kProbes || high > count ? count : static_cast<uint32_t>(high),
                     holds);
}

// Finds the long segment that this thread has to record, if there is one. Threads have the entries
// `i` that are multiples of kShortSegment. The thread with the first such entry in a segment
// records it.
__device__ __forceinline__ bool find_segment(const SegmentArgs& args, uint32_t i, Part* whole) {
  constexpr uint32_t kHalf = kShortSegment / 2;
  if (i >= args.count) return false;
  const auto bin_at = [&](uint32_t at) { return args.bin(args.entries[at]); };
  const uint64_t bin = bin_at(i);
  // A long segment around entry i reaches at least kHalf entries to one side.
  const bool goes_on = i + kHalf < args.count && bin_at(i + kHalf) == bin;
  const bool went_on = i > 0 && bin_at(i - kHalf) == bin;
  const bool is_later = i > 0 && bin_at(i - kShortSegment) == bin;  // another thread records it
  if (is_later || (!goes_on && !went_on)) return false;
  whole->begin =
      i == 0 ? 0 : find_border(i - kShortSegment, i, [&](uint32_t at) { return bin_at(at) < bin; });
  const uint32_t later = whole->begin + kShortSegment;
  if (later >= args.count || bin_at(later) != bin) return false;
  whole->end = find_end(later, args.count, [&](uint32_t at) { return bin_at(at) == bin; });
  return true;
}

__global__ __launch_bounds__(kRowThreads) void note_long_segments(const SegmentArgs args) {
  grid_dependency_wait();
  launch_dependents();
  const uint32_t i = (blockIdx.x * kRowThreads + threadIdx.x) * kShortSegment;
  Part whole = {};
  uint32_t first = 0;
  if (find_segment(args, i, &whole)) {
    if (whole.end - whole.begin <= args.warp_rows) {
      args.parts[atomicAdd(&args.counters->warp_parts, 1u)] = {whole.begin, whole.end, 0, 1, 0};
    } else {
      whole.count = (whole.end - whole.begin - 1) / args.part_rows + 1;
      first = atomicAdd(&args.counters->block_parts, whole.count);
      if (whole.count > 1) whole.slot = atomicAdd(&args.counters->slots, whole.count);
    }
  }
  // A segment may have many parts, so the whole warp writes them.
  uint32_t noting = __ballot_sync(0xffffffffu, whole.count > 0);
  for (; noting != 0; noting &= noting - 1) {
    const int lane = __ffs(static_cast<int>(noting)) - 1;
    const auto of_lane = [&](uint32_t word) { return __shfl_sync(0xffffffffu, word, lane); };
    const uint32_t begin = of_lane(whole.begin), end = of_lane(whole.end);
    const uint32_t count = of_lane(whole.count), slot = of_lane(whole.slot);
    const uint32_t position = of_lane(first);
    for (uint32_t p = threadIdx.x % 32; p < count; p += 32) {
      const uint32_t from = begin + p * args.part_rows;
      args.block_part(position + p) = {from, min(end, from + args.part_rows), p, count, slot};
    }
  }
}

}  // namespace

cudaError_t find_long_segments(const LaunchShape& shape, const SegmentArgs& args,
                               cudaStream_t stream) {
  return launch_kernel(note_long_segments, shape, stream, args);
}

}  // namespace gpuopt::index_add
