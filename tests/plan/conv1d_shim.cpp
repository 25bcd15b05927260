// C entry points to the planner of convolutions, for conv1d_planner.py.
#include "conv1d_problem.h"

using namespace gpuopt;
using namespace gpuopt::conv1d;

struct PlanView {
  int64_t path, channels, wide, slides, packed, dilated, strided, few_taps, direct, polyphase,
      matrices, few_values, channels_first, places, row_width, phases, phase_segments, phase_pitch,
      stages, cycle, tiles, row_tiles, row_lanes, rows, block_rows, halo_packs, taps_pitch,
      warp_tiles, made_packs, warp_packs, products, aligned, block_channels, taps, tap_parts,
      splits, lanes, blocks, threads, shared_bytes;
};

namespace {

// Without what would take most problems that are easy to read.
Tuning tuning_of(int few_values, int fan_gradients, int gemm) {
  Tuning tuning;
  if (few_values == 0) tuning.few_outputs = 0;
  if (fan_gradients == 0) tuning.fan_gradient_channels = INT64_MAX;
  if (gemm == 0) tuning.gemm_channels = 0;
  return tuning;
}

}  // namespace

extern "C" {

void plan(const Given* given, int pass, int multiprocessors, int shared_bytes, int few_values,
          int fan_gradients, int gemm, PlanView* view) {
  const Plan plan =
      make_plan(make_problem(*given), static_cast<Pass>(pass),
                Device{multiprocessors, shared_bytes}, tuning_of(few_values, fan_gradients, gemm));
  *view = {number_of(plan.path),
           plan.channels,
           plan.wide,
           plan.slides,
           plan.packed,
           plan.dilated,
           plan.strided,
           plan.few_taps,
           plan.direct,
           plan.polyphase,
           plan.matrices,
           plan.few_values,
           plan.channels_first,
           plan.places,
           plan.row_width,
           plan.phases,
           plan.phase_segments,
           plan.phase_pitch,
           plan.stages,
           plan.cycle,
           plan.tiles,
           plan.row_tiles,
           plan.row_lanes,
           plan.rows,
           plan.block_rows,
           plan.halo_packs,
           plan.taps_pitch,
           plan.warp_tiles,
           plan.made_packs,
           plan.warp_packs,
           plan.products,
           plan.aligned,
           plan.block_channels,
           plan.taps,
           plan.tap_parts,
           plan.splits,
           plan.lanes,
           plan.blocks,
           plan.threads,
           static_cast<int64_t>(plan.shared_bytes)};
}

int serves_it(const Given* given, int pass, int multiprocessors, int few_values, int fan_gradients,
              int gemm) {
  return serves(make_problem(*given), static_cast<Pass>(pass), Device{multiprocessors},
                tuning_of(few_values, fan_gradients, gemm));
}

// The problem of an input gradient of step 1, as a forward one.
void transpose(const Given* given, Given* result) {
  const Problem problem = detail::transposed(make_problem(*given));
  *result = *given;
  std::swap(result->from, result->to);
  result->weight = reinterpret_cast<int64_t>(problem.weight.data);
  result->out_stride = problem.weight.out_stride;
  result->in_stride = problem.weight.in_stride;
  result->tap_stride = problem.weight.tap_stride;
  result->step = problem.step;
  result->padding = problem.padding;
}
}
