// The problem that a call solves, and the layout of its images that kernels see. Host code without
// CUDA.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "common/describe.h"
#include "common/device.h"
#include "common/dtype.h"
#include "common/strided.h"
#include "upsample/upsample_index.h"

namespace gpuopt::upsample {

// One forward or backward call. It reads the images `from` and writes the images `to`.
struct Problem {
  const void* from = nullptr;
  void* to = nullptr;
  DType dtype = DType::kFloat32;
  int64_t batch = 0, channels = 0;
  Axis height, width;  // in and out of the forward, in a backward call too
  // Strides of `from` in elements. `to` is dense, in NCHW or NHWC order.
  int64_t batch_stride = 0, channel_stride = 0, row_stride = 0, pixel_stride = 0;
  bool channels_last = false;

  GPUOPT_DESCRIBE(from, to, dtype, batch, channels, height, width, batch_stride, channel_stride,
                  row_stride, pixel_stride, channels_last)
};

// The images as kernels see them: planes of units. In NCHW order a unit is an element, and every
// channel is an image. In NHWC order a pixel has channels * size / unit_bytes units. A unit is then
// as wide as the alignment of pixels allows, up to 16 bytes.
struct Layout {
  int unit_bytes = 1;
  int64_t images = 0, channels = 1;  // channels: images per batch entry
  int64_t pixel_units = 1;
  // Strides of `from` in units.
  int64_t batch_stride = 0, channel_stride = 0, row_stride = 0, pixel_stride = 0, unit_stride = 1;
};

namespace detail {

// Returns the largest power of two, up to 16, that divides all of `bytes`.
inline int common_alignment(std::initializer_list<int64_t> bytes) {
  int64_t bits = 16;
  for (const int64_t b : bytes) bits |= b;
  return static_cast<int>(bits & -bits);
}

}  // namespace detail

// Returns the alignment in bytes, up to 16, of the first pixel of every row.
inline int alignment_of_rows(const Problem& problem, const Layout& layout) {
  return detail::common_alignment({static_cast<int64_t>(reinterpret_cast<uintptr_t>(problem.from)),
                                   layout.batch_stride * layout.unit_bytes,
                                   layout.channel_stride * layout.unit_bytes,
                                   layout.row_stride * layout.unit_bytes});
}

inline Layout make_layout(const Problem& problem, int widest_unit = kAccessBytes) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  Layout layout;
  layout.unit_bytes = static_cast<int>(size);
  layout.batch_stride = problem.batch_stride;
  layout.row_stride = problem.row_stride;
  layout.pixel_stride = problem.pixel_stride;
  if (!problem.channels_last || problem.channels == 1) {
    layout.images = problem.batch * problem.channels;
    layout.channels = problem.channels;
    layout.channel_stride = problem.channel_stride;
    if (problem.batch == 1 || problem.batch_stride == problem.channels * problem.channel_stride) {
      layout.channels = 1;  // all images are equally far apart
      layout.batch_stride = problem.channel_stride;
    }
    return layout;
  }
  layout.images = problem.batch;
  layout.pixel_units = problem.channels;
  layout.unit_stride = problem.channel_stride;
  if (problem.channel_stride != 1) return layout;
  layout.unit_bytes = detail::common_alignment(
      {widest_unit, static_cast<int64_t>(reinterpret_cast<uintptr_t>(problem.from)),
       problem.channels * size, problem.batch_stride * size, problem.row_stride * size,
       problem.pixel_stride * size});
  const int64_t elements = layout.unit_bytes / size;
  layout.pixel_units /= elements;
  layout.batch_stride /= elements;
  layout.row_stride /= elements;
  layout.pixel_stride /= elements;
  return layout;
}

// Kernels use 31-bit numbers for the sides of an image, the units of a row, and the units and rows
// of a launch. The last two count from the first row, or image, of the launch. Larger problems are
// split into several launches.
constexpr int64_t kMaxRowUnits = kMaxIndex32;

// Limits, which tests lower to reach them with small problems.
struct Tuning {
  int64_t part_units = int64_t{1} << 30;  // the most units of a launch
  int64_t short_axis = kShortAxis;        // axes are long from this many pixels on

  GPUOPT_DESCRIBE(part_units, short_axis)
};

}  // namespace gpuopt::upsample
