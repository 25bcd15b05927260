// Shape, strides, dtype and mode -> which kernels add. Plain host C++: tests run it without a GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/device.h"
#include "common/dtype.h"
#include "common/index.h"
#include "index_add/index_add_tuning.h"

namespace gpuopt::index_add {

constexpr int kMaxDims = 65;  // ATen's 64, and the parts of complex numbers
// Outer dimensions that one launch walks; problems with more are cut into slices.
constexpr int kMaxOuterDims = 4;
constexpr int kMaxValues = 8;  // of a lane
// Values of an entry, and all in all, that one launch numbers.
constexpr int64_t kMaxLaunchSize = int64_t{1} << 30;
constexpr int64_t kMaxLaunchValues = int64_t{1} << 37;

// What a caller is promised beyond the sum (torch_ops/index_add.py).
enum class Mode : uint8_t { kFast, kDeterministic, kAccurate };

// A dimension of self and source other than the indexed one. Strides are in elements.
struct Dim {
  int64_t size = 1;
  int64_t self_stride = 0;
  int64_t source_stride = 0;
};

// self[.., index[entry], ..] += alpha * source[.., entry, ..]
struct Problem {
  void* self = nullptr;
  const void* source = nullptr;
  const void* index = nullptr;
  DType dtype = DType::kFloat32;  // real: complex numbers are dimensions of two parts
  bool long_index = true;         // int64, else int32
  Mode mode = Mode::kFast;
  ScalarValue alpha;
  int64_t bins = 0;     // self's size in the indexed dimension
  int64_t entries = 0;  // of the index
  int64_t bin_stride = 0;
  int64_t entry_stride = 0;
  int64_t index_stride = 0;
  int num_dims = 0;
  Dim dims[kMaxDims];  // any order, sizes positive
};

// The other dimensions: `inner` is the one that neighbouring lanes run along, of size 1 where they
// run along the entries; a row is what an entry has of it.
struct Layout {
  Dim inner;
  int num_outer = 0;
  Dim outer[kMaxDims];
  int64_t outer_size = 1;
};

enum class Path : uint8_t {
  // Values are added to memory atomically, each by itself or with others of its bin.
  kAtomic,
  // The index is sorted; then each row of self is read and written once.
  kSorted,
  // Few bins: each block adds up in a copy of them in shared memory.
  kBins,
  // Few entries and few bins: the index is sorted, then blocks sum rows of entries in shared
  // memory.
  kLines,
};

namespace detail {

inline int bits_for(int64_t count) {  // that tell `count` numbers apart
  int bits = 0;
  while (bits < 63 && (int64_t{1} << bits) < count) ++bits;
  return bits;
}

}  // namespace detail

inline size_t accumulator_bytes(DType dtype) { return size_of(dtype) <= 4 ? 4 : 8; }

inline bool is_inexact(DType dtype) { return category_of(dtype) == Category::kFloat; }
inline bool is_half(DType dtype) { return is_inexact(dtype) && size_of(dtype) == 2; }

inline Layout make_layout(const Problem& problem) {
  Dim dims[kMaxDims];
  int count = 0;
  for (int d = 0; d < problem.num_dims; ++d) {
    if (problem.dims[d].size != 1) dims[count++] = problem.dims[d];
  }
  std::sort(dims, dims + count, [](const Dim& a, const Dim& b) {
    return a.self_stride != b.self_stride ? a.self_stride < b.self_stride
                                          : a.source_stride < b.source_stride;
  });
  Layout layout;
  Dim merged[kMaxDims];
  int num_merged = 0;
  for (int d = 0; d < count; ++d) {
    Dim* last = num_merged > 0 ? &merged[num_merged - 1] : nullptr;
    if (last != nullptr && dims[d].self_stride == last->size * last->self_stride &&
        dims[d].source_stride == last->size * last->source_stride) {
      last->size *= dims[d].size;
    } else {
      merged[num_merged++] = dims[d];
    }
  }
  // Lanes run along the entries where those are closer together, in self and source both.
  const bool has_inner =
      num_merged > 0 && (merged[0].self_stride < problem.bin_stride ||
                         merged[0].source_stride < problem.entry_stride || problem.bins == 1);
  if (has_inner) layout.inner = merged[0];
  for (int d = has_inner ? 1 : 0; d < num_merged; ++d) {
    layout.outer[layout.num_outer++] = merged[d];
    layout.outer_size *= merged[d].size;
  }
  return layout;
}

// The widest access at which every row of self and source is aligned: a pack, 4 bytes or an
// element. Sixteen bytes to sum, at 32 bits each, would not stay in registers.
inline int values_per_access(const Problem& problem, const Layout& layout) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  const Dim& inner = layout.inner;
  if (inner.size > 1 && (inner.self_stride != 1 || inner.source_stride != 1)) return 1;
  for (const int64_t bytes : {int64_t{kAccessBytes}, int64_t{4}}) {
    if (bytes <= size || bytes / size > kMaxValues || inner.size * size % bytes != 0) continue;
    const auto aligned = [&](int64_t stride) { return stride * size % bytes == 0; };
    bool all = reinterpret_cast<uintptr_t>(problem.self) % bytes == 0 &&
               reinterpret_cast<uintptr_t>(problem.source) % bytes == 0 &&
               aligned(problem.bin_stride) && aligned(problem.entry_stride);
    for (int d = 0; d < layout.num_outer; ++d) {
      all = all && aligned(layout.outer[d].self_stride) && aligned(layout.outer[d].source_stride);
    }
    if (all) return static_cast<int>(bytes / size);
  }
  return 1;
}

inline bool takes_few_bins(const Problem& problem, const Layout& layout) {
  if (problem.mode == Mode::kDeterministic && is_inexact(problem.dtype)) return false;
  const int64_t width = layout.inner.size;
  const auto bytes = static_cast<int64_t>(accumulator_bytes(problem.dtype));
  return width <= kMaxBinRow && problem.bins > 0 &&
         problem.bins <= kMaxBinBytes / (bytes * width) && problem.entries >= 4 * problem.bins &&
         problem.entries * width * layout.outer_size >= kMinBinValues &&
         problem.entries <= kMaxIndex32 / kMaxBinRow;
}

// Whether `count` neighbouring values of each row lie side by side, aligned to what they take, up
// to a pack.
inline bool takes_neighbours(const Problem& problem, const Layout& layout, int count) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  const int64_t bytes = std::min<int64_t>(count * size, kAccessBytes);
  bool all = layout.inner.size == 1 && problem.entry_stride == 1 &&
             reinterpret_cast<uintptr_t>(problem.source) % bytes == 0;
  for (int d = 0; d < layout.num_outer; ++d) {
    all = all && layout.outer[d].source_stride * size % bytes == 0;
  }
  return all;
}

// Of an entry of `bytes` to a value.
constexpr int line_values(size_t bytes) {
  return std::min(kMaxLineValues, kMaxLineBytes / static_cast<int>(bytes));
}

// Of a block that takes `group` outer indices.
inline int64_t line_shared_bytes(const Problem& problem, int group) {
  const auto sum_bytes = static_cast<int64_t>(accumulator_bytes(problem.dtype));
  const int64_t sums =
      ceil_div<int64_t>(problem.bins * group * sum_bytes, kAccessBytes) * kAccessBytes;
  const int64_t slots = ceil_div<int64_t>(problem.entries, 16) * 16;
  return sums + slots * group * static_cast<int64_t>(size_of(problem.dtype));
}

// While the index is sorted.
inline int64_t order_shared_bytes(const Problem& problem) {
  return problem.entries * static_cast<int64_t>(sizeof(uint32_t));
}

inline bool takes_lines(const Problem& problem, const Layout& layout, const Device& device) {
  if (layout.inner.size != 1 || problem.bins < 1 || problem.bins > UINT16_MAX ||
      problem.entries > kOrderThreads * kOrderItems ||
      line_shared_bytes(problem, line_values(size_of(problem.dtype))) > kLineSharedBytes ||
      std::max(line_shared_bytes(problem, 1), order_shared_bytes(problem)) >
          device.shared_bytes - kOrderStaticBytes ||
      problem.entries * layout.outer_size < kMinBinValues) {
    return false;
  }
  if (problem.mode == Mode::kDeterministic && is_inexact(problem.dtype)) return true;
  return problem.entries >= 4 * problem.bins && layout.outer_size >= kMinLines;
}

// Whether blocks sum rows of one bin before they add them: rows of several whole packs. (Booleans
// are stored, so nothing queues up.)
inline bool aggregates(const Problem& problem, const Layout& layout) {
  const int values = values_per_access(problem, layout);
  return values * size_of(problem.dtype) == kAccessBytes && problem.dtype != DType::kBool &&
         layout.inner.size >= int64_t{kMinTileUnits} * values &&
         problem.entries >= kMinTileEntries && problem.bins < UINT32_MAX;
}

// Packs of these are added by one instruction on sm_90.
inline bool has_vector_additions(DType dtype) { return is_half(dtype) || dtype == DType::kFloat32; }

// Where either is allowed: whether the sort costs less than what it saves.
inline bool sorting_pays(const Problem& problem, const Layout& layout) {
  const auto row_bytes = layout.inner.size * static_cast<int64_t>(size_of(problem.dtype));
  const double slice = static_cast<double>(row_bytes) * static_cast<double>(layout.outer_size);
  const auto entries = static_cast<double>(problem.entries);
  const auto bins = static_cast<double>(problem.bins);
  if (aggregates(problem, layout) && has_vector_additions(problem.dtype)) {
    const double touched =
        slice * bins * (1 - std::exp(-entries / bins));  // if all are as frequent
    const double added = slice * bins > kCachedSelfBytes ? kAddedTraffic : kCachedTraffic;
    return added * slice * entries >
           slice * entries + 2 * touched + kSortTraffic + kSortEntryTraffic * entries;
  }
  const bool many =
      problem.entries >= kSortEntries || problem.entries >= kSortRepeats * problem.bins;
  return many && row_bytes >= kSortRowBytes && slice * entries >= kSortSourceBytes;
}

inline bool takes_sorting(const Problem& problem, const Layout& layout) {
  if (problem.mode == Mode::kDeterministic && is_inexact(problem.dtype)) return true;
  if (problem.mode == Mode::kAccurate && is_half(problem.dtype)) return true;
  return sorting_pays(problem, layout);
}

// Whether bins that many entries hit would hold the others up, in rows that no tiles take.
inline bool may_queue_up(const Problem& problem, const Layout& layout) {
  const int64_t width = layout.inner.size;
  return width <= kMaxHotRow && layout.outer_size == 1 && problem.bins < UINT32_MAX &&
         problem.entries >= kHotSamples && problem.entries * width >= kMinHotValues;
}

inline Path choose_path(const Problem& problem, const Device& device) {
  const Layout layout = make_layout(problem);
  if (takes_lines(problem, layout, device)) return Path::kLines;
  if (takes_few_bins(problem, layout)) return Path::kBins;
  return takes_sorting(problem, layout) ? Path::kSorted : Path::kAtomic;
}

}  // namespace gpuopt::index_add
