// Plans the forward: shapes, strides and alignment -> path, arguments and launches. Host code
// without CUDA, tested on the CPU.
#pragma once

#include "common/tuning.h"
#include "upsample/upsample_forward_args.h"
#include "upsample/upsample_problem.h"

namespace gpuopt::upsample {
namespace detail {

// What all launches of a forward share.
struct ForwardChoice {
  ForwardPath path = ForwardPath::kGather;
  Layout layout;
  int repeat = 1;          // neighbouring output units with one source: a power of two
  bool long_rows = false;  // too long for float32 indices or 32-bit offsets
  int64_t rows = 0, row_units = 0, vecs_per_row = 0;
  int64_t vecs = 0;  // whole ones; with kRows, vectors per row times groups of rows
  int vecs_at_once = 1;
  int64_t group_images = 1, groups = 1, group_step = 1;  // kImages

  int64_t units() const { return rows * row_units; }
};

inline ForwardChoice choose_forward(const Problem& problem, const Device& device,
                                    const Tuning& tuning) {
  ForwardChoice choice;
  choice.layout = make_layout(problem);
  const Layout& layout = choice.layout;
  const Axis &height = problem.height, &width = problem.width;
  const int64_t vec_units = kAccessBytes / layout.unit_bytes;
  choice.rows = layout.images * height.out;
  choice.row_units = width.out * layout.pixel_units;
  choice.vecs_per_row = choice.row_units / vec_units;
  choice.vecs = choice.units() / vec_units;
  const int64_t reach =
      (width.in - 1) * layout.pixel_stride + (layout.pixel_units - 1) * layout.unit_stride;
  choice.long_rows = std::max(width.in, width.out) >= tuning.short_axis || reach > INT32_MAX;
  if (choice.long_rows) return choice;

  if (layout.pixel_units == 1 && width.factor > 0) {
    while (choice.repeat < std::min<int64_t>(vec_units, 8) &&
           width.factor % (2 * choice.repeat) == 0) {
      choice.repeat *= 2;
    }
  }
  const bool rows_of_vecs = choice.row_units % vec_units == 0;
  const int64_t word_bytes = kAccessBytes / choice.repeat;
  const bool words = layout.pixel_stride == 1 && alignment_of_rows(problem, layout) >= word_bytes &&
                     (choice.repeat == width.factor || choice.repeat == vec_units);
  const bool whole_vecs = layout.unit_bytes == kAccessBytes;  // wide pixels
  // Where every vector has a resident thread, two vectors per thread are slower.
  const int64_t resident = int64_t{2048} * device.sms;
  choice.vecs_at_once = choice.vecs <= resident ? 1 : kVecsAtOnce;
  if (rows_of_vecs && (whole_vecs || (choice.repeat > 1 && words))) {
    choice.path = ForwardPath::kVecs;
    return choice;
  }
  const bool enlarges = 2 * int64_t{height.out} >= 3 * int64_t{height.in};
  const int64_t groups = ceil_div<int64_t>(height.out, kRowsAtOnce) * layout.images;
  const int widest_in_rows = layout.pixel_units > 1 ? 4 : 2;
  if (rows_of_vecs && layout.unit_bytes <= widest_in_rows && enlarges &&
      height.out < tuning.short_axis && groups * choice.vecs_per_row >= resident &&
      choice.units() <= tuning.part_units) {
    choice.path = ForwardPath::kRows;
    choice.repeat = 1;
    choice.vecs = groups * choice.vecs_per_row;
    return choice;
  }
  // A group is the smallest number of images that fills whole vectors. Its images must be equally
  // far apart.
  const int64_t image_units = height.out * choice.row_units;
  while (choice.group_images * image_units % vec_units != 0) choice.group_images *= 2;
  choice.groups = layout.images / choice.group_images;
  choice.group_step = ceil_div<int64_t>(choice.groups, kGroupsAtOnce);
  const bool even = layout.channels % choice.group_images == 0 ||
                    (layout.images % choice.group_images == 0 &&
                     layout.batch_stride == layout.channels * layout.channel_stride);
  const int64_t group_reach = (choice.group_images - 1) * layout.channel_stride +
                              (height.in - 1) * layout.row_stride + reach;
  const int64_t group_vecs = choice.group_images * image_units / vec_units;
  // The gather path loads a unit that repeats once. This is not worth it where a vector has two
  // sources instead of four (an estimate).
  const bool few_repeats = choice.repeat == 1 || (choice.repeat == 2 && layout.unit_bytes == 4);
  if (even && choice.groups >= kGroupsAtOnce && few_repeats && layout.unit_bytes <= 4 &&
      group_reach <= INT32_MAX && choice.units() <= tuning.part_units &&
      choice.group_step * group_vecs >= resident) {
    choice.path = ForwardPath::kImages;
    choice.repeat = 1;
    choice.vecs = choice.group_step * group_vecs;
    return choice;
  }
  // In a small problem each thread has one unit, so that no unit waits for another.
  if (choice.units() <= kFewUnitsPerSm * device.sms) choice.vecs = 0;
  return choice;
}

// Returns the units of the launch that begins at unit `first`: a multiple of 16, and so of every
// vector size, or all that are left.
inline int64_t part_units(const Problem& problem, const ForwardChoice& choice, const Tuning& tuning,
                          int64_t first) {
  const int64_t row = first / choice.row_units;
  const int64_t in_row = kMaxIndex32 - first % choice.row_units;
  const int64_t in_rows = (kMaxIndex32 - row % problem.height.out) * choice.row_units;
  const int64_t most = std::min({tuning.part_units, in_row, in_rows}) / 16 * 16;
  return std::min(std::max<int64_t>(most, 16), choice.units() - first);
}

inline LaunchShape forward_launch(ForwardPath path, const ForwardArgs& args) {
  const unsigned threads = path == ForwardPath::kRows ? kRowThreads : kForwardThreads;
  const bool copies_vecs = path == ForwardPath::kVecs || path == ForwardPath::kGather;
  unsigned items = std::max(args.vecs, 1u), at_once = copies_vecs ? args.vecs_at_once : 1;
  if (path == ForwardPath::kGather && args.vecs == 0) items = args.units, at_once = 1;
  return {ceil_div(items, threads * at_once), threads, 0, /*use_pdl=*/true};
}

// The launches from unit `first` on.
inline ForwardPlan plan_forward_from(const Problem& problem, const ForwardChoice& choice,
                                     const Tuning& tuning, int64_t first) {
  const Layout& layout = choice.layout;
  const int64_t height = problem.height.out, row = first / choice.row_units, image = row / height;
  const int64_t units = part_units(problem, choice, tuning, first);
  const bool is_whole = units == choice.units();

  ForwardPlan plan;
  ForwardArgs& args = plan.args;
  args.in = static_cast<const char*>(problem.from) +
            image / layout.channels * layout.batch_stride * layout.unit_bytes;
  args.out = static_cast<char*>(problem.to) + first * layout.unit_bytes;
  args.height = problem.height;
  args.width = problem.width;
  args.vecs_per_row = divide_by(std::max<int64_t>(choice.vecs_per_row, 1));
  args.pixel_units = divide_by(layout.pixel_units);
  args.out_width = divide_by(problem.width.out);
  args.out_height = divide_by(height);
  args.channels = divide_by(layout.channels);
  args.row_groups = divide_by(ceil_div<int64_t>(height, kRowsAtOnce));
  // Launches of parts have whole vectors and the rest, see choose_forward().
  args.vecs =
      static_cast<uint32_t>(is_whole ? choice.vecs : units * layout.unit_bytes / kAccessBytes);
  args.units = static_cast<uint32_t>(units);
  args.first_unit = static_cast<uint32_t>(first % choice.row_units);
  args.first_row = static_cast<uint32_t>(row % height);
  args.first_image = static_cast<uint32_t>(image % layout.channels);
  args.rows = static_cast<uint32_t>(std::min(choice.rows - row, kMaxIndex32));
  args.vecs_at_once = static_cast<uint32_t>(choice.vecs_at_once);
  args.vecs_per_group = divide_by(std::clamp<int64_t>(
      choice.group_images * height * choice.row_units * layout.unit_bytes / kAccessBytes, 1,
      kMaxIndex32));
  args.group_images = static_cast<uint32_t>(choice.group_images);
  args.groups = static_cast<uint32_t>(choice.groups);
  args.group_step = static_cast<uint32_t>(choice.group_step);
  args.batch_stride = layout.batch_stride;
  args.channel_stride = layout.channel_stride;
  args.row_stride = layout.row_stride;
  args.pixel_stride = static_cast<int32_t>(layout.pixel_stride);
  args.unit_stride = static_cast<int32_t>(layout.unit_stride);

  plan.path = choice.path;
  plan.unit_bytes = layout.unit_bytes;
  plan.repeat = choice.repeat;
  plan.long_rows = choice.long_rows;
  plan.launch = forward_launch(choice.path, args);
  if (first + units < choice.units()) {
    plan.rest =
        std::make_unique<ForwardPlan>(plan_forward_from(problem, choice, tuning, first + units));
  }
  return plan;
}

}  // namespace detail

inline ForwardPlan plan_forward(const Problem& problem, const Device& device,
                                const Tuning& tuning = limits<Tuning>()) {
  const detail::ForwardChoice choice = detail::choose_forward(problem, device, tuning);
  return detail::plan_forward_from(problem, choice, tuning, 0);
}

// Without plan.rest.
template <typename F>
void describe(const ForwardPlan& plan, F&& f) {
  const ForwardArgs& args = plan.args;
  f("path", plan.path);
  f("unit_bytes", plan.unit_bytes);
  f("repeat", plan.repeat);
  f("long_rows", plan.long_rows);
  f("source", args.in);
  f("to", args.out);
  f("channels", args.channels);
  f("batch_stride", args.batch_stride);
  f("channel_stride", args.channel_stride);
  f("row_stride", args.row_stride);
  f("pixel_stride", args.pixel_stride);
  f("unit_stride", args.unit_stride);
  f("pixel_units", args.pixel_units);
  f("first_unit", args.first_unit);
  f("first_row", args.first_row);
  f("first_image", args.first_image);
  f("rows", args.rows);
  f("units", args.units);
  f("vecs", args.vecs);
  f("vecs_per_row", args.vecs_per_row);
  f("vecs_at_once", args.vecs_at_once);
  f("group_images", args.group_images);
  f("groups", args.groups);
  f("group_step", args.group_step);
  f("launch", plan.launch);
}

}  // namespace gpuopt::upsample
