// Nearest-neighbour upsampling: schemas, and the kernels for CPU, Meta, vmap, autocast and
// autograd.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "binding/aten.h"
#include "binding/autocast.h"
#include "binding/grad_node.h"
#include "binding/ladder.h"
#include "binding/vmap.h"
#include "upsample/binding/upsample_check.h"
#include "upsample/ladder/upsample_ladder.h"

namespace gpuopt::upsample {
namespace {

using namespace autograd_names;
using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;

const RegisterLadder forward_ladder(
    kForwardLadder, "upsample_nearest2d(Tensor input, int[2] output_size, int step) -> Tensor");
const RegisterLadder backward_ladder(kBackwardLadder,
                                     "upsample_nearest2d_backward(Tensor grad_output, int[2] "
                                     "output_size, int[4] input_size, int step) -> Tensor");

// ---------------------------------------------------------------- CPU: ATen's kernels

Tensor by_aten(const UpsampleNearest2d& op) {
  return at::upsample_nearest2d_symint(op.from, op.output_size, op.scales_h, op.scales_w);
}
Tensor by_aten(const UpsampleNearest2dBackward& op) {
  return at::upsample_nearest2d_backward_symint(op.from, op.output_size, op.input_size, op.scales_h,
                                                op.scales_w);
}
Tensor by_aten(const UpsampleNearestExact2d& op) {
  return at::_upsample_nearest_exact2d_symint(op.from, op.output_size, op.scales_h, op.scales_w);
}
Tensor by_aten(const UpsampleNearestExact2dBackward& op) {
  return at::_upsample_nearest_exact2d_backward_symint(op.from, op.output_size, op.input_size,
                                                       op.scales_h, op.scales_w);
}

template <typename Op>
Tensor upsample_cpu(const Op& op) {
  check<int64_t>(op);
  return call_aten(name_of<Op>(), op.from.scalar_type(), "", [&] { return by_aten(op); });
}

// ---------------------------------------------------------------- Meta: shapes, maybe symbolic

// The memory format of the result. A size that depends on data has no value to ask for. The format
// is then channels_last only if the strides are exactly the channels_last strides.
at::MemoryFormat format_of(const Tensor& like) {
  const auto sizes = like.sym_sizes();
  if (std::all_of(sizes.begin(), sizes.end(), [](const SymInt& size) { return size.has_hint(); })) {
    return like.suggest_memory_format();
  }
  const bool channels_last =
      !like.is_contiguous_or_false() && like.is_contiguous_or_false(at::MemoryFormat::ChannelsLast);
  return channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

template <typename Op>
Tensor upsample_meta(const Op& op) {
  const SymSizes sizes = check<SymInt>(op);
  const SymInt& height = kIsBackward<Op> ? sizes.in_height : sizes.out_height;
  const SymInt& width = kIsBackward<Op> ? sizes.in_width : sizes.out_width;
  const std::array<SymInt, 4> shape{sizes.batch, sizes.channels, height, width};
  return at::empty_symint(shape, op.from.options().memory_format(format_of(op.from)));
}

// ---------------------------------------------------------------- .vec: sizes or factors

// floor(size * factor) in float64, as ATen's compute_output_size. With a whole factor the result
// stays an integer expression, which symbolic shapes can reason about.
SymInt scaled(const SymInt& size, double factor) {
  if (const auto value = size.maybe_as_int()) {
    return static_cast<int64_t>(static_cast<double>(*value) * factor);
  }
  if (factor == std::floor(factor)) return size * static_cast<int64_t>(factor);
  return SymInt((c10::SymFloat(size) * factor).toSymNodeImpl()->floor());
}

std::array<SymInt, 2> scaled_sizes(const char* op, SymIntArrayRef sizes,
                                   c10::ArrayRef<double> factors) {
  TORCH_CHECK(factors.size() == 2, op,
              ": scale_factors must be one for the height and one for the ",
              "width: expected 2 factors, got ", factors);
  for (const double factor : factors) {  // also makes the conversion to int64 defined
    TORCH_CHECK(factor > 0 && factor <= static_cast<double>(kMaxSize), op,
                ": scale_factors must be positive: expected factors above 0 and at most ", kMaxSize,
                ", got ", factors);
  }
  std::array<SymInt, 2> scaled_to{scaled(sizes[2], factors[0]), scaled(sizes[3], factors[1])};
  for (const SymInt& size : scaled_to) {
    TORCH_CHECK(!is_known_out_of_range(size), op,
                ": scale_factors must lead to an output: expected ",
                "a height and a width from 1 to ", kMaxSize, ", got factors ", factors,
                " of an input of shape ", sizes);
  }
  return scaled_to;
}

template <bool exact>
Tensor upsample_vec(const Upsample2dVec<exact>& op) {
  const char* name = name_of<Upsample2dVec<exact>>();
  const auto& [from, output_size, factors] = op;
  TORCH_CHECK(output_size.has_value() != factors.has_value(), name,
              ": exactly one of output_size and scale_factors must be given: expected one, got ",
              output_size.has_value() ? "both" : "neither");
  const SymIntArrayRef sizes = from.sym_sizes();
  check_input(name, "input", sizes);
  if (output_size.has_value()) {
    return call(Upsample2d<exact>{from, *output_size, std::nullopt, std::nullopt});
  }
  const auto scaled_to = scaled_sizes(name, sizes, *factors);
  return call(Upsample2d<exact>{from, scaled_to, (*factors)[0], (*factors)[1]});
}

// ---------------------------------------------------------------- vmap

// Calls the operator with the examples of vmap as part of the batch. Each example is (N, C, H, W).
// N may be 0, so it is passed on instead of derived from the result.
template <typename Op>
Tensor upsample_vmap(const Op& op, const VmapLevel& level, const SymInt& examples) {
  const SymSizes sizes = check<SymInt>(op);
  const Tensor from = level.unwrap(op.from).aligned(4).flatten(0, 1);
  const SymInt batch = examples * sizes.batch;
  Tensor result;
  if constexpr (kIsBackward<Op>) {
    const std::array<SymInt, 4> shape{batch, sizes.channels, sizes.in_height, sizes.in_width};
    result = call(Op{from, op.output_size, shape, op.scales_h, op.scales_w});
  } else {
    result = call(Op{from, op.output_size, op.scales_h, op.scales_w});
  }
  return level.wrap(result.unflatten_symint(0, std::array<SymInt, 2>{examples, sizes.batch}), 0);
}

// ---------------------------------------------------------------- derivatives

// The forward is linear and the backward is its adjoint. Each is the derivative of the other.

// The node of a forward or backward call, which calls the other one. No tensor is saved.
template <typename Op>
struct AdjointNode : GradNode {
  explicit AdjointNode(const Op& op)
      : GradNode(op.from),
        output_size_(op.output_size.vec()),
        scales_h_(op.scales_h),
        scales_w_(op.scales_w) {
    if constexpr (!kIsBackward<Op>) input_size_ = op.from.sym_sizes().vec();
  }

  std::string name() const override {
    std::string name = Op::kExact ? "GpuoptUpsampleNearestExact2D" : "GpuoptUpsampleNearest2D";
    return name + (kIsBackward<Op> ? "BackwardBackward" : "Backward");
  }
  void describe_state(NodeState& state) const override {
    state(output_size_, input_size_, scales_h_, scales_w_);
  }

  variable_list gradients(const Tensor& grad) override {
    if constexpr (kIsBackward<Op>) {
      return {call(Upsample2d<Op::kExact>{grad, output_size_, scales_h_, scales_w_})};
    } else {
      return {call(
          Upsample2dBackward<Op::kExact>{grad, output_size_, input_size_, scales_h_, scales_w_})};
    }
  }

 private:
  std::vector<c10::SymInt> output_size_, input_size_;
  std::optional<double> scales_h_, scales_w_;
};

// As in ATen, the forward runs in float32 on CUDA. The backward and CPU tensors have no autocast
// policy.
constexpr auto float32 = [](const auto&, c10::DeviceType) { return at::kFloat; };

TORCH_LIBRARY_FRAGMENT(gpuopt, m) {
  Ops::for_each([&]<typename Op>() {
    register_op<Op, Cpu<upsample_cpu<Op>>, Meta<upsample_meta<Op>>, Vmap<upsample_vmap<Op>>,
                Grad<AdjointNode<Op>>>(m);
  });
  impl<UpsampleNearest2d, Autocast<float32, at::kCUDA>>(m);
  impl<UpsampleNearestExact2d, Autocast<float32, at::kCUDA>>(m);
  register_op<UpsampleNearest2dVec, Composite<upsample_vec<false>>>(m);
  register_op<UpsampleNearestExact2dVec, Composite<upsample_vec<true>>>(m);
}

}  // namespace
}  // namespace gpuopt::upsample
