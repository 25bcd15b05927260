// The operators that can be replaced, and what became of their calls.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "override/reason.h"

namespace gpuopt::overriding {

// Forms of one operator (functional, in place) have one name.
constexpr std::array kOperatorNames{
    "sum",
    "mean",
    "amax",
    "amin",
    "mul",
    "upsample_nearest2d",
    "upsample_nearest2d_backward",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact2d_backward",
    "index_add",
    "scatter_add",
    "scatter_reduce",
    "index_put",
    "embedding_dense_backward",
    "_embedding_bag",
    "_embedding_bag_dense_backward",
    "_embedding_bag_per_sample_weights_backward",
    "index_select",
    "cumsum",
    "convolution",
    "convolution_backward",
    "dot",
    "vdot",
    "copy_",
    "constant_pad_nd",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "reflection_pad1d_backward",
    "reflection_pad2d_backward",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "replication_pad1d_backward",
    "replication_pad2d_backward",
    "roll",
    "cat",
    "gather",
    "segment_reduce",
    "_segment_reduce_backward",
    "mm",
    "addmm",
    "sparse_sampled_addmm",
    "_sparse_mm_reduce_impl",
    "_sparse_mm_reduce_impl_backward",
    "native_layer_norm",
    "native_layer_norm_backward",
    "_fused_rms_norm",
    "_fused_rms_norm_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "native_batch_norm",
    "native_batch_norm_backward",
    "cudnn_batch_norm",  // and its gradient, which shares a reserve with it
    "matmul",            // in 3xTF32, on request alone
    // From here on: taken while torch.use_deterministic_algorithms is on, and never otherwise.
    "reflection_pad3d_backward",
    "replication_pad3d_backward",
    "max_pool3d_with_indices_backward",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward",
    "fractional_max_pool2d_backward",
    "fractional_max_pool3d_backward",
    "max_unpool2d",
    "max_unpool3d",
    "upsample_linear1d_backward",
    "upsample_bilinear2d_backward",
    "upsample_trilinear3d_backward",
    "upsample_bicubic2d_backward",
    "_upsample_bilinear2d_aa_backward",
    "_upsample_bicubic2d_aa_backward",
    "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d_backward",
    "avg_pool3d_backward",
    "grid_sampler_2d_backward",
    "grid_sampler_3d_backward",
    "cudnn_grid_sampler_backward",
    "put_",
    "bincount",
    "histc",
    "index_reduce",
    "median",
    "nanmedian",
    "nll_loss2d_forward",
};

enum class Operator : uint8_t {};  // the index of a name

consteval Operator operator_named(std::string_view name) {
  for (size_t i = 0; i < kOperatorNames.size(); ++i) {
    if (name == kOperatorNames[i]) return Operator{static_cast<uint8_t>(i)};
  }
  throw "no such operator";
}

class Calls {
 public:
  void add(Reason reason) {
    counts_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }
  int64_t of(size_t reason) const { return counts_[reason].load(std::memory_order_relaxed); }
  void reset() {
    for (auto& count : counts_) count.store(0, std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<int64_t>, kReasons> counts_{};
};

inline std::array<Calls, kOperatorNames.size()> calls;

inline Calls& calls_of(Operator op) { return calls[static_cast<size_t>(op)]; }

}  // namespace gpuopt::overriding
