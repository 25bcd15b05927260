// Tiles of columns of single values that all threads of a block copy to shared memory together, and
// results from there.
#pragma once

#include "scan/device/scan_column.cuh"
#include "scan/device/scan_tile.cuh"

namespace gpuopt::scan {

template <typename Op>
__device__ __forceinline__ ColumnPlace<1> tile_place(const TileArgs& args, uint32_t block) {
  ColumnPlace<1> place;
  place.chain = block;
  uint32_t tile = args.column_tiles.divmod(block);
  place.firsts[0] = args.first_tiles.divmod(tile) * args.widths[0];
  place.firsts[1] = tile * args.widths[1];
  place.column = threadIdx.x % args.x;
  place.indices[0] = place.column % args.widths[0];
  place.indices[1] = place.column / args.widths[0];
  place.offsets = row_offsets<Op>(args.outer, block);
  place.active = true;
#pragma unroll
  for (int d = 0; d < 2; ++d) {
    const int64_t first = place.firsts[d], own = first + place.indices[d];
    place.offsets.in += first * args.tensors[0].strides[d + 1];
    place.offsets.out += first * args.tensors[1].strides[d + 1];
    if constexpr (Op::kInputs == 2) {
      place.offsets.second += first * args.tensors[2].strides[d + 1];
      place.offsets.initial += own * args.initial_strides[d];
    }
    place.active = place.active && own < args.sizes[d];
  }
  return place;
}

// A tile that the block copies to shared memory together, and a thread's part of it.
template <typename Op, typename In, typename Mid>
struct SharedColumnTile {
  using V = typename Op::Value;
  using M = Memory<Op, In, Mid, 1>;
  using Own = std::conditional_t<M::kAny, typename Op::Stored, In>;      // of the inputs
  using Result = std::conditional_t<M::kAny, typename Op::Stored, Mid>;  // of the results
  static constexpr int kVec = M::kAny ? 1 : kAccessBytes / sizeof(In);
  static constexpr int kResultVec = M::kAny ? 1 : kAccessBytes / sizeof(Mid);

  uint32_t buffer;
  int64_t row = 0;     // the tile's first row, in the order of the scan
  uint32_t count = 0;  // rows of the tile

  __device__ __forceinline__ explicit SharedColumnTile(const TileArgs&, uint32_t buffer = 0)
      : buffer(buffer) {}

  __device__ __forceinline__ static uint32_t group(const TileArgs& args) {
    return threadIdx.x / args.x * args.units;
  }
  // The thread's rows that exist.
  __device__ __forceinline__ uint32_t own_rows(const TileArgs& args,
                                               const ColumnPlace<1>& place) const {
    const uint32_t before = group(args);
    return place.active && count > before ? min(args.units, count - before) : 0;
  }

  __device__ __forceinline__ TileBox box_of(const TileArgs& args, int k, int64_t offset,
                                            const ColumnPlace<1>& place, const void* data, int item,
                                            int values) const {
    TileBox box;
    const TileTensor& tensor = args.tensors[k];
    box.offset = offset + (args.reverse ? args.length - row - count : row) * tensor.strides[0];
    const auto first = reinterpret_cast<uintptr_t>(data) / item + static_cast<uint64_t>(box.offset);
    box.phase = tensor.in_vecs ? static_cast<uint32_t>(first) & (values - 1) : 0;
    box.counts[0] = count;
#pragma unroll
    for (int d = 0; d < 2; ++d) {
      box.counts[d + 1] =
          static_cast<uint32_t>(min(int64_t{args.widths[d]}, args.sizes[d] - place.firsts[d]));
    }
    return box;
  }
  __device__ __forceinline__ TileBox input_box(const TileArgs& args, int k,
                                               const ColumnPlace<1>& place) const {
    return box_of(args, k, k == 0 ? place.offsets.in : place.offsets.second, place,
                  k == 0 ? args.in : args.second, sizeof(Own), kVec);
  }
  __device__ __forceinline__ TileBox result_box(const TileArgs& args,
                                                const ColumnPlace<1>& place) const {
    return box_of(args, 1, place.offsets.out, place, args.out, sizeof(Result), kResultVec);
  }

  // Where a tensor's tile lies in shared memory.
  __device__ __forceinline__ Own* input_tile(const TileArgs& args, int k) const {
    const uint32_t bytes = args.tensors[0].bytes + args.tensors[2].bytes;
    return reinterpret_cast<Own*>(reinterpret_cast<char*>(scan_tiles) + buffer * bytes +
                                  (k == 0 ? 0 : args.tensors[0].bytes));
  }
  __device__ __forceinline__ static Result* result_tile(const TileArgs& args) {
    const uint32_t bytes = args.tensors[0].bytes + args.tensors[2].bytes;
    return reinterpret_cast<Result*>(reinterpret_cast<char*>(scan_tiles) + args.buffers * bytes);
  }

  // The position of the thread's first row.
  __device__ __forceinline__ uint32_t position(const TileArgs& args, const TileTensor& tensor,
                                               const TileBox& box,
                                               const ColumnPlace<1>& place) const {
    const uint32_t before = group(args);
    return box.phase + (args.reverse ? count - 1 - before : before) * tensor.steps[0] +
           place.indices[0] * tensor.steps[1] + place.indices[1] * tensor.steps[2];
  }
  __device__ __forceinline__ static int32_t step(const TileArgs& args, const TileTensor& tensor) {
    const auto own = static_cast<int32_t>(tensor.steps[0]);
    return args.reverse ? -own : own;
  }

  // Starts to copy a tile. All threads call this.
  __device__ __forceinline__ void load(const TileArgs& args, const ColumnPlace<1>& place,
                                       int64_t tile) {
    const uint32_t rows = blockDim.x / args.x * args.units;
    row = tile * rows;
    count = static_cast<uint32_t>(min(int64_t{rows}, args.length - row));
#pragma unroll
    for (int k = 0; k <= 2; k += 2) {
      if (k == 2 && Op::kInputs == 1) break;
      const TileTensor& tensor = args.tensors[k];
      const TileBox box = input_box(args, k, place);
      Own* to = input_tile(args, k);
      if constexpr (M::kAny) {
        for_each_vec<1>(tensor, box, [&](uint32_t position, int64_t offset, int, int) {
          Offsets own;
          own.in = offset;
          const Offsets offsets[1] = {own};
          const int valid[1] = {1};
          typename M::Raw raw[1];
          M::load(args, offsets, valid, raw);
          to[position] = raw[0].values[0];
        });
      } else {
        const In* from = static_cast<const In*>(k == 0 ? args.in : args.second);
        if (kVec > 1 && tensor.in_vecs) {
          load_tile<In, kVec>(tensor, box, from, to);
        } else {
          load_tile<In, 1>(tensor, box, from, to);
        }
      }
    }
  }

  // Calls use(r, input) for the thread's rows, in order.
  template <typename Use>
  __device__ __forceinline__ void for_each_input(const Op& op, const TileArgs& args,
                                                 const ColumnPlace<1>& place,
                                                 const Use& use) const {
    const uint32_t rows = own_rows(args, place);
    const bool starts = row == 0 && group(args) == 0;
    const TileTensor& tensor = args.tensors[0];
    const Own* from =
        input_tile(args, 0) + position(args, tensor, input_box(args, 0, place), place);
    if constexpr (Op::kInputs == 1 && kVec > 1) {
      if (tensor.reads_vecs) {
#pragma unroll 1
        for (uint32_t r = 0; r < rows; r += kVec) {
          const Own* vec = args.reverse ? from - r - (kVec - 1) : from + r;
          const auto values = vec_of<In>(load_shared_whole(reinterpret_cast<const uint4*>(vec)));
#pragma unroll
          for (int i = 0; i < kVec; ++i) {
            typename M::Raw raw;
            raw.values[0] = args.reverse ? values.values[kVec - 1 - i] : values.values[i];
            use(r + i, M::input(op, raw, 0));
          }
        }
        return;
      }
    }
    const int32_t next = step(args, tensor);
    const Own* second = nullptr;
    int32_t second_next = 0;
    if constexpr (Op::kInputs == 2) {
      second =
          input_tile(args, 2) + position(args, args.tensors[2], input_box(args, 2, place), place);
      second_next = step(args, args.tensors[2]);
    }
    const auto read = [&] {
      typename M::Raw raw;
      if constexpr (Op::kInputs == 2) {
        raw.first.values[0] = *from;
        raw.second.values[0] = *second;
        second += second_next;
      } else {
        raw.values[0] = *from;
      }
      from += next;
      return raw;
    };
    const auto use_raw = [&](uint32_t r, const typename M::Raw& raw) {
      use(r, M::started(op, args, M::input(op, raw, 0), starts && r == 0, place.offsets.initial));
    };
    // Several are read before the first is used, because results are stored to shared memory, too.
    constexpr uint32_t kAtOnce = sizeof(typename M::Raw) > 8 ? 2 : 4;
    uint32_t r = 0;
    for (; r + kAtOnce <= rows; r += kAtOnce) {
      typename M::Raw raws[kAtOnce];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) raws[i] = read();
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) use_raw(r + i, raws[i]);
    }
    for (; r < rows; ++r) use_raw(r, read());
  }

  // Scans the thread's rows, and the rows of the other threads of its level. The lanes of the last
  // row get the totals of the columns. before[0]: the exclusive scan over the level's rows.
  __device__ __forceinline__ void scan(const Op& op, const TileArgs& args,
                                       const ColumnPlace<1>& place, V (&totals)[1],
                                       V (&before)[1]) const {
    const bool starts = row == 0 && group(args) == 0;
    V total = op.identity();
    for_each_input(op, args, place, [&](uint32_t r, const typename Op::Input& in) {
      total = op.combine(total, op.value(in, starts && r == 0));
    });
    scan_level(op, args, total, totals[0], before[0]);
  }

  // Stores the results. base[0] is the result of everything above the thread's rows. All threads
  // call this.
  __device__ __forceinline__ void store(const Op& op, const TileArgs& args,
                                        const ColumnPlace<1>& place, const V (&base)[1]) const {
    const bool starts = row == 0 && group(args) == 0;
    const TileTensor& tensor = args.tensors[1];
    const TileBox box = result_box(args, place);
    Result* const tile = result_tile(args);
    Result* to = tile + position(args, tensor, box, place);
    const int32_t next = step(args, tensor);
    V local = Op::kInTurn ? base[0] : op.identity();
    for_each_input(op, args, place, [&](uint32_t r, const typename Op::Input& in) {
      const V above = local;
      local = op.combine(above, op.value(in, starts && r == 0));
      typename Op::Stored results[1];
      if constexpr (Op::kInTurn) {
        results[0] = op.result(above, local, in, args.exclusive);
      } else {
        results[0] =
            op.result(op.combine(base[0], above), op.combine(base[0], local), in, args.exclusive);
      }
      *to = convert_all<Result, 1>(results).values[0];
      to += next;
    });
    __syncthreads();
    if constexpr (M::kAny) {
      for_each_vec<1>(tensor, box, [&](uint32_t position, int64_t offset, int, int) {
        const typename Op::Stored results[1] = {tile[position]};
        M::store_in_order(args, offset, 1, results);
      });
    } else if (kResultVec > 1 && tensor.in_vecs) {
      store_tile<Mid, kResultVec>(tensor, box, tile, static_cast<Mid*>(args.out));
    } else {
      store_tile<Mid, 1>(tensor, box, tile, static_cast<Mid*>(args.out));
    }
  }
};

}  // namespace gpuopt::scan
