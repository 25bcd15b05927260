// C entry points to the emulated ladder of scans, for test_scan_ladder.py.
#include "../ladder_shim.h"
#include "scan/ladder/scan_ladder.h"

using namespace gpuopt;
using namespace gpuopt::scan;

namespace {

// As in scan_ladder_vectors.cu.
struct Record {
  float value;
  uint32_t state;  // 1: the total of a tile, 2: the sum up to its end
};

}  // namespace

// Blocks run one after another, so a tile of step "look_back" would always find the sum of the tile
// before it. This takes back all sums except each `kept`-th, and leaves the totals of their tiles.
extern "C" int run(int step, const float* in, int64_t size, float* out, int sms, int64_t kept) {
  PoisonedBlocks workspace;
  float before = 0.f;
  emulator::before_block = [&] {
    if (kept == 0 || blockIdx.x == 0) return;
    const int64_t tile = blockIdx.x - 1;
    auto* record = reinterpret_cast<Record*>(workspace.begin(workspace.blocks.back())) + 1 + tile;
    if (record->state != 2) abort();
    const float total = record->value - before;
    before = record->value;
    if (tile % kept != kept - 1) *record = {total, 1};
  };
  const cudaError_t error =
      ladder_scan(step, LadderProblem{in, size, out, sms}, workspace, nullptr);
  emulator::before_block = {};
  return workspace.intact() ? error : -1;
}
