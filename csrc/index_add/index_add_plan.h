// Chooses the kernels and plans their launches. The path is chosen for the whole problem, then
// planned for each part of it (index_add_slices.h). Plain host C++: tests run it without a GPU.
#pragma once

#include <variant>

#include "index_add/paths/index_add_atomic.h"
#include "index_add/paths/index_add_bins.h"
#include "index_add/paths/index_add_lines.h"
#include "index_add/paths/index_add_sorted.h"

namespace gpuopt::index_add {

enum class Path : uint8_t { kAtomic, kSorted, kBins, kLines };

using Plan = std::variant<AtomicPlan, TilesPlan, HotPlan, SortedPlan, BinsPlan, LinesPlan>;

inline Path choose_path(const Problem& problem, const Layout& layout, const Device& device) {
  if (takes_lines(problem, layout, device)) return Path::kLines;
  if (takes_few_bins(problem, layout)) return Path::kBins;
  return takes_sorting(problem, layout) ? Path::kSorted : Path::kAtomic;
}

inline Plan make_plan(Path path, const Problem& problem, const Layout& layout,
                      const Device& device) {
  switch (path) {
    case Path::kSorted:
      return plan_sorted(problem, layout, device);
    case Path::kBins:
      return plan_bins(problem, layout, device);
    case Path::kLines:
      return plan_lines(problem, layout, device);
    case Path::kAtomic:
      if (aggregates(problem, layout)) return plan_tiles(problem, layout, device);
      if (may_queue_up(problem, layout)) return plan_hot(problem, layout);
  }
  return plan_atomic(problem, layout, device);
}

}  // namespace gpuopt::index_add
