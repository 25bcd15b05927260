// C entry points to the emulated upsampling launchers, for test_upsample_kernels.py.
#include "../plan/upsample_problem.h"
#include "upsample/upsample.h"
#include "upsample/upsample_backward_plan.h"
#include "upsample/upsample_forward_plan.h"

namespace gpuopt::upsample {
alignas(16) uint4 shared[(227 << 10) / sizeof(uint4)];  // the most per block on sm_90
}

using namespace gpuopt;
using namespace gpuopt::upsample;

struct Taken {
  int path, unit_bytes, repeat, long_rows, vecs_at_once, group_images;
  int aligned, rows_per_thread, most, lanes, splits, tiles, images_per_thread, read_once;
  int64_t units;
};

// Runs a problem and returns its error. Writes the main numbers of its plan to *taken.
// A launch has at most part_units units. Axes are long from short_axis on. Gradients are large from
// read_once_from bytes on.
extern "C" int run(int is_backward, const int64_t* sizes, const float* steps, int exact,
                   const int64_t* strides, int channels_last, uint64_t from, uint64_t to, int dtype,
                   int sms, int64_t part_units, int64_t short_axis, int64_t read_once_from,
                   Taken* taken) {
  kMaxPartUnits = part_units;
  kShortAxis = short_axis;
  kReadOnceFrom = read_once_from;
  // Memory that a kernel has not written holds NaN.
  memset(shared, 0xff, sizeof(shared));
  const Problem problem =
      make_problem(sizes, steps, exact, strides, channels_last, from, to, dtype);
  const Device device{sms};
  *taken = {};
  if (is_backward) {
    const BackwardPlan plan = plan_backward(problem, device);
    taken->path = static_cast<int>(plan.path);
    taken->unit_bytes = plan.layout.unit_bytes;
    taken->aligned = plan.aligned;
    taken->rows_per_thread = plan.rows_per_thread;
    taken->most = plan.most;
    taken->lanes = plan.lanes;
    taken->splits = plan.splits;
    taken->tiles = static_cast<int>(plan.tiles);
    taken->images_per_thread = static_cast<int>(plan.images_per_thread);
    taken->read_once = plan.read_once;
    taken->units = plan.units();
    return backward(problem, device, nullptr);
  }
  const ForwardPlan plan = plan_forward(problem, device);
  taken->path = static_cast<int>(plan.path);
  taken->unit_bytes = plan.layout.unit_bytes;
  taken->repeat = plan.repeat;
  taken->long_rows = plan.long_rows;
  taken->vecs_at_once = plan.vecs_at_once;
  taken->group_images = static_cast<int>(plan.group_images);
  taken->units = plan.units();
  return forward(problem, device, nullptr);
}

// The launches of a problem that is too large to run. Returns their number, and writes the largest
// number of blocks to *blocks.
extern "C" int launches(int is_backward, const int64_t* sizes, const float* steps, int exact,
                        const int64_t* strides, int channels_last, int dtype, int sms,
                        int64_t* blocks) {
  constexpr uint64_t kAddress = 1 << 20;
  kMaxPartUnits = int64_t{1} << 30;
  kShortAxis = 1 << 22;
  const Problem problem =
      make_problem(sizes, steps, exact, strides, channels_last, kAddress, kAddress, dtype);
  std::vector<unsigned> noted;
  emulator::noted = &noted;
  const Device device{sms};
  const cudaError_t error =
      is_backward ? backward(problem, device, nullptr) : forward(problem, device, nullptr);
  emulator::noted = nullptr;
  if (error != cudaSuccess) return -1;
  *blocks = *std::max_element(noted.begin(), noted.end());
  return static_cast<int>(noted.size());
}
