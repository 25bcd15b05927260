// Chooses the kernels and plans their launches. The path is chosen for the whole problem, then
// planned for each part of it (index_add_slices.h). Plain host C++: tests run it without a GPU.
#pragma once

#include <variant>

#include "index_add/index_add_slices.h"
#include "index_add/paths/index_add_atomic.h"
#include "index_add/paths/index_add_bins.h"
#include "index_add/paths/index_add_lines.h"
#include "index_add/paths/index_add_sorted.h"

namespace gpuopt::index_add {

enum class Path : uint8_t { kAtomic, kSorted, kBins, kLines };

struct Plan {
  DType dtype;
  std::variant<AtomicPlan, TilesPlan, HotPlan, SortedPlan, BinsPlan, LinesPlan> path;
};

inline Path choose_path(const Problem& problem, const Layout& layout, const Device& device,
                        const Tuning& tuning) {
  if (problem.wide_self) return Path::kAtomic;
  if (takes_lines(problem, layout, device, tuning)) return Path::kLines;
  if (takes_few_bins(problem, layout, tuning)) return Path::kBins;
  return takes_sorting(problem, layout, tuning) ? Path::kSorted : Path::kAtomic;
}

// Whether additions of many entries to one row don't queue up: blocks or warps sum them first, or
// there are few.
inline bool sums_repeats(const Problem& problem, const Layout& layout, const Device& device,
                         const Tuning& tuning) {
  return problem.entries < tuning.min_tile_entries || has_vectors(problem, layout) ||
         plan_atomic(problem, layout, device, tuning, values_per_access(problem, layout))
             .block_sums;
}

// Whether half types in mode accurate are added to a copy of self in float32, instead of sorted.
inline bool adds_in_float32(const Problem& problem, const Device& device, const Tuning& tuning) {
  if (problem.mode != Mode::kAccurate || !is_half(problem.dtype)) return false;
  const Layout layout = make_layout(problem);
  if (choose_path(problem, layout, device, tuning) != Path::kSorted) return false;
  Problem added = problem;
  added.mode = Mode::kFast;
  added.wide_self = true;
  if (!sums_repeats(added, layout, device, tuning)) return false;
  constexpr double kTwoLaunches = 10e6;  // their time in bytes: self is converted, and back
  const auto slice =
      static_cast<double>(layout.inner.size) * static_cast<double>(layout.outer_size);
  const auto entries = static_cast<double>(problem.entries);
  const auto bins = static_cast<double>(problem.bins);
  const double converted = 12 * slice * bins + kTwoLaunches;
  return converted + 4 * tuning.added_traffic * slice * entries <
         2 * slice * entries + tuning.sort_traffic + tuning.sort_entry_traffic * entries;
}

inline Plan plan_part(Path path, const Problem& part, const Layout& layout, const Device& device,
                      const Tuning& tuning) {
  switch (path) {
    case Path::kSorted:
      return {part.dtype, plan_sorted(part, layout, device, tuning)};
    case Path::kBins:
      return {part.dtype, plan_bins(part, layout, device)};
    case Path::kLines:
      return {part.dtype, plan_lines(part, layout, device)};
    case Path::kAtomic:
      if (aggregates(part, layout, tuning))
        return {part.dtype, plan_tiles(part, layout, device, tuning)};
      if (!part.wide_self && may_queue_up(part, layout, tuning))
        return {part.dtype, plan_hot(part, layout, device)};
  }
  return {part.dtype, plan_atomic(part, layout, device, tuning, values_per_access(part, layout))};
}

// Calls f(plan) for each part of a problem, one after another. Stops at the first error of f.
template <typename F>
auto for_each_plan(const Problem& problem, const Device& device, const Tuning& tuning, F&& f) {
  const Layout layout = make_layout(problem);
  const Path path = choose_path(problem, layout, device, tuning);
  return for_each_part(problem, layout, tuning, [&](const Problem& part, const Layout& own) {
    return f(plan_part(path, part, own, device, tuning));
  });
}

template <typename F>
void describe(const Plan& plan, F&& f) {
  std::visit([&](const auto& path) { describe(path, f); }, plan.path);
}

}  // namespace gpuopt::index_add
