// The problem of an upsampling, and its images as kernels see them. Host code without CUDA.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "common/device.h"
#include "common/dtype.h"
#include "upsample/upsample_index.h"

namespace gpuopt::upsample {

// One call, forward or backward: images of `from` become images of `to`.
struct Problem {
  const void* from = nullptr;
  void* to = nullptr;
  DType dtype = DType::kFloat32;
  int64_t batch = 0, channels = 0;
  Axis height, width;  // in -> out as the forward has them, in the backward too
  // Of `from`, in elements. `to` is dense, in NCHW order or in NHWC order.
  int64_t batch_stride = 0, channel_stride = 0, row_stride = 0, pixel_stride = 0;
  bool channels_last = false;
};

// Images as the kernels see them: planes of units. In NCHW order a unit is an element and every
// channel an image; in NHWC order a pixel has channels * size / unit_bytes units, and units are as
// wide as the alignment of pixels allows, to 16 bytes.
struct Layout {
  int unit_bytes = 1;
  int64_t images = 0, channels = 1;  // channels: images of one batch entry
  int64_t pixel_units = 1;
  // of `from`, in units
  int64_t batch_stride = 0, channel_stride = 0, row_stride = 0, pixel_stride = 0, unit_stride = 1;
};

namespace detail {

// The widest power of two, to 16 bytes, that divides all of them.
inline int common_alignment(std::initializer_list<int64_t> bytes) {
  int64_t bits = 16;
  for (const int64_t b : bytes) bits |= b;
  return static_cast<int>(bits & -bits);
}

}  // namespace detail

// Of every row's first pixel, in bytes to 16.
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
      layout.channels = 1;  // images at even distances
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

// Kernels count with 31 bits: the sides of an image, the units of a row, and the units and rows of
// a launch from the first of the row, or image, that it begins in. More units are launched in
// parts.
constexpr int64_t kMaxRowUnits = kMaxIndex32;
constexpr int64_t kMaxPartUnits = int64_t{1} << 30;

}  // namespace gpuopt::upsample
