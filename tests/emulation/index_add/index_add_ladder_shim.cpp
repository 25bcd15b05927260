// C entry point to the emulated ladder of index_add, for test_index_add_ladder.py.
#include "../ladder_shim.h"
#include "index_add/ladder/index_add_ladder.h"

namespace gpuopt::index_sort {
alignas(16) uint64_t sort_shared[sort_shared_bytes(kMaxSortItems) / sizeof(uint64_t)];
}  // namespace gpuopt::index_sort

using namespace gpuopt;
using namespace gpuopt::index_add;

static Tuning tuning;

// The number of entries sorted at once. Tests lower it, because small problems would not reach it.
extern "C" void set_position_bits(int bits) { tuning.position_bits = bits; }

extern "C" int run(int step, int dtype, uint64_t self, uint64_t source, const int64_t* index,
                   int64_t rows, int64_t width, int64_t entries, int sms) {
  PoisonedBlocks workspace;
  const LadderProblem problem{reinterpret_cast<void*>(self),
                              reinterpret_cast<const void*>(source),
                              index,
                              static_cast<DType>(dtype),
                              rows,
                              width,
                              entries,
                              tuning};
  const Device device{sms, 227 << 10};
  const cudaError_t error = ladder_index_add(step, problem, device, workspace, nullptr);
  return workspace.intact() ? error : -1;
}
