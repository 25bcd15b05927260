// Plan -> kernel instantiation -> launch of the backward.
#include <type_traits>

#include "common/launch.cuh"
#include "upsample/paths/upsample_backward_pixels.cuh"
#include "upsample/paths/upsample_backward_rows.cuh"
#include "upsample/upsample.h"

namespace gpuopt::upsample {
namespace {

BackwardArgs make_args(const Problem& problem, const BackwardPlan& plan) {
  const Layout& layout = plan.layout;
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  const int64_t elements = layout.unit_bytes / size;
  BackwardArgs args;
  args.in = problem.from;
  args.out = problem.to;
  const int64_t last = (problem.batch - 1) * problem.batch_stride +
                       (problem.channels - 1) * problem.channel_stride +
                       (problem.height.out - 1) * problem.row_stride +
                       (problem.width.out - 1) * problem.pixel_stride;
  args.in_end = static_cast<const char*>(problem.from) + (last + 1) * size;
  args.height = problem.height;
  args.width = problem.width;
  args.in_width = divide_by(problem.width.in);
  args.channels = divide_by(layout.channels);
  args.batch_stride = layout.batch_stride * elements;
  args.channel_stride = layout.channel_stride * elements;
  args.row_stride = layout.row_stride * elements;
  args.pixel_stride = layout.pixel_stride * elements;
  args.unit_stride = layout.unit_stride * elements;
  args.vecs = divide_by(plan.vecs);
  args.lanes = static_cast<uint32_t>(plan.lanes);
  args.split_count = divide_by(plan.splits);
  args.tiles = divide_by(plan.tiles);
  args.tile_columns = static_cast<uint32_t>(plan.tile_columns);
  args.tile_units = divide_by(plan.tile_columns * layout.pixel_units);
  args.last_tile_units =
      divide_by((problem.width.in - (plan.tiles - 1) * plan.tile_columns) * layout.pixel_units);
  args.block_row_pairs = static_cast<uint32_t>(plan.block_row_pairs);
  args.pixel_units = divide_by(layout.pixel_units);
  args.block_units = divide_by(kBackwardThreads / plan.splits);
  return args;
}

LaunchShape blocks_of(int64_t threads) {
  LaunchShape shape;
  shape.blocks = static_cast<unsigned>(ceil_div<int64_t>(threads, kBackwardThreads));
  shape.threads = kBackwardThreads;
  return shape;
}

// Calls f with whether vectors of gradients are loaded with a streaming hint.
template <bool kVecs, typename F>
cudaError_t with_once(const BackwardPlan& plan, F&& f) {
  if constexpr (kVecs) {
    if (plan.read_once) return f(std::true_type{});
  }
  return f(std::false_type{});
}

template <typename T, int kFactor, int kRows>
cudaError_t launch_factor(const BackwardPlan& plan, const BackwardArgs& args, cudaStream_t stream) {
  const LaunchShape shape = blocks_of(ceil_div<int64_t>(args.rows, kRows) * plan.vecs);
  return with_once<true>(plan, [&](auto once) {
    return launch_kernel(backward_factor_kernel<T, kFactor, kRows, once.value>, shape, stream,
                         args);
  });
}

template <typename T, int kFactor>
cudaError_t launch_factor(const BackwardPlan& plan, const BackwardArgs& args, cudaStream_t stream) {
  return plan.rows_per_thread == 2 ? launch_factor<T, kFactor, 2>(plan, args, stream)
                                   : launch_factor<T, kFactor, 1>(plan, args, stream);
}

template <typename T>
cudaError_t launch_factor(const BackwardPlan& plan, const BackwardArgs& args, cudaStream_t stream) {
  if constexpr (kVecSize<T> >= 8) {
    if (plan.factor == 8) return launch_factor<T, 8>(plan, args, stream);
  }
  if constexpr (kVecSize<T> >= 4) {
    if (plan.factor == 4) return launch_factor<T, 4>(plan, args, stream);
  }
  return launch_factor<T, 2>(plan, args, stream);
}

template <typename T>
cudaError_t launch_rows(const BackwardPlan& plan, const BackwardArgs& args, cudaStream_t stream) {
  LaunchShape shape;
  shape.blocks =
      static_cast<unsigned>(ceil_div<int64_t>(args.rows, 2 * plan.block_row_pairs) * plan.tiles);
  shape.threads = kBackwardThreads;
  shape.shared_bytes =
      2 * plan.splits * plan.block_row_pairs * plan.vecs * kVecSize<T> * sizeof(compute_t<T>) +
      (plan.tile_columns + 1) * sizeof(int32_t);
  return plan.aligned ? launch_kernel(backward_rows_kernel<T, true>, shape, stream, args)
                      : launch_kernel(backward_rows_kernel<T, false>, shape, stream, args);
}

template <typename T, int kElements, int kMost>
cudaError_t launch_windows(const BackwardPlan& plan, BackwardArgs args, cudaStream_t stream) {
  args.image_step = static_cast<uint32_t>(ceil_div<int64_t>(args.images, plan.images_per_thread));
  args.threads = args.units / args.images * args.image_step;
  constexpr int kBytes = sizeof(T) * kElements;
  constexpr int kAtOnce = images_at_once(kBytes, kMost);
  constexpr bool kVecs = kBytes == kAccessBytes;
  const LaunchShape shape = blocks_of(args.threads);
  return with_once<kVecs>(plan, [&](auto once) {
    return plan.images_per_thread >= kAtOnce
               ? launch_kernel(backward_windows_kernel<T, kElements, kMost, kAtOnce, once.value>,
                               shape, stream, args)
               : launch_kernel(backward_windows_kernel<T, kElements, kMost, 1, once.value>, shape,
                               stream, args);
  });
}

template <typename T, int kElements>
cudaError_t launch_units(const BackwardPlan& plan, const BackwardArgs& args, cudaStream_t stream) {
  if (plan.path == BackwardPath::kPixels) {
    constexpr bool kVecs = sizeof(T) * kElements == kAccessBytes;
    const LaunchShape shape = blocks_of(int64_t{args.units} * plan.splits);
    return with_once<kVecs>(plan, [&](auto once) {
      return launch_kernel(backward_pixels_kernel<T, kElements, once.value>, shape, stream, args);
    });
  }
  if (plan.most == 1) return launch_windows<T, kElements, 1>(plan, args, stream);
  if (plan.most == 2) return launch_windows<T, kElements, 2>(plan, args, stream);
  if (plan.most == 3) return launch_windows<T, kElements, 3>(plan, args, stream);
  return launch_windows<T, kElements, kMostCopies>(plan, args, stream);
}

template <typename T>
cudaError_t launch(const BackwardPlan& plan, const BackwardArgs& args, cudaStream_t stream) {
  if constexpr (sizeof(T) > 1) {
    if (plan.path == BackwardPath::kFactor) return launch_factor<T>(plan, args, stream);
    if (plan.path == BackwardPath::kRows) return launch_rows<T>(plan, args, stream);
    const int elements = plan.layout.unit_bytes / static_cast<int>(sizeof(T));
    if constexpr (kVecSize<T> >= 8) {
      if (elements == 8) return launch_units<T, 8>(plan, args, stream);
    }
    if constexpr (kVecSize<T> >= 4) {
      if (elements == 4) return launch_units<T, 4>(plan, args, stream);
    }
    if (elements == 2) return launch_units<T, 2>(plan, args, stream);
  }
  return launch_units<T, 1>(plan, args, stream);
}

template <typename T>
cudaError_t run(const Problem& problem, const Device& device, cudaStream_t stream) {
  const BackwardPlan plan = plan_backward(problem, device);
  const Layout& layout = plan.layout;
  const BackwardArgs args = make_args(problem, plan);
  // Kernels use 31-bit numbers, so a launch covers some whole images, or some rows of one image.
  const int64_t height = problem.height.in;
  const int64_t row_threads =
      std::max<int64_t>(plan.row_units * plan.splits, plan.vecs * plan.tiles);
  const int64_t most_rows = std::clamp<int64_t>(kMaxPartUnits / row_threads, 1, height);
  const int64_t most_images =
      most_rows < height ? 1 : std::max<int64_t>(kMaxPartUnits / (row_threads * height), 1);
  for (int64_t image = 0; image < layout.images; image += most_images) {
    for (int64_t row = 0; row < height; row += most_rows) {
      BackwardArgs part = args;
      part.in = static_cast<const T*>(args.in) + image / layout.channels * args.batch_stride;
      part.out = static_cast<char*>(args.out) +
                 (image * height + row) * plan.row_units * layout.unit_bytes;
      const int64_t images = std::min(most_images, layout.images - image);
      const int64_t rows = std::min(most_rows, height - row);
      part.first_image = static_cast<uint32_t>(image % layout.channels);
      part.first_row = static_cast<uint32_t>(row);
      part.image_rows = divide_by(rows);
      part.images = static_cast<uint32_t>(images);
      part.rows = static_cast<uint32_t>(images * rows);
      part.units = static_cast<uint32_t>(images * rows * plan.row_units);
      const cudaError_t error = launch<T>(plan, part, stream);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t backward(const Problem& problem, const Device& device, cudaStream_t stream) {
  switch (problem.dtype) {
    case DType::kUInt8:
      return run<uint8_t>(problem, device, stream);
    case DType::kFloat16:
      return run<__half>(problem, device, stream);
    case DType::kBFloat16:
      return run<__nv_bfloat16>(problem, device, stream);
    case DType::kFloat64:
      return run<double>(problem, device, stream);
    default:
      return run<float>(problem, device, stream);
  }
}

}  // namespace gpuopt::upsample
