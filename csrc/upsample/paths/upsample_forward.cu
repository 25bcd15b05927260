// Plan -> kernel instantiation -> launch of the forward.
#include "common/launch.cuh"
#include "upsample/paths/upsample_forward.cuh"
#include "upsample/upsample.h"

namespace gpuopt::upsample {
namespace {

ForwardArgs make_args(const Problem& problem, const ForwardPlan& plan) {
  const Layout& layout = plan.layout;
  ForwardArgs args;
  args.in = problem.from;
  args.out = problem.to;
  args.height = problem.height;
  args.width = problem.width;
  args.vecs_per_row = divide_by(std::max<int64_t>(plan.vecs_per_row, 1));
  args.pixel_units = divide_by(layout.pixel_units);
  args.out_width = divide_by(problem.width.out);
  args.out_height = divide_by(problem.height.out);
  args.channels = divide_by(layout.channels);
  args.row_groups = divide_by(ceil_div<int64_t>(problem.height.out, kRowsAtOnce));
  args.vecs = static_cast<uint32_t>(plan.vecs);
  args.units = static_cast<uint32_t>(plan.units());
  args.rows = static_cast<uint32_t>(std::min(plan.rows, kMaxIndex32));
  args.vecs_at_once = plan.vecs_at_once;
  args.vecs_per_group = divide_by(std::clamp<int64_t>(
      plan.group_images * problem.height.out * plan.row_units * layout.unit_bytes / kAccessBytes, 1,
      kMaxIndex32));
  args.group_images = static_cast<uint32_t>(plan.group_images);
  args.groups = static_cast<uint32_t>(plan.groups);
  args.group_step = static_cast<uint32_t>(plan.group_step);
  args.batch_stride = layout.batch_stride;
  args.channel_stride = layout.channel_stride;
  args.row_stride = layout.row_stride;
  args.pixel_stride = static_cast<int32_t>(layout.pixel_stride);
  args.unit_stride = static_cast<int32_t>(layout.unit_stride);
  return args;
}

template <typename Unit, int kRepeat>
cudaError_t launch(const ForwardPlan& plan, const ForwardArgs& args, cudaStream_t stream) {
  LaunchShape shape;
  const auto start = [&](auto kernel) { return launch_kernel(kernel, shape, stream, args); };
  if (plan.path == Path::kRows) {
    if constexpr (sizeof(Unit) <= 4 && kRepeat == 1) {
      shape.threads = kRowThreads;
      shape.blocks = ceil_div<unsigned>(args.vecs, kRowThreads);
      return start(forward_rows_kernel<Unit>);
    }
  }
  shape.threads = kForwardThreads;
  shape.blocks = ceil_div<unsigned>(std::max(args.vecs, 1u), kForwardThreads * args.vecs_at_once);
  if (plan.path == Path::kImages) {
    if constexpr (sizeof(Unit) <= 4 && kRepeat == 1) {
      shape.blocks = ceil_div<unsigned>(args.vecs, kForwardThreads);
      return start(forward_images_kernel<Unit>);
    }
  }
  if (plan.path == Path::kVecs) {
    if constexpr (kRepeat > 1 || sizeof(Unit) == kAccessBytes) {
      return start(forward_vecs_kernel<Unit, kRepeat>);
    }
  }
  if constexpr (kRepeat > 1) {
    return start(forward_gather_kernel<Unit, kRepeat, false, false>);
  } else if (plan.long_rows) {
    return plan.layout.pixel_units > 1 ? start(forward_gather_kernel<Unit, 1, true, true>)
                                       : start(forward_gather_kernel<Unit, 1, false, true>);
  } else {
    return plan.layout.pixel_units > 1 ? start(forward_gather_kernel<Unit, 1, true, false>)
                                       : start(forward_gather_kernel<Unit, 1, false, false>);
  }
}

template <typename Unit>
cudaError_t launch(const ForwardPlan& plan, const ForwardArgs& args, cudaStream_t stream) {
  constexpr int kUnits = kAccessBytes / sizeof(Unit);
  if constexpr (kUnits >= 8) {
    if (plan.repeat == 8) return launch<Unit, 8>(plan, args, stream);
  }
  if constexpr (kUnits >= 4) {
    if (plan.repeat == 4) return launch<Unit, 4>(plan, args, stream);
  }
  if constexpr (kUnits >= 2) {
    if (plan.repeat == 2) return launch<Unit, 2>(plan, args, stream);
  }
  return launch<Unit, 1>(plan, args, stream);
}

cudaError_t launch(const ForwardPlan& plan, const ForwardArgs& args, cudaStream_t stream) {
  switch (plan.layout.unit_bytes) {
    case 1:
      return launch<uint8_t>(plan, args, stream);
    case 2:
      return launch<uint16_t>(plan, args, stream);
    case 4:
      return launch<uint32_t>(plan, args, stream);
    case 8:
      return launch<uint2>(plan, args, stream);
    default:
      return launch<uint4>(plan, args, stream);
  }
}

// Returns the arguments of a launch that covers `units` units from unit `first` on. `args` is for
// the whole problem.
ForwardArgs part_of(const ForwardArgs& args, const ForwardPlan& plan, int64_t first,
                    int64_t units) {
  const Layout& layout = plan.layout;
  const int64_t row = first / plan.row_units, height = args.out_height.divisor;
  const int64_t image = row / height;
  ForwardArgs part = args;
  part.in = static_cast<const char*>(args.in) +
            image / layout.channels * layout.batch_stride * layout.unit_bytes;
  part.out = static_cast<char*>(args.out) + first * layout.unit_bytes;
  part.first_unit = static_cast<uint32_t>(first % plan.row_units);
  part.first_row = static_cast<uint32_t>(row % height);
  part.first_image = static_cast<uint32_t>(image % layout.channels);
  part.units = static_cast<uint32_t>(units);
  part.vecs = static_cast<uint32_t>(units * layout.unit_bytes / kAccessBytes);
  part.rows = static_cast<uint32_t>(std::min(plan.rows - row, kMaxIndex32));
  return part;
}

}  // namespace

cudaError_t forward(const Problem& problem, const Device& device, cudaStream_t stream) {
  const ForwardPlan plan = plan_forward(problem, device);
  const ForwardArgs args = make_args(problem, plan);
  if (part_units(problem, plan, 0) == plan.units()) return launch(plan, args, stream);
  for (int64_t unit = 0; unit < plan.units();) {
    const int64_t units = part_units(problem, plan, unit);
    const cudaError_t error = launch(plan, part_of(args, plan, unit, units), stream);
    if (error != cudaSuccess) return error;
    unit += units;
  }
  return cudaSuccess;
}

}  // namespace gpuopt::upsample
