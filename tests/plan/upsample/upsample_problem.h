// Makes an upsampling from plain arrays, for the C entry points that tests call.
#pragma once

#include "upsample/upsample_problem.h"

namespace gpuopt::upsample {

// sizes: batch, channels, input height, output height, input width, output width.
// steps: height, width. strides: the strides of `from`, in the order NCHW.
inline Problem make_problem(const int64_t* sizes, const float* steps, int exact,
                            const int64_t* strides, int channels_last, uint64_t from, uint64_t to,
                            int dtype) {
  Problem problem;
  problem.from = reinterpret_cast<const void*>(from);
  problem.to = reinterpret_cast<void*>(to);
  problem.dtype = static_cast<DType>(dtype);
  problem.batch = sizes[0];
  problem.channels = sizes[1];
  problem.height = make_axis(sizes[2], sizes[3], steps[0], exact != 0);
  problem.width = make_axis(sizes[4], sizes[5], steps[1], exact != 0);
  problem.batch_stride = strides[0];
  problem.channel_stride = strides[1];
  problem.row_stride = strides[2];
  problem.pixel_stride = strides[3];
  problem.channels_last = channels_last != 0;
  return problem;
}

}  // namespace gpuopt::upsample
