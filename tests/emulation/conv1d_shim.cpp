// C entry points to the emulated launchers of convolutions, for conv1d_model.py.
#include "../plan/conv1d_problem.h"
#include "conv1d/conv1d_dispatch.h"
#include "conv1d/conv1d_launch_gather.cuh"
#include "poisoned_workspace.h"

namespace gpuopt::conv1d {
// What a launch may have with asking, and bytes that must stay.
alignas(16) uint4 shared[(detail::kFanSharedBytes + 1024) / sizeof(uint4)];
}  // namespace gpuopt::conv1d

using namespace gpuopt;
using namespace gpuopt::conv1d;

namespace {

constexpr char kPoison = char(0xff);  // NaN, for who reads what nobody has written

// Shared memory is poisoned before every block, and what is not the block's must stay.
struct PoisonedShared {
  PoisonedShared() {
    memset(bytes, kPoison, sizeof(shared));
    emulator::before_block = [this] {
      if (blockIdx.x == 0) {
        check();
        memset(bytes, kPoison, own);
        own = emulator::shared_bytes;
        ++launches;
      }
      memset(bytes, kPoison, own);
    };
  }
  ~PoisonedShared() { emulator::before_block = nullptr; }
  void check() { intact = intact && is_filled(bytes + own, sizeof(shared) - own, kPoison); }

  char* const bytes = reinterpret_cast<char*>(shared);
  size_t own = 0;  // of the last block
  int launches = 0;
  bool intact = true;
};

}  // namespace

struct Limits {
  int64_t row_threads, wide_outputs, weight_blocks, weight_units, chunk_outputs, chunk_warps;
  int64_t weight_bytes, few_places, few_outputs, few_products, few_last_products, few_tile_products,
      few_taps_products, few_direct_products, direct_filled, direct_far_filled, direct_warps,
      direct_row, polyphase_taps, polyphase_outputs, polyphase_warps, polyphase_few_warps,
      fan_gradient_channels, fan_gradient_first, few_weight_places, gemm_channels, launch_blocks,
      far;
};

// The limits that small problems would not reach.
extern "C" void set_limits(const Limits* limits) {
  Tuning::default_row_threads = static_cast<int>(limits->row_threads);
  Tuning::default_wide_outputs = limits->wide_outputs;
  Tuning::default_weight_blocks = static_cast<int>(limits->weight_blocks);
  Tuning::default_weight_units = static_cast<int>(limits->weight_units);
  Tuning::default_chunk_outputs = limits->chunk_outputs;
  Tuning::default_chunk_warps = limits->chunk_warps;
  Tuning::default_weight_bytes = limits->weight_bytes;
  Tuning::default_few_places = limits->few_places;
  Tuning::default_few_outputs = limits->few_outputs;
  Tuning::default_few_products = limits->few_products;
  Tuning::default_few_last_products = limits->few_last_products;
  Tuning::default_few_tile_products = limits->few_tile_products;
  Tuning::default_few_taps_products = limits->few_taps_products;
  Tuning::default_few_direct_products = limits->few_direct_products;
  Tuning::default_direct_filled = limits->direct_filled;
  Tuning::default_direct_far_filled = limits->direct_far_filled;
  Tuning::default_direct_warps = limits->direct_warps;
  Tuning::default_direct_row = limits->direct_row;
  Tuning::default_polyphase_taps = limits->polyphase_taps;
  Tuning::default_polyphase_outputs = limits->polyphase_outputs;
  Tuning::default_polyphase_warps = limits->polyphase_warps;
  Tuning::default_polyphase_few_warps = limits->polyphase_few_warps;
  Tuning::default_fan_gradient_channels = limits->fan_gradient_channels;
  Tuning::default_fan_gradient_first = limits->fan_gradient_first;
  Tuning::default_few_weight_places = limits->few_weight_places;
  Tuning::default_gemm_channels = limits->gemm_channels;
  kMaxIndex32 = limits->launch_blocks;
  detail::kFar = limits->far;
}

struct Taken {
  int path, channels, wide, slides, packed, dilated, strided, few_taps, direct, polyphase,
      few_values, channels_first, places, row_width, phases, stages, warp_tiles, products, aligned,
      tiles, row_tiles, taps, tap_parts, splits, blocks, threads, block_rows;
  int launches, workspaces, intact;
};

namespace {

Taken taken_of(const Plan& plan) {
  return {static_cast<int>(number_of(plan.path)),
          plan.channels,
          plan.wide,
          plan.slides,
          plan.packed,
          plan.dilated,
          plan.strided,
          plan.few_taps,
          plan.direct,
          plan.polyphase,
          plan.few_values,
          plan.channels_first,
          static_cast<int>(plan.places),
          static_cast<int>(plan.row_width),
          static_cast<int>(plan.phases),
          static_cast<int>(plan.stages),
          static_cast<int>(plan.warp_tiles),
          plan.products,
          plan.aligned,
          static_cast<int>(plan.tiles),
          static_cast<int>(plan.row_tiles),
          plan.taps,
          static_cast<int>(plan.tap_parts),
          static_cast<int>(plan.splits),
          static_cast<int>(plan.blocks),
          plan.threads,
          static_cast<int>(plan.block_rows)};
}

cudaError_t start(const Problem& problem, Pass pass, const Device& device, Workspace& workspace) {
  if (pass == Pass::kForward) return forward(problem, device, nullptr);
  if (pass == Pass::kBackwardInput) return backward_input(problem, device, nullptr);
  return backward_weight(problem, device, workspace, nullptr);
}

}  // namespace

extern "C" int run(const Given* given, int pass_number, int multiprocessors, Taken* taken) {
  const Problem problem = make_problem(*given);
  const auto pass = static_cast<Pass>(pass_number);
  const Device device{multiprocessors};
  const Plan plan = make_plan(problem, pass, device);
  PoisonedWorkspace workspace(kPoison);
  PoisonedShared memory;
  const cudaError_t error = start(problem, pass, device, workspace);
  memory.check();
  *taken = taken_of(plan);
  taken->launches = memory.launches;
  taken->workspaces = static_cast<int>(workspace.blocks.size());
  taken->intact = workspace.intact() && memory.intact;
  return error;
}

// The same of a forward problem, by gemm_kernel whatever other kernels would be taken.
extern "C" int run_gemm(const Given* given, int multiprocessors, Taken* taken) {
  const Problem problem = make_problem(*given);
  const Plan plan = detail::plan_gemm(problem, Device{multiprocessors}, Tuning{});
  *taken = taken_of(plan);
  taken->intact = true;
  if (plan.path == Path::kLibrary) return cudaErrorInvalidValue;
  PoisonedShared memory;
  const cudaError_t error = launchers_of(problem.dtype).forward(problem, plan, nullptr);
  memory.check();
  taken->launches = memory.launches;
  taken->intact = memory.intact;
  return error;
}

// The launches of a problem that is too large to run: their number or -1, and *blocks of the
// largest.
extern "C" int launches(const Given* given, int pass_number, int multiprocessors, int64_t* blocks,
                        Taken* taken) {
  const Problem problem = make_problem(*given);
  const auto pass = static_cast<Pass>(pass_number);
  const Device device{multiprocessors};
  const Plan plan = make_plan(problem, pass, device);
  std::vector<unsigned> noted;
  PoisonedWorkspace workspace(kPoison);
  emulator::noted = &noted;
  const cudaError_t error =
      start(make_problem(*given), static_cast<Pass>(pass), Device{multiprocessors}, workspace);
  emulator::noted = nullptr;
  if (error != cudaSuccess) return -1;
  *taken = taken_of(plan);
  *blocks = *std::max_element(noted.begin(), noted.end());
  return static_cast<int>(noted.size());
}

struct GivenUpdate {
  int64_t input, input_batch_stride, input_stride;
  int64_t state, state_batch_stride, state_channel_stride, state_stride;
  int64_t weight, weight_stride, tap_stride, bias, bias_stride, out;
  int64_t dtype, batch, channels, taps, state_size, activation;
};

extern "C" int run_update(const GivenUpdate* given) {
  UpdateProblem problem;
  problem.input = reinterpret_cast<const void*>(given->input);
  problem.input_batch_stride = given->input_batch_stride;
  problem.input_stride = given->input_stride;
  problem.state = reinterpret_cast<void*>(given->state);
  problem.state_batch_stride = given->state_batch_stride;
  problem.state_channel_stride = given->state_channel_stride;
  problem.state_stride = given->state_stride;
  problem.weight = reinterpret_cast<const void*>(given->weight);
  problem.weight_stride = given->weight_stride;
  problem.tap_stride = given->tap_stride;
  problem.bias = reinterpret_cast<const void*>(given->bias);
  problem.bias_stride = given->bias_stride;
  problem.out = reinterpret_cast<void*>(given->out);
  problem.dtype = static_cast<DType>(given->dtype);
  problem.batch = given->batch;
  problem.channels = given->channels;
  problem.taps = given->taps;
  problem.state_size = given->state_size;
  problem.activation = static_cast<Activation>(given->activation);
  return update(problem, nullptr);
}
