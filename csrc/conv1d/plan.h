// A plan: the kernel that computes a convolution, and its arguments. Plain host C++.
#pragma once

#include <memory>
#include <variant>

#include "conv1d/forward/channel_tiles.h"
#include "conv1d/forward/channels_last.h"
#include "conv1d/forward/expand.h"
#include "conv1d/forward/general.h"
#include "conv1d/forward/implicit_gemm.h"
#include "conv1d/forward/polyphase.h"
#include "conv1d/forward/sliding.h"
#include "conv1d/forward/small.h"
#include "conv1d/forward/strided.h"
#include "conv1d/forward/tap_gemm.h"
#include "conv1d/forward/toeplitz.h"
#include "conv1d/input_gradient/col2im.h"
#include "conv1d/input_gradient/general.h"
#include "conv1d/input_gradient/strided.h"
#include "conv1d/weight_gradient/channel_tiles.h"
#include "conv1d/weight_gradient/channels_last.h"
#include "conv1d/weight_gradient/chunks.h"
#include "conv1d/weight_gradient/general.h"
#include "conv1d/weight_gradient/im2col.h"
#include "conv1d/weight_gradient/tap_gemm.h"

namespace gpuopt::conv1d {

// ATen, which calls cuDNN.
struct AtenPlan {
  static constexpr const char* kName = "aten";
};

// The name of all plans through rows (through_rows.h).
constexpr const char* kRowsName = "rows";

// Input gradients of stride 1 run as forward convolutions, see transposed().
using ForwardPath = std::variant<AtenPlan, ToeplitzPlan, SlidingPlan, StridedPlan, PolyphasePlan,
                                 ExpandPlan, ImplicitGemmPlan, TapGemmPlan, ChannelTilesPlan,
                                 ChannelsLastPlan, SmallPlan, GeneralPlan>;
using InputGradientPath =
    std::variant<AtenPlan, StridedGradientPlan, Col2imPlan, GeneralGradientPlan>;
using WeightGradientPath =
    std::variant<AtenPlan, WeightChunksPlan, WeightChannelTilesPlan, WeightChannelsLastPlan,
                 Im2colPlan, WeightTapGemmPlan, WeightColumnsPlan, WeightGeneralPlan>;

template <typename Path>
const char* name_of(const Path& path) {
  return std::visit([](const auto& plan) { return plan.kName; }, path);
}

struct Plan {
  std::variant<ForwardPath, InputGradientPath, WeightGradientPath> path;
  DType dtype = DType::kFloat32;
  // Whether channels-last signals are transposed to rows first. The plan is then the one of these
  // rows, without their addresses: it tells the path and can't be launched.
  bool through_rows = false;
  double us = 0;               // the predicted time, of all parts
  int64_t offset = 0;          // of this part in the result, in bytes
  std::unique_ptr<Plan> rest;  // further launches, if the problem is split

  const char* name() const {
    if (through_rows) return kRowsName;
    return std::visit([](const auto& of_pass) { return name_of(of_pass); }, path);
  }
  bool is_aten() const {
    return std::visit([](const auto& of_pass) { return of_pass.index() == 0; }, path);
  }
};

namespace detail {

template <typename Variant>
struct EachPlan;
template <typename... Plans>
struct EachPlan<std::variant<AtenPlan, Plans...>> {
  template <typename Visit>
  static void visit(const Problem& p, const Device& device, const Visit& visit) {
    const auto offer = [&](auto plan) {
      if (plan) visit(std::variant<AtenPlan, Plans...>(*plan), p);
    };
    (offer(Plans::make(p, device)), ...);
  }
};

}  // namespace detail

// Calls visit(path, problem) for each path but ATen that supports a pass of a problem.
template <typename Visit>
void for_each_path(const Problem& p, Pass pass, const Device& device, const Visit& visit) {
  if (pass == Pass::kWeightGradient) {
    return detail::EachPlan<WeightGradientPath>::visit(p, device, visit);
  }
  if (pass == Pass::kForward) return detail::EachPlan<ForwardPath>::visit(p, device, visit);
  if (has_unit_stride(p)) detail::EachPlan<ForwardPath>::visit(transposed(p), device, visit);
  detail::EachPlan<InputGradientPath>::visit(p, device, visit);
}

}  // namespace gpuopt::conv1d
