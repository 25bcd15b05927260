// C entry points to the emulated launchers of segments, for test_segment.py.
#include "poisoned_workspace.h"
#include "segment/segment.h"

namespace gpuopt::index_add {
alignas(16) uint64_t sort_shared[sort_shared_bytes(kMaxSortItems) / sizeof(uint64_t) + 8];
}  // namespace gpuopt::index_add

using namespace gpuopt;
using namespace gpuopt::segment;

namespace {
constexpr Device kDevice{4, 227 << 10};
}

// Groups entries by bin. Returns 0, or another number if something failed.
extern "C" int group(uint64_t index, int64_t stride, int long_index, int64_t entries, int64_t bins,
                     uint64_t ptr, uint64_t perm, int long_result) {
  Grouping grouping;
  grouping.index.values = reinterpret_cast<const void*>(index);
  grouping.index.is_long = long_index != 0;
  grouping.index.stride = stride;
  grouping.index.bins = bins;
  grouping.entries = entries;
  grouping.ptr = reinterpret_cast<void*>(ptr);
  grouping.perm = reinterpret_cast<void*>(perm);
  grouping.long_result = long_result != 0;
  if (!is_supported(grouping)) return 1;
  PoisonedWorkspace workspace(char(0xcd));
  const bool done = launch(plan(grouping, kDevice), workspace, nullptr) == cudaSuccess;
  return done && workspace.intact() ? 0 : 2;
}

// Clears entries of no segment. Returns the bytes of a store, or -1.
extern "C" int clear(uint64_t offsets, int long_offsets, int64_t segments, int64_t entries,
                     int64_t entry_bytes, uint64_t out) {
  Outside outside;
  outside.offsets = reinterpret_cast<const void*>(offsets);
  outside.long_offsets = long_offsets != 0;
  outside.segments = segments;
  outside.entries = entries;
  outside.entry_bytes = entry_bytes;
  outside.out = reinterpret_cast<void*>(out);
  const OutsidePlan planned = plan(outside, kDevice);
  return launch(planned, nullptr) == cudaSuccess ? static_cast<int>(planned.unit_bytes) : -1;
}
