// Launches the kernel that a plan names, for any functor of the element-wise engine.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>

#include "common/launch.cuh"
#include "elementwise/paths/elementwise_kernel.cuh"
#include "elementwise/paths/elementwise_tiled.cuh"

namespace gpuopt::elementwise {

// Launch shapes, measured on an H200 with mul (microseconds, fp32 / bf16; L2 flushed):
//   dense, 2^25:  128 threads x 1 vector 98.1 / 52.7, x 2 98.5 / 52.1, x 4 99.0 / 52.8;
//                 256 x 1 98.4 / 53.0, 512 x 1 98.8 / 53.1, 1024 x 1 98.5 / 53.0
//   dense, 2^28:  128 x 1 734.9 / 370.6, x 2 737.2 / 371.5
//   dense, 2^14 (fp32, CUDA graph): 128 x 1 1.41, x 2 1.44, x 4 1.54, 256 x 1 1.42
//   rows, (64,256,56,56) * (256,1,1):  128 x 1 100.8 / 54.4, x 2 102.9 / 56.9
//   rows, (16384,1) * (4096):  128 x 1 83.4 / 44.2, x 2 62.6 / 38.6
// A thread handles one vector. Two cases use two vectors per thread: dense fp16 and bf16 operands
// from kTwoVecsFrom to kTwoVecsBelow vectors, where ATen's two vectors are 1% faster than one, and
// rows whose traffic is mostly writes.
constexpr int kThreads = 128;
constexpr int64_t kTwoVecsFrom = 1 << 19, kTwoVecsBelow = 1 << 24;
constexpr int kTileThreads = 256;  // not swept

template <int kOperands>
StridedArgs<kOperands> strided_args(const Problem& problem, const Plan& plan) {
  StridedArgs<kOperands> args{};
  args.dtype = problem.dtype;
  args.num_dims = plan.num_dims;
  args.numel = static_cast<uint32_t>(plan.numel);
  // The tiled kernel expects the second dimension of a tile at index 1.
  int order[kMaxDims];
  for (int d = 0; d < plan.num_dims; ++d) order[d] = d;
  if (plan.path == Path::kTiled) {
    for (int d = plan.tile_dim; d > 1; --d) order[d] = order[d - 1];
    order[1] = plan.tile_dim;
  }
  for (int d = 0; d < plan.num_dims; ++d) {
    args.sizes[d] = divide_by(plan.sizes[order[d]]);
  }
  for (int k = 0; k < kOperands; ++k) {
    args.data[k] = problem.operands[k].data;
    args.dtypes[k] = problem.operands[k].dtype;
    args.linear[k] = plan.linear[k];
    for (int d = 0; d < plan.num_dims; ++d) {
      args.strides[k][d] = static_cast<uint32_t>(plan.strides[k][order[d]]);
    }
  }
  return args;
}

inline unsigned blocks_for(int64_t items, int64_t per_block) {
  return static_cast<unsigned>(ceil_div(items, per_block));
}

template <typename F, typename T>
cudaError_t launch_vector(const F& f, const Problem& problem, const Plan& plan,
                          cudaStream_t stream) {
  VectorArgs<F::kInputs + 1> args{};
  for (int k = 0; k <= F::kInputs; ++k) args.data[k] = problem.operands[k].data;
  args.numel = plan.numel;
  const int64_t vecs = ceil_div<int64_t>(plan.numel, kVecSize<T>);
  if constexpr (sizeof(T) == 2) {
    if (vecs >= kTwoVecsFrom && vecs < kTwoVecsBelow) {
      vector_kernel<F, T, kThreads, 2>
          <<<blocks_for(vecs, kThreads * 2), kThreads, 0, stream>>>(f, args);
      return cudaGetLastError();
    }
  }
  vector_kernel<F, T, kThreads, 1><<<blocks_for(vecs, kThreads), kThreads, 0, stream>>>(f, args);
  return cudaGetLastError();
}

// Whether every input is broadcast, so that the output is most of the traffic.
inline bool mostly_writes(const Problem& problem, const Plan& plan) {
  for (int k = 1; k <= problem.num_inputs; ++k) {
    bool broadcast = false;
    for (int d = 0; d < plan.num_dims; ++d) broadcast = broadcast || plan.strides[k][d] == 0;
    if (!broadcast) return false;
  }
  return true;
}

template <typename F, typename T, Access kAccess>
cudaError_t launch_rows(const F& f, const Problem& problem, const Plan& plan, cudaStream_t stream) {
  auto args = strided_args<F::kInputs + 1>(problem, plan);
  args.sizes[0] = divide_by(std::max<int64_t>(plan.sizes[0] / kVecSize<T>, 1));
  for (auto& strides : args.strides) strides[0] *= kVecSize<T>;
  const int64_t vecs = ceil_div<int64_t>(plan.numel, kVecSize<T>);
  if constexpr (kAccess == Access::kAligned && sizeof(T) >= 2) {
    if (vecs >= kTwoVecsFrom && mostly_writes(problem, plan)) {
      rows_kernel<F, T, kAccess, kThreads, 2>
          <<<blocks_for(vecs, kThreads * 2), kThreads, 0, stream>>>(f, args);
      return cudaGetLastError();
    }
  }
  rows_kernel<F, T, kAccess, kThreads, 1>
      <<<blocks_for(vecs, kThreads), kThreads, 0, stream>>>(f, args);
  return cudaGetLastError();
}

template <typename F, typename T>
cudaError_t launch_packed(const F& f, const Problem& problem, const Plan& plan,
                          cudaStream_t stream) {
  const auto args = strided_args<F::kInputs + 1>(problem, plan);
  if (plan.by_rows) {
    const auto rows = static_cast<uint32_t>(plan.numel / plan.sizes[0]);
    const uint32_t vecs = rows * plan.vecs_per_row;
    packed_rows_kernel<F, T, kThreads><<<blocks_for(vecs, kThreads), kThreads, 0, stream>>>(
        f, args, FastDiv(plan.vecs_per_row), vecs);
  } else {
    const int64_t vecs = ceil_div<int64_t>(plan.numel, kVecSize<T>);
    packed_kernel<F, T, kThreads><<<blocks_for(vecs, kThreads), kThreads, 0, stream>>>(f, args);
  }
  return cudaGetLastError();
}

template <typename F, typename T, bool kPackedTiles>
cudaError_t launch_tiles(const F& f, const Problem& problem, const Plan& plan,
                         cudaStream_t stream) {
  using Layout = Tile<T, kPackedTiles>;
  const auto args = strided_args<F::kInputs + 1>(problem, plan);
  uint32_t turned = 0, packed = 0;
  for (int k = 0; k < F::kInputs; ++k) {
    turned |= static_cast<uint32_t>(plan.turned[k + 1]) << k;
    packed |= static_cast<uint32_t>(plan.packed_input[k + 1]) << k;
  }
  const int64_t tiles_i = ceil_div<int64_t>(plan.sizes[0], Layout::kSide);
  const int64_t tiles_j = ceil_div<int64_t>(plan.sizes[plan.tile_dim], Layout::kSide);
  const int64_t outer = plan.numel / (plan.sizes[0] * plan.sizes[plan.tile_dim]);
  const int64_t width = std::min<int64_t>(kTileGroup, tiles_j);
  const int64_t last_group = (tiles_j - 1) / width;
  const TileGrid grid{divide_by(tiles_i * tiles_j),
                      divide_by(tiles_i * width),
                      divide_by(width),
                      divide_by(tiles_j - last_group * width),
                      static_cast<uint32_t>(last_group),
                      turned,
                      packed};
  const auto blocks = static_cast<unsigned>(tiles_i * tiles_j * outer);
  const int bytes = __builtin_popcount(turned) * Layout::kBytes;
  constexpr int kDefaultLimit = 48 * 1024, kMostBytes = F::kInputs * Layout::kBytes;
  if constexpr (kMostBytes > kDefaultLimit) {
    int device = 0, limit = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
      error = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    }
    if (error != cudaSuccess) return error;
    // Three transposed inputs of 2 bytes per element need 96 KiB, and sm_75 has 64 KiB. Tiles that
    // are accessed value by value are smaller.
    if (bytes > limit) return launch_tiles<F, T, false>(f, problem, plan, stream);
  }
  const LaunchShape shape{blocks, kTileThreads, static_cast<size_t>(bytes)};
  return launch_kernel(tiled_kernel<F, T, kPackedTiles, kTileThreads>, shape, stream, f, args,
                       grid);
}

template <typename F, typename T>
cudaError_t launch_general(const F& f, const Problem& problem, const Plan& plan,
                           cudaStream_t stream) {
  const auto args = strided_args<F::kInputs + 1>(problem, plan);
  // Two values per thread give more threads to small problems: 4 to 20 % less time up to this size,
  // and more beyond it (results/nvidia-h100-80gb-hbm3/general-path.jsonl).
  constexpr int64_t kMostOfTwo = 1 << 19;
  if (plan.numel < kMostOfTwo) {
    general_kernel<F, T, kThreads, 2>
        <<<blocks_for(plan.numel, kThreads * 2), kThreads, 0, stream>>>(f, args);
  } else {
    general_kernel<F, T, kThreads, 4>
        <<<blocks_for(plan.numel, kThreads * 4), kThreads, 0, stream>>>(f, args);
  }
  return cudaGetLastError();
}

// A functor derived from EveryType is compiled with every path for every type. Other functors have
// every path for floating-point types only. Their integer, bool and complex problems use kVector,
// aligned kRows or kGeneral.
struct EveryType {};

template <typename F, typename T>
constexpr bool kHasEveryPath = kCategory<T> == Category::kFloat || std::is_base_of_v<EveryType, F>;

template <typename F, typename T>
cudaError_t run(const F& f, const Problem& problem, cudaStream_t stream) {
  constexpr bool kEveryPath = kHasEveryPath<F, T>;
  Plan plan = make_plan(problem);
  const bool aligned_rows = plan.path == Path::kRows && plan.access == Access::kAligned;
  if (!kEveryPath && plan.path != Path::kVector && !aligned_rows) plan.path = Path::kGeneral;
  if (needs_split(problem, plan)) {
    Problem first, second;
    halve(problem, first, second);
    const cudaError_t error = run<F, T>(f, first, stream);
    return error != cudaSuccess ? error : run<F, T>(f, second, stream);
  }
  if (plan.path == Path::kVector) return launch_vector<F, T>(f, problem, plan, stream);
  if (aligned_rows) return launch_rows<F, T, Access::kAligned>(f, problem, plan, stream);
  if constexpr (kEveryPath) {
    if (plan.path == Path::kRows) {
      return plan.access == Access::kUnaligned
                 ? launch_rows<F, T, Access::kUnaligned>(f, problem, plan, stream)
                 : launch_rows<F, T, Access::kConverted>(f, problem, plan, stream);
    }
    if (plan.path == Path::kTiled) {
      return plan.packed_tiles ? launch_tiles<F, T, true>(f, problem, plan, stream)
                               : launch_tiles<F, T, false>(f, problem, plan, stream);
    }
    if (plan.path == Path::kPacked) return launch_packed<F, T>(f, problem, plan, stream);
  }
  return launch_general<F, T>(f, problem, plan, stream);
}

// Whether the dtypes obey type promotion. Inputs convert to the problem's dtype, and its values to
// the output's dtype, never to a lower category.
inline bool check_types(const Problem& problem) {
  const Category own = category_of(problem.dtype);
  for (int k = 1; k <= problem.num_inputs; ++k) {
    if (category_of(problem.operands[k].dtype) > own) return false;
  }
  return category_of(problem.operands[0].dtype) >= own;
}

// Launches an operator. F is its functor, a template over the compute type. `scalars` initialise
// the functor's fields.
template <template <typename> class F, typename... Scalars>
cudaError_t launch(const Problem& problem, cudaStream_t stream, const Scalars&... scalars) {
  if (!check_types(problem)) return cudaErrorInvalidValue;
  return dispatch_storage(problem.dtype, [&](auto type) {
    using T = decltype(type);
    using C = compute_t<T>;
    return run<F<C>, T>(F<C>{from_scalar<C>(scalars)...}, problem, stream);
  });
}

}  // namespace gpuopt::elementwise
