// C entry points to the emulated launchers of segments, for test_segment.py.
#include "../poisoned_workspace.h"
#include "segment/segment.h"

namespace gpuopt::index_sort {
alignas(16) uint64_t sort_shared[sort_shared_bytes(kMaxSortItems) / sizeof(uint64_t) + 8];
}  // namespace gpuopt::index_sort

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
