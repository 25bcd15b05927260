// The arguments of the forward's kernels, and the plan that holds them. Plain host C++, which the
// kernels include.
#pragma once

#include <memory>

#include "common/launch_shape.h"
#include "upsample/upsample_index.h"

namespace gpuopt::upsample {

// Small blocks, whose threads load two vectors before they store them. (2,512,256,256) x2 in f32 or
// bf16 on an H200: 326 us. With blocks of 256 threads it takes 335 us, with one vector 348 us, with
// four 332 us.
constexpr int kForwardThreads = 128;
constexpr int kVecsAtOnce = 2;
// A thread of forward_gather_kernel has one unit instead of a vector if an SM has at most so many.
// Not swept. 16 units of a uint8 vector, one after another, take longer than a load from memory.
constexpr int64_t kFewUnitsPerSm = 512;
// Output rows of a thread of forward_rows_kernel. (1,3,1080,1920) x2 in uint8 takes 16.0 us with
// four rows, 18.2 us with two, 16.4 us with eight. Eight are slower for images with fewer rows.
constexpr int kRowThreads = 256;
constexpr int kRowsAtOnce = 4;
// Groups that a thread of forward_images_kernel loads together. (16,64,100,100) to (150,150) in
// bf16 takes 25.1 us with four groups, 27.6 us with two.
constexpr int kGroupsAtOnce = 4;

enum class ForwardPath : uint8_t {
  kVecs,    // one aligned word of the input holds all sources of an output vector
  kRows,    // a thread writes several rows: it finds its columns once, and rows share loads
  kImages,  // a thread writes the same pixels of several images: it finds their sources once
  kGather,  // everything else, unit by unit
};

struct ForwardArgs {
  const void* in = nullptr;  // [images][input rows][input pixels][units], strided
  void* out = nullptr;       // [images][output rows][output pixels][units], dense
  Axis height, width;
  FastDiv vecs_per_row, pixel_units, out_width, out_height, channels, row_groups;
  uint32_t vecs = 0;   // whole ones; forward_rows_kernel: of a row, times groups of rows
  uint32_t units = 0;  // of the output
  // The unit in its row, the row in its image and the image that the launch begins at.
  uint32_t first_unit = 0, first_row = 0, first_image = 0;
  uint32_t rows = 0;  // from first_row to the end of the output
  uint32_t vecs_at_once = 1;
  // forward_images_kernel. Its `vecs` counts the vectors of group_step groups.
  FastDiv vecs_per_group;
  uint32_t group_images = 1, groups = 0, group_step = 1;
  int64_t batch_stride = 0, channel_stride = 0, row_stride = 0;
  int32_t pixel_stride = 0, unit_stride = 0;
};

// A launch. The widths of pixels and rows are in units, see Layout.
struct ForwardPlan {
  ForwardPath path = ForwardPath::kGather;
  int unit_bytes = 1;
  int repeat = 1;          // neighbouring output units with one source: a power of two
  bool long_rows = false;  // too long for float32 indices or 32-bit offsets
  ForwardArgs args;
  LaunchShape launch;
  std::unique_ptr<ForwardPlan> rest;  // of the output, if it has too many units for one launch
};

}  // namespace gpuopt::upsample
