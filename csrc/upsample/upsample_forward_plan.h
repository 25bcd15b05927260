// Plans the forward: shapes, strides and alignment -> path and launch numbers. Host code without
// CUDA, tested on the CPU.
#pragma once

#include "upsample/upsample_problem.h"

namespace gpuopt::upsample {

// Small blocks, whose threads load two vectors before they store them. (2,512,256,256) x2 in f32 or
// bf16 on an H200: 326 us. With blocks of 256 threads it takes 335 us, with one vector 348 us, with
// four 332 us.
constexpr int kForwardThreads = 128;
constexpr int kVecsAtOnce = 2;
// Output rows of a thread of forward_rows_kernel. (1,3,1080,1920) x2 in uint8 takes 16.0 us with
// four rows, 18.2 us with two, 16.4 us with eight. Eight are slower for images with fewer rows.
constexpr int kRowThreads = 256;
constexpr int kRowsAtOnce = 4;
// Groups that a thread of forward_images_kernel loads together. (16,64,100,100) to (150,150) in
// bf16 takes 25.1 us with four groups, 27.6 us with two.
constexpr int kGroupsAtOnce = 4;

enum class Path : uint8_t {
  kVecs,    // one aligned word of the input holds all sources of an output vector
  kRows,    // a thread writes several rows: it finds its columns once, and rows share loads
  kImages,  // a thread writes the same pixels of several images: it finds their sources once
  kGather,  // everything else, unit by unit
};

struct ForwardPlan {
  Path path = Path::kGather;
  Layout layout;
  int repeat = 1;          // neighbouring output units with one source: a power of two
  bool long_rows = false;  // too long for float32 indices or 32-bit offsets
  int64_t rows = 0, row_units = 0, vecs_per_row = 0;
  int64_t vecs = 0;  // whole ones; with kRows, vectors per row times groups of rows
  int vecs_at_once = 1;
  int64_t group_images = 1, groups = 1, group_step = 1;  // kImages

  int64_t units() const { return rows * row_units; }
};

inline ForwardPlan plan_forward(const Problem& problem, const Device& device) {
  ForwardPlan plan;
  plan.layout = make_layout(problem);
  const Layout& layout = plan.layout;
  const Axis &height = problem.height, &width = problem.width;
  const int64_t vec_units = kAccessBytes / layout.unit_bytes;
  plan.rows = layout.images * height.out;
  plan.row_units = width.out * layout.pixel_units;
  plan.vecs_per_row = plan.row_units / vec_units;
  plan.vecs = plan.units() / vec_units;
  const int64_t reach =
      (width.in - 1) * layout.pixel_stride + (layout.pixel_units - 1) * layout.unit_stride;
  plan.long_rows = std::max(width.in, width.out) >= kShortAxis || reach > INT32_MAX;
  if (plan.long_rows) return plan;

  if (layout.pixel_units == 1 && width.factor > 0) {
    while (plan.repeat < std::min<int64_t>(vec_units, 8) && width.factor % (2 * plan.repeat) == 0) {
      plan.repeat *= 2;
    }
  }
  const bool rows_of_vecs = plan.row_units % vec_units == 0;
  const int64_t word_bytes = kAccessBytes / plan.repeat;
  const bool words = layout.pixel_stride == 1 && alignment_of_rows(problem, layout) >= word_bytes &&
                     (plan.repeat == width.factor || plan.repeat == vec_units);
  const bool whole_vecs = layout.unit_bytes == kAccessBytes;  // wide pixels
  // Where every vector has a resident thread of its own, two vectors per thread are slower.
  const int64_t resident = int64_t{2048} * device.sms;
  plan.vecs_at_once = plan.vecs <= resident ? 1 : kVecsAtOnce;
  if (rows_of_vecs && (whole_vecs || (plan.repeat > 1 && words))) {
    plan.path = Path::kVecs;
    return plan;
  }
  const bool enlarges = 2 * int64_t{height.out} >= 3 * int64_t{height.in};
  const int64_t groups = ceil_div<int64_t>(height.out, kRowsAtOnce) * layout.images;
  const int widest_in_rows = layout.pixel_units > 1 ? 4 : 2;
  if (rows_of_vecs && layout.unit_bytes <= widest_in_rows && enlarges && height.out < kShortAxis &&
      groups * plan.vecs_per_row >= resident && plan.units() <= kMaxPartUnits) {
    plan.path = Path::kRows;
    plan.repeat = 1;
    plan.vecs = groups * plan.vecs_per_row;
    return plan;
  }
  // A group is the smallest number of images that fills whole vectors. Its images must be equally
  // far apart.
  const int64_t image_units = height.out * plan.row_units;
  while (plan.group_images * image_units % vec_units != 0) plan.group_images *= 2;
  plan.groups = layout.images / plan.group_images;
  plan.group_step = ceil_div<int64_t>(plan.groups, kGroupsAtOnce);
  const bool even = layout.channels % plan.group_images == 0 ||
                    (layout.images % plan.group_images == 0 &&
                     layout.batch_stride == layout.channels * layout.channel_stride);
  const int64_t group_reach =
      (plan.group_images - 1) * layout.channel_stride + (height.in - 1) * layout.row_stride + reach;
  const int64_t group_vecs = plan.group_images * image_units / vec_units;
  if (even && plan.groups >= kGroupsAtOnce && plan.repeat == 1 && layout.unit_bytes <= 4 &&
      group_reach <= INT32_MAX && plan.units() <= kMaxPartUnits &&
      plan.group_step * group_vecs >= resident) {
    plan.path = Path::kImages;
    plan.vecs = plan.group_step * group_vecs;
  }
  return plan;
}

// Returns the units of the launch that begins at unit `first`: a multiple of 16, and so of every
// vector size, or all that are left.
inline int64_t part_units(const Problem& problem, const ForwardPlan& plan, int64_t first) {
  const int64_t row = first / plan.row_units;
  const int64_t in_row = kMaxIndex32 - first % plan.row_units;
  const int64_t in_rows = (kMaxIndex32 - row % problem.height.out) * plan.row_units;
  const int64_t most = std::min({kMaxPartUnits, in_row, in_rows}) / 16 * 16;
  return std::min(std::max<int64_t>(most, 16), plan.units() - first);
}

}  // namespace gpuopt::upsample
