// The kernel of padding, rolling and concatenation, and of the gradients of padding.
#pragma once

#include <cassert>
#include <type_traits>

#include "common/launch.cuh"
#include "common/row_origin.cuh"
#include "common/vec.cuh"
#include "pad/pad_plan.h"

namespace gpuopt::pad {

// The offset of a row in a source, in bytes, or nothing if the row is outside of it.
struct RowOffset {
  int64_t bytes = 0;
  bool inside = true;

  __device__ __forceinline__ RowOffset(const CopyArgs& args, const Run& run, uint32_t row) {
#pragma unroll
    for (int d = 0; d < kMaxOuter; ++d) {
      if (d >= args.outers) break;
      const Outer& dim = args.outer[d];
      const int at = static_cast<int>(dim.padded.divmod(row)) - dim.before, last = dim.size - 1;
      int i = at;
      if (args.mode == Mode::kReflect) {
        i = last - abs(last - abs(at));
      } else if (args.mode == Mode::kReplicate) {
        i = min(max(at, 0), last);
      } else if (args.mode == Mode::kCircular) {
        i = at < 0 ? at + dim.size : at > last ? at - dim.size : at;
      }
      inside = inside && 0 <= i && i <= last;
      bytes += i * run.strides[d];
    }
  }
};

// Elements of kItem bytes in reverse order.
template <int kItem>
__device__ __forceinline__ uint4 reversed(const uint4& v) {
  if constexpr (kItem == 16) return v;
  if constexpr (kItem == 8) return {v.z, v.w, v.x, v.y};
  const auto word = [](uint32_t w) {
    return kItem == 4 ? w : __byte_perm(w, 0, kItem == 2 ? 0x1032 : 0x0123);
  };
  return {word(v.w), word(v.z), word(v.y), word(v.x)};
}

// The element that begins at a byte, in all positions.
template <int kItem>
__device__ __forceinline__ uint4 repeated(const uint4& v, int byte) {
  if constexpr (kItem == 16) return v;
  const uint32_t x = byte & 8 ? v.z : v.x, y = byte & 8 ? v.w : v.y;
  if constexpr (kItem == 8) return {x, y, x, y};
  uint32_t w = (byte & 4 ? y : x) >> 8 * (byte & 3);
  if constexpr (kItem < 4) w = __byte_perm(w, 0, kItem == 2 ? 0x1010 : 0);
  return {w, w, w, w};
}

// What a block writes: neighbouring bytes of `out`.
struct Tile {
  uint64_t first;  // byte of `out`
  int end;         // bytes
  uint32_t row;    // of the first byte
  int position;    // of the first byte in its row
  int rows;        // with bytes of the tile, except for the first one
  int last;        // position of the last byte in its row

  __device__ __forceinline__ explicit Tile(const CopyArgs& args)
      : first(uint64_t{blockIdx.x} * args.tile_bytes),
        end(static_cast<int>(min(args.bytes - first, static_cast<uint64_t>(args.tile_bytes)))) {
    const RowOrigin origin(args.row_bytes, first);
    row = static_cast<uint32_t>(origin.row);
    position = static_cast<int>(origin.position);
    uint32_t further = origin.position + static_cast<uint32_t>(end - 1);
    last = static_cast<int>(args.row_bytes.divmod(further));
    rows = static_cast<int>(further);
  }
};

// Aligned vectors of the sources that a block loads, and the next one.
struct Pieces {
  int first, end;
};

// An aligned vector of a source.
template <typename Unit>
class Loaded {
 public:
  static constexpr int kUnit = sizeof(Unit);
  static constexpr int kUnits = kVecSize<Unit>;

  __device__ __forceinline__ void start(const char* from, bool needed, bool whole) {
    from_ = from;
    words_ = load_16_bytes(from, needed && whole, false);
    is_cut_ = needed && !whole;
  }

  // It is called after the start() of other vectors: the branch on the end of memory would make
  // one wait for another.
  __device__ __forceinline__ uint4 get(const char* end) {
    if (is_cut_) {
      Unit units[kUnits] = {};
#pragma unroll
      for (int e = 0; e < kUnits; ++e) {
        const char* from = from_ + e * kUnit;
        if (from < end) units[e] = *reinterpret_cast<const Unit*>(from);
      }
      memcpy(&words_, units, sizeof(units));
    }
    return words_;
  }

 private:
  const char* from_;
  uint4 words_;
  bool is_cut_;
};

// Where the units of a vector of a run lie in the tile.
template <typename Unit>
class Piece {
  static constexpr int kUnit = sizeof(Unit);
  static constexpr int kUnits = kVecSize<Unit>;

 public:
  static __device__ __forceinline__ Pieces of(const CopyArgs& args, const Tile& tile) {
    const auto row_pieces = static_cast<int>(args.row_pieces.divisor);
    Pieces pieces{row_pieces, 0};
#pragma unroll 1
    for (int r = args.runs - 1; r >= 0; --r) {
      const Run& run = args.run[r];
      if (tile.position >= run.last) break;
      pieces.first = run.piece + max(tile.position - run.begin, 0) / kAccessBytes;
    }
#pragma unroll 1
    for (int r = 0; r < args.runs && args.run[r].begin <= tile.last; ++r) {
      const int most = r + 1 == args.runs ? row_pieces : args.run[r + 1].piece;
      const int bytes = tile.last - args.run[r].begin + kAccessBytes - kUnit;
      pieces.end = min(args.run[r].piece + bytes / kAccessBytes + 1, most);
    }
    pieces.end += tile.rows * row_pieces;
    return pieces;
  }

  __device__ __forceinline__ void load(const CopyArgs& args, const Tile& tile, int number,
                                       bool exists) {
    auto row = static_cast<uint32_t>(number);
    const auto piece = static_cast<int>(args.row_pieces.divmod(row));
    run_ = 0;
    while (run_ + 1 < args.runs && piece >= args.run[run_ + 1].piece) ++run_;
    const Run& run = args.run[run_];
    const RowOffset offset(args, run, tile.row + row);
    const char* data = run.data + offset.bytes;
    const int row_begin = static_cast<int>(row * args.row_bytes.divisor) - tile.position;
    const int moved = (piece - run.piece) * kAccessBytes;
    // In reverse, the first element is the last one of the first vector.
    const bool reverses = run.step < 0;
    const char* edge = reverses ? data + kUnit : data;
    const auto over = static_cast<int>(reinterpret_cast<uintptr_t>(edge) % kAccessBytes);
    int shift = reverses ? -over & (kAccessBytes - 1) : over;
    const char* from = reverses ? edge - (moved - shift + kAccessBytes) : edge + (moved - shift);
    repeated_ = shift;
    if (run.step == 0) {
      from = edge - shift;
      shift = 0;
    }
    to_ = row_begin + run.begin + moved - shift;
    const int first = max(row_begin + run.begin, 0) - to_;
    const int last = min(row_begin + run.last, tile.end) - to_;
    const int lowest = max(first, 0) / kUnit, highest = min(max(last, 0) / kUnit, kUnits);
    needed_ = exists && offset.inside && lowest < highest ? (1u << highest) - (1u << lowest) : 0;
    loaded_.start(from, needed_ != 0, run.end - from >= kAccessBytes);
  }

  __device__ __forceinline__ void store(const CopyArgs& args, const Tile&, char* shared) {
    const Run& run = args.run[run_];
    uint4 words = loaded_.get(run.end);
    if constexpr (kUnit < kAccessBytes) {
      if (run.step < 0) words = reversed<kUnit>(words);
      if (run.step == 0) words = repeated<kUnit>(words, repeated_);
    }
    if constexpr (kUnit >= 4) {
      const auto vec = vec_of<Unit>(words);
#pragma unroll
      for (int e = 0; e < kUnits; ++e) {
        if (needed_ >> e & 1) *reinterpret_cast<Unit*>(shared + to_ + e * kUnit) = vec.values[e];
      }
    } else {
      // The most stores. Threads that are 8 apart begin with different words, which are in
      // different banks.
      constexpr int kWordUnits = 4 / kUnit;
      const int turn = threadIdx.x / 8 % 4;
      if (turn & 1) words = {words.y, words.z, words.w, words.x};
      if (turn & 2) words = {words.z, words.w, words.x, words.y};
      const uint32_t needed = (needed_ | needed_ << kUnits) >> turn * kWordUnits;
      const auto vec = vec_of<Unit>(words);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        char* to = shared + to_ + (w + turn) % 4 * 4;
#pragma unroll
        for (int e = 0; e < kWordUnits; ++e) {
          const int unit = w * kWordUnits + e;
          if (needed >> unit & 1) *reinterpret_cast<Unit*>(to + e * kUnit) = vec.values[unit];
        }
      }
    }
  }

 private:
  Loaded<Unit> loaded_;
  int run_;
  int to_;           // the byte of the tile where the vector begins
  int repeated_;     // the byte of the vector where a repeated element begins
  uint32_t needed_;  // units, as bits
};

// A vector of many rows of a run, which lie behind each other in the source.
template <typename Unit>
class DensePiece {
  static constexpr int kUnit = sizeof(Unit);
  static constexpr int kUnits = kVecSize<Unit>;

  static __device__ __forceinline__ int count(const Run& run, const Tile& tile) {
    const int bytes = (tile.rows + 1) * static_cast<int>(run.length.divisor);
    return (bytes + 2 * kAccessBytes - kUnit - 1) / kAccessBytes;
  }

 public:
  static __device__ __forceinline__ Pieces of(const CopyArgs& args, const Tile& tile) {
    Pieces pieces{0, 0};
#pragma unroll 1
    for (int r = 0; r < args.runs; ++r) pieces.end += count(args.run[r], tile);
    return pieces;
  }

  __device__ __forceinline__ void load(const CopyArgs& args, const Tile& tile, int number,
                                       bool exists) {
    run_ = 0;
    while (run_ + 1 < args.runs) {
      const int here = count(args.run[run_], tile);
      if (number < here) break;
      number -= here;
      ++run_;
    }
    const Run& run = args.run[run_];
    const char* data = run.data + int64_t{tile.row} * run.strides[0];
    const auto shift = static_cast<int>(reinterpret_cast<uintptr_t>(data) % kAccessBytes);
    byte_ = number * kAccessBytes - shift;
    const char* from = data + byte_;
    const bool needed = exists && from < run.end;
    if (!needed) byte_ = -kAccessBytes;
    loaded_.start(from, needed, run.end - from >= kAccessBytes);
  }

  __device__ __forceinline__ void store(const CopyArgs& args, const Tile& tile, char* shared) {
    const Run& run = args.run[run_];
    const auto vec = vec_of<Unit>(loaded_.get(run.end));
#pragma unroll
    for (int e = 0; e < kUnits; ++e) {
      const int byte = byte_ + e * kUnit;
      auto row = static_cast<uint32_t>(max(byte, 0));
      const auto at = static_cast<int>(run.length.divmod(row)) + run.begin;
      const int to = static_cast<int>(row * args.row_bytes.divisor) + at - tile.position;
      if (byte >= 0 && 0 <= to && to < tile.end) {
        *reinterpret_cast<Unit*>(shared + to) = vec.values[e];
      }
    }
  }

 private:
  Loaded<Unit> loaded_;
  int run_;
  int byte_;  // of the run, from the first row of the tile on. Negative if there is no vector
};

// What a copy does to its tile before it is stored: nothing.
struct Nothing {
  struct Args {};
};

// A block loads the aligned vectors of the sources that hold its tile, puts their elements into
// shared memory where they belong, and stores aligned vectors of `out`. Where rows and runs begin
// makes no difference to either access.
template <typename AnyPiece, typename Change, typename ChangeArgs = typename Change::Args>
__global__ __launch_bounds__(kCopyThreads, kCopyBlocks) void copy_runs(
    const __grid_constant__ CopyArgs args, const __grid_constant__ ChangeArgs change) {
  __shared__ uint4 shared[kTileBytes / kAccessBytes];
  auto* bytes = reinterpret_cast<char*>(shared);
  const Tile tile(args);
  const Pieces pieces = AnyPiece::of(args, tile);
  if (args.fills) {
    const uint32_t (&words)[4] = args.fill.words;
    for (int v = threadIdx.x; v * kAccessBytes < tile.end; v += kCopyThreads) {
      shared[v] = {words[0], words[1], words[2], words[3]};
    }
  }
  grid_dependency_wait();
  assert(pieces.end - pieces.first <= kRound);
  AnyPiece piece[kPieces];
#pragma unroll
  for (int u = 0; u < kPieces; ++u) {
    const int number = pieces.first + u * kCopyThreads + static_cast<int>(threadIdx.x);
    piece[u].load(args, tile, number, number < pieces.end);
  }
  if (args.fills) __syncthreads();
#pragma unroll
  for (int u = 0; u < kPieces; ++u) piece[u].store(args, tile, bytes);
  launch_next();
  __syncthreads();
  if constexpr (!std::is_same_v<Change, Nothing>) {
    Change::apply(change, tile, bytes);
    __syncthreads();
  }
  char* out = args.out + tile.first;
  for (int v = threadIdx.x; (v + 1) * kAccessBytes <= tile.end; v += kCopyThreads) {
    reinterpret_cast<uint4*>(out)[v] = shared[v];
  }
  const int rest = tile.end - tile.end % kAccessBytes + static_cast<int>(threadIdx.x);
  if (rest < tile.end) out[rest] = bytes[rest];
}

}  // namespace gpuopt::pad
