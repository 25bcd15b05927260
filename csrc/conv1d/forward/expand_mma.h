// Few input channels into many output channels on tensor cores, for fp16 and bf16.
#pragma once

#include "conv1d/cost.h"
#include "conv1d/forward/expand.h"

namespace gpuopt::conv1d {

constexpr int kExpandMmaParts = 2;  // parts of 32 positions that a warp computes at once

struct ExpandMmaArgs : ExpandArgs {
  uint32_t iterations;  // iterations of a warp over positions
};

struct ExpandMmaPlan : PathPlan<ExpandMmaArgs> {
  static constexpr const char* kName = "expand_mma";
  static constexpr const Costs& kCosts = costs::kExpandMma;
  int steps;  // mma per output, of 16 multiply-adds each: 1 or 2

  static std::optional<ExpandMmaPlan> make(const Problem& p, const Device& device) {
    const int64_t products = macs_per_output(p);
    if (!is_half(p) || products > 32 || !has_plain_rows(p)) return {};
    ExpandChannels channels(p);
    if (channels.in_class < kExpandChannels) return {};
    ExpandMmaPlan plan;
    plan.steps = products <= 16 ? 1 : 2;
    const int64_t iteration_positions = kChunkThreads * kExpandMmaParts, slack = channels.slack(p);
    channels.block = std::min<int64_t>(ceil_div<int64_t>(channels.in_class, 16) * 16, 256);
    const auto tiles_of = [&](int64_t iterations) {
      return ceil_div(p.to.size + slack, iterations * iteration_positions);
    };
    const auto vecs_of = [&](int64_t iterations) {
      return ceil_div<int64_t>((iterations * iteration_positions - 1) * p.stride + span_of(p) + 8,
                               8);
    };
    const auto bytes_of = [&](int64_t iterations) {
      return channels.block * ((16 * plan.steps + 8) * 2 + 4) +
             p.from.channels * vecs_of(iterations) * kAccessBytes;
    };
    const int64_t others = p.batch * p.groups * channels.cycle;
    // More iterations amortise the loads of the taps. Each SM keeps at least 8 blocks.
    int64_t iterations = 1;
    while ((iterations + 1) * channels.block <= 96 &&
           bytes_of(iterations + 1) <= kSharedBytes / 2 &&
           others * tiles_of(iterations + 1) >= 8 * device.sms) {
      ++iterations;
    }
    const int64_t bytes = bytes_of(iterations);
    if (bytes > kSharedBytes) return {};
    const int64_t blocks = channels.share(device, others * tiles_of(iterations), 16);
    plan.launch = launch_shape(blocks, kChunkThreads, bytes);
    plan.args = {expand_args(p, channels, tiles_of(iterations), vecs_of(iterations))};
    plan.args.iterations = static_cast<uint32_t>(iterations);
    return plan;
  }

  Terms terms(const Problem&, const Device& device) const {
    const double products = args.block_channels * steps / 4.0;
    const int resident =
        static_cast<int>(std::clamp<size_t>((227 << 10) / (launch.shared_bytes + 1024), 1, 8));
    // Terms: inputs, mma in waves, mma per SM.
    return {static_cast<double>(launch.shared_bytes) * blocks_per_sm(launch, device) / 1e5,
            waves_of(launch, device, resident) * products, products * fill_of(launch, device)};
  }
};

}  // namespace gpuopt::conv1d
