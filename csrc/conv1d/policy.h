// Chooses the path of a convolution: the one with the lowest cost.
#pragma once

#include <limits>
#include <string_view>

#include "conv1d/plan.h"
#include "conv1d/through_rows.h"

namespace gpuopt::conv1d {

// Up to this many input channels per group, paths are tried. The costs are fitted to no more.
constexpr int64_t kMostChannels = 64;
// Whether tap GEMMs are nearly always the fastest (61 of 72 outputs and input gradients of
// conv1d-paths.jsonl, 2.6 and 3.0 times ATen in the mean): cuDNN lacks fast kernels for groups of
// many channels. Tap GEMMs copy signals of any layout.
inline bool is_by_taps(bool is_half, int64_t groups, int64_t in, int64_t out, int64_t taps) {
  return is_half && groups > 1 && in > most_gemm_channels(is_half) && in <= kTapGemmChannels &&
         out <= kTapGemmChannels && taps >= 3;
}
// ATen is tried from this many weights per tap and group. Below, cuDNN uses no tensor cores.
constexpr int64_t kDenseWeights = 96;

namespace detail {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Whether cuDNN has its fastest kernels: for whole vectors of channels, which most models have.
inline bool is_aligned(const Problem& p) {
  return p.groups == 1 && p.from.channels % 8 == 0 && p.to.channels % 8 == 0 && item_of(p) <= 4;
}

inline const Costs& costs_of_aten(const Problem& p, Pass pass) {
  const bool aligned = is_aligned(p);
  switch (pass) {
    case Pass::kForward:
      return aligned ? costs::kAtenForwardAligned : costs::kAtenForward;
    case Pass::kInputGradient:
      return aligned ? costs::kAtenInputGradientAligned : costs::kAtenInputGradient;
    case Pass::kWeightGradient:
      break;
  }
  return aligned ? costs::kAtenWeightGradientAligned : costs::kAtenWeightGradient;
}

inline double cost_of_aten(const Problem& p, Pass pass) {
  if (p.from.channels * p.to.channels < kDenseWeights) return kNever;
  const auto outputs = static_cast<double>(outputs_of(p));
  const auto inputs =
      static_cast<double>(p.batch * p.groups * p.from.channels) * static_cast<double>(p.from.size);
  // Terms: multiply-adds, groups, inputs, taps, bytes that cuDNN transposes.
  return cost_of(
      costs_of_aten(p, pass), p,
      {outputs * static_cast<double>(macs_per_output(p)) / 1e9, static_cast<double>(p.groups) / 10,
       inputs / 1e6, static_cast<double>(p.taps) / 10, traffic_of(p) * scatter_of(p.from)});
}

template <typename Path>
double cost_of_path(const Path& path, const Problem& p, const Device& device) {
  return std::visit(
      [&](const auto& plan) {
        if constexpr (requires { plan.kCosts; }) {
          return cost_of(plan.kCosts, p, plan.terms(p, device));
        } else {
          return kNever;
        }
      },
      path);
}

// Splits a problem by examples or, for a single example, by groups. The result has `channels` per
// group.
inline std::pair<Problem, Problem> halves_of(const Problem& problem, int64_t channels) {
  Problem first = problem, second = problem;
  const bool images = problem.batch > 1;
  int64_t& count = images ? first.batch : first.groups;
  int64_t& rest = images ? second.batch : second.groups;
  count /= 2;
  rest -= count;
  const int64_t item = item_of(problem);
  const auto move = [item](const void*& data, int64_t values) {
    data = static_cast<const char*>(data) + values * item;
  };
  for (Signal* signal : {&second.from, &second.to}) {
    move(signal->data,
         count * (images ? signal->batch_stride : signal->channels * signal->channel_stride));
  }
  if (!images) {
    move(second.weight.data, count * problem.weight.group_stride);
    if (second.bias != nullptr) {
      move(second.bias, count * channels * problem.bias_stride);
    }
  }
  return {first, second};
}

inline void choose(Plan& plan, const Problem& p, Pass pass, const Device& device) {
  plan.us = cost_of_aten(p, pass);
  for_each_path(p, pass, device, [&](const auto& path, const Problem& laid) {
    const double cost = cost_of_path(path, laid, device);
    if (cost < plan.us) {
      plan.us = cost;
      plan.path = path;
    }
  });
}

}  // namespace detail

// Whether a problem needs several launches. A weight gradient sums over all positions, so it is
// never split.
inline bool needs_split(const Problem& p, Pass pass, int64_t launch_outputs = kLaunchOutputs) {
  const Signal& result = pass == Pass::kForward ? p.to : p.from;
  return pass != Pass::kWeightGradient && p.batch * p.groups > 1 &&
         p.batch * p.groups * result.channels * result.size > launch_outputs;
}

namespace detail {

// Plans a problem without transpositions.
inline Plan plan_as_laid(const Problem& p, Pass pass, const Device& device,
                         int64_t launch_outputs) {
  Plan made;
  made.dtype = p.dtype;
  if (!needs_split(p, pass, launch_outputs)) {
    choose(made, p, pass, device);
    return made;
  }
  const Signal& result = pass == Pass::kForward ? p.to : p.from;
  const auto [first, second] = halves_of(p, result.channels);
  made = plan_as_laid(first, pass, device, launch_outputs);
  Plan* last = &made;
  while (last->rest) last = last->rest.get();
  last->rest = std::make_unique<Plan>(plan_as_laid(second, pass, device, launch_outputs));
  made.us += last->rest->us;
  const Signal& half = pass == Pass::kForward ? second.to : second.from;
  const int64_t offset =
      static_cast<const char*>(half.data) - static_cast<const char*>(result.data);
  for (Plan* part = last->rest.get(); part != nullptr; part = part->rest.get()) {
    part->offset += offset;
  }
  for (const Plan* part = &made; part != nullptr; part = part->rest.get()) {
    if (part->is_aten()) return {.dtype = p.dtype, .us = made.us};
  }
  return made;
}

}  // namespace detail

// The plan through rows, if a signal is channels last and ATen is not the fastest for rows. Nothing
// if the transpositions alone take `most_us`.
inline std::optional<Plan> plan_through_rows(const Problem& p, Pass pass, const Device& device,
                                             int64_t launch_outputs = kLaunchOutputs,
                                             double most_us = detail::kNever) {
  const auto rows = through_rows(p, pass);
  if (!rows || rows->us >= most_us) return {};
  Plan made = detail::plan_as_laid(rows->problem, pass, device, launch_outputs);
  if (made.is_aten()) return {};
  made.us += rows->us;
  made.through_rows = true;
  return made;
}

// Plans one pass of a problem. See Problem for what each pass reads and writes.
inline Plan plan(const Problem& p, Pass pass, const Device& device,
                 int64_t launch_outputs = kLaunchOutputs) {
  if (p.from.channels > kMostChannels) return {};
  Plan made = detail::plan_as_laid(p, pass, device, launch_outputs);
  const double most_us = kRowsShare * made.us;
  auto rows = plan_through_rows(p, pass, device, launch_outputs, most_us);
  return rows && rows->us < most_us ? std::move(*rows) : std::move(made);
}

// The path with this name, for tests and measurements. ATen if it does not support the problem. The
// problem must not need a split.
inline Plan plan_path(const Problem& p, Pass pass, const Device& device, std::string_view name) {
  Plan plan;
  plan.dtype = p.dtype;
  if (name == kRowsName) return plan_through_rows(p, pass, device).value_or(std::move(plan));
  for_each_path(p, pass, device, [&](const auto& path, const Problem&) {
    if (name == name_of(path)) plan.path = path;
  });
  return plan;
}

}  // namespace gpuopt::conv1d
