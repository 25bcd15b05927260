// Plan -> kernel instantiation -> launch, for any functor of the element-wise engine.
#pragma once

#include <cuda_runtime_api.h>

#include "elementwise/elementwise_kernel.cuh"

namespace gpuopt::elementwise {

constexpr int kThreads = 256;

template <int kOperands>
StridedArgs<kOperands> strided_args(const Problem& problem, const Plan& plan) {
  StridedArgs<kOperands> args{};
  args.dtype = problem.dtype;
  args.num_dims = plan.num_dims;
  args.numel = static_cast<uint32_t>(plan.numel);
  // The tiled path wants its second dimension next to the first.
  int order[kMaxDims];
  for (int d = 0; d < plan.num_dims; ++d) order[d] = d;
  if (plan.path == Path::kTiled) {
    for (int d = plan.tile_dim; d > 1; --d) order[d] = order[d - 1];
    order[1] = plan.tile_dim;
  }
  for (int d = 0; d < plan.num_dims; ++d) {
    args.sizes[d] = FastDiv(static_cast<uint32_t>(plan.sizes[order[d]]));
  }
  for (int k = 0; k < kOperands; ++k) {
    args.data[k] = problem.operands[k].data;
    args.dtypes[k] = problem.operands[k].dtype;
    args.linear[k] = plan.linear[k];
    for (int d = 0; d < plan.num_dims; ++d) args.strides[k][d] = plan.strides[k][order[d]];
  }
  return args;
}

template <typename F, typename T>
cudaError_t launch_vector(const F& f, const Problem& problem, const Plan& plan,
                          cudaStream_t stream) {
  VectorArgs<F::kInputs + 1> args{};
  for (int k = 0; k <= F::kInputs; ++k) args.data[k] = problem.operands[k].data;
  args.numel = plan.numel;
  constexpr int kPacks = 1;
  const int64_t packs = ceil_div<int64_t>(plan.numel, plan.values_per_pack);
  const auto blocks = static_cast<unsigned>(ceil_div<int64_t>(packs, kThreads * kPacks));
  vector_kernel<F, T, kThreads, kPacks><<<blocks, kThreads, 0, stream>>>(f, args);
  return cudaGetLastError();
}

template <typename F, typename T>
cudaError_t launch_packed(const F& f, const Problem& problem, const Plan& plan,
                          cudaStream_t stream) {
  const auto args = strided_args<F::kInputs + 1>(problem, plan);
  if (plan.by_rows) {
    const auto rows = static_cast<uint32_t>(plan.numel / plan.sizes[0]);
    const uint32_t packs = rows * plan.packs_per_row;
    packed_rows_kernel<F, T, kThreads><<<ceil_div<uint32_t>(packs, kThreads), kThreads, 0, stream>>>(
        f, args, FastDiv(plan.packs_per_row), packs);
  } else {
    constexpr int kPacks = 1;
    const int64_t packs = ceil_div<int64_t>(plan.numel, plan.values_per_pack);
    const auto blocks = static_cast<unsigned>(ceil_div<int64_t>(packs, kThreads * kPacks));
    packed_kernel<F, T, kThreads, kPacks><<<blocks, kThreads, 0, stream>>>(f, args);
  }
  return cudaGetLastError();
}

template <typename F, typename T, bool kPackedTiles>
cudaError_t launch_tiles(const F& f, const Problem& problem, const Plan& plan,
                         cudaStream_t stream) {
  using Layout = Tile<T, kPackedTiles>;
  const auto args = strided_args<F::kInputs + 1>(problem, plan);
  uint32_t turned = 0;
  for (int k = 0; k < F::kInputs; ++k) turned |= static_cast<uint32_t>(plan.turned[k + 1]) << k;
  const int64_t tiles_i = ceil_div<int64_t>(plan.sizes[0], Layout::kSide);
  const int64_t tiles_j = ceil_div<int64_t>(plan.sizes[plan.tile_dim], Layout::kSide);
  const int64_t outer = plan.numel / (plan.sizes[0] * plan.sizes[plan.tile_dim]);
  const TileGrid grid{FastDiv(static_cast<uint32_t>(tiles_i)),
                      FastDiv(static_cast<uint32_t>(tiles_j))};
  const auto blocks = static_cast<unsigned>(tiles_i * tiles_j * outer);
  const int bytes = __builtin_popcount(turned) * Layout::kBytes;
  const auto kernel = tiled_kernel<F, T, kPackedTiles, kThreads>;
  constexpr int kDefaultLimit = 48 * 1024;
  if (F::kInputs * Layout::kBytes > kDefaultLimit) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
  }
  kernel<<<blocks, kThreads, bytes, stream>>>(f, args, grid, turned);
  return cudaGetLastError();
}

template <typename F, typename T>
cudaError_t launch_general(const F& f, const Problem& problem, const Plan& plan,
                           cudaStream_t stream) {
  const auto args = strided_args<F::kInputs + 1>(problem, plan);
  constexpr int kSteps = 4;
  const auto blocks = static_cast<unsigned>(ceil_div<int64_t>(plan.numel, kThreads * kSteps));
  general_kernel<F, T, kThreads, kSteps><<<blocks, kThreads, 0, stream>>>(f, args);
  return cudaGetLastError();
}

template <typename F, typename T>
cudaError_t run(const F& f, const Problem& problem, cudaStream_t stream) {
  const Plan plan = make_plan(problem);
  if (needs_split(plan)) {
    Problem first, second;
    split(problem, first, second);
    const cudaError_t error = run<F, T>(f, first, stream);
    return error != cudaSuccess ? error : run<F, T>(f, second, stream);
  }
  switch (plan.path) {
    case Path::kVector:
      return launch_vector<F, T>(f, problem, plan, stream);
    case Path::kPacked:
      return launch_packed<F, T>(f, problem, plan, stream);
    case Path::kTiled:
      return plan.packed_tiles ? launch_tiles<F, T, true>(f, problem, plan, stream)
                               : launch_tiles<F, T, false>(f, problem, plan, stream);
    case Path::kGeneral:
      return launch_general<F, T>(f, problem, plan, stream);
  }
  return cudaErrorInvalidValue;
}

// The launcher of an operation: F is its functor template over the compute type, scalars are the
// numbers its constructor takes.
template <template <typename> class F, typename... Scalars>
cudaError_t launch(const Problem& problem, cudaStream_t stream, const Scalars&... scalars) {
  return dispatch_storage(problem.dtype, [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    return run<F<C>, T>(F<C>{from_scalar<C>(scalars)...}, problem, stream);
  });
}

}  // namespace gpuopt::elementwise
