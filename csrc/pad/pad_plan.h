// Plans of padding, rolling and concatenation. Plain host C++, tested without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "common/index.h"
#include "common/launch_shape.h"

namespace gpuopt::pad {

enum class Mode : uint8_t { kConstant, kReflect, kReplicate, kCircular };

constexpr int kCopyThreads = 128;
constexpr int kCopyBlocks = 8;  // of an SM. A ninth one would spill registers
constexpr int kPieces = 4;      // of a thread of a copy, in flight together
constexpr int kRound = kCopyThreads * kPieces;
constexpr int kTileBytes = kRound * kAccessBytes;
constexpr int kMaxDims = 8;   // of a problem
constexpr int kMaxOuter = 4;  // dimensions of rows, after merging
constexpr int kMaxRuns = 16;  // of a row

// Index i of the padded tensor is index i - before of the other one. The mode says what lies
// outside of that. `before` is negative where the dimension is cropped.
struct Dim {
  int64_t padded = 1, size = 1;
  int64_t before = 0;
  int64_t stride = 0;  // of the tensor that is read, in elements

  bool is_whole() const { return before == 0 && padded == size; }
};

// A vector of the constant.
struct Fill {
  uint32_t words[4] = {};
};

// Dimensions in the order of the memory of the tensor that is written, innermost first.
struct Problem {
  Mode mode = Mode::kConstant;
  int64_t item = 1;  // bytes of an element
  const void* in = nullptr;
  void* out = nullptr;
  int num_dims = 0;
  Dim dims[kMaxDims];
  Fill fill;

  // Drops and merges dimensions. `out` has the padded sizes, or the others.
  void merge() {
    int left = 0;
    for (int d = 0; d < num_dims; ++d) {
      Dim dim = dims[d];
      if (dim.padded == 1 && dim.is_whole()) continue;
      Dim* inner = left > 0 ? &dims[left - 1] : nullptr;
      if (dim.size == 1 && dim.padded > 1) dim.stride = inner ? inner->stride * inner->size : 1;
      const bool by_elements = mode == Mode::kReflect || mode == Mode::kReplicate;
      if (inner && inner->is_whole() && dim.stride == inner->stride * inner->size &&
          (dim.is_whole() || !by_elements)) {
        *inner = {dim.padded * inner->size, dim.size * inner->size, dim.before * inner->size,
                  inner->stride};
      } else {
        dims[left++] = dim;
      }
    }
    if (left == 0) dims[left++] = {1, 1, 0, 1};
    num_dims = left;
  }
};

// Neighbouring bytes of a row of `out`, from neighbouring bytes of one source.
struct Run {
  const char* data = nullptr;       // of the first element, in row 0
  const char* end = nullptr;        // of the memory of the source
  int begin = 0, last = 0;          // bytes of the row
  int step = 1;                     // -1: elements in reverse. 0: one element, repeated
  int piece = 0;                    // the first one, of all pieces of the row
  FastDiv length;                   // bytes
  int64_t strides[kMaxOuter] = {};  // bytes
};

struct Outer {
  FastDiv padded;
  int size = 1, before = 0;
};

struct CopyArgs {
  char* out = nullptr;
  uint64_t bytes = 0;
  int tile_bytes = kTileBytes;  // of a block
  FastDiv row_bytes;
  FastDiv row_pieces;
  bool fills = false;  // bytes are from no run
  Mode mode = Mode::kConstant;
  int outers = 0, runs = 0;
  Outer outer[kMaxOuter];
  Run run[kMaxRuns];
  Fill fill;
};

struct CopyPlan {
  CopyArgs args;
  int unit = kAccessBytes;  // bytes that move together: a power of two
  bool is_dense = false;    // pieces are of many rows
  LaunchShape shape;
};

constexpr int64_t kMostRowBytes = 1 << 30;

// The bytes of a tile that has at most kRound pieces. A tile of t bytes has parts of at most
// t / row_bytes + 2 rows. A row has `pieces`.
constexpr int64_t tile_of_rows(int64_t row_bytes, int64_t pieces) {
  return (kRound / pieces - 2) * row_bytes;
}
// Of long rows: a part of a run has bytes / 16 + 2 pieces.
constexpr int64_t tile_of_runs(int64_t row_bytes, int64_t runs) {
  return (kRound - 4 * runs) * kAccessBytes * row_bytes / (row_bytes + 2 * runs * kAccessBytes);
}
// Of pieces of many rows: a run has bytes / 16 + 2 in all rows of the tile together.
constexpr int64_t tile_of_dense_rows(int64_t row_bytes, int64_t covered, int64_t runs) {
  return ((kRound - 2 * runs) * kAccessBytes / std::max<int64_t>(covered, 1) - 2) * row_bytes;
}

// Fills in the pieces of rows and the launch. Returns whether the kernel supports the sizes.
inline bool finish(CopyPlan& plan, int64_t row_bytes, int64_t rows, int64_t item,
                   bool is_fixed = false) {
  if (row_bytes > kMostRowBytes || rows > kMaxIndex32) return false;
  CopyArgs& args = plan.args;
  // The lowest set bit of `bits` is the unit to which all addresses are aligned.
  uint64_t bits = row_bytes | kAccessBytes | (is_fixed ? item : 0);
  int covered = 0;
  for (int r = 0; r < args.runs; ++r) {
    const Run& run = args.run[r];
    bits |=
        reinterpret_cast<uintptr_t>(run.data) | run.begin | run.last | (run.step == 1 ? 0 : item);
    for (int d = 0; d < args.outers; ++d) bits |= static_cast<uint64_t>(run.strides[d]);
    covered += run.last - run.begin;
  }
  plan.unit = static_cast<int>(bits & (~bits + 1));
  // Bytes that an aligned vector with a unit of a run may have outside of the run.
  const int over = kAccessBytes - plan.unit;
  int pieces = 0;
  bool is_dense = args.outers == 1 && !is_fixed;
  for (int r = 0; r < args.runs; ++r) {
    Run& run = args.run[r];
    const int length = run.last - run.begin;
    run.piece = pieces;
    run.length = divide_by(std::max(length, 1));
    pieces += ceil_div(length + over, kAccessBytes);
    is_dense = is_dense && run.step == 1 && run.strides[0] == length;
  }
  pieces = std::max(pieces, 1);
  args.fills = covered < row_bytes;
  for (int d = 0; d < args.outers; ++d) {
    const Outer& dim = args.outer[d];
    const bool is_whole = dim.before == 0 && static_cast<int>(dim.padded.divisor) == dim.size;
    args.fills = args.fills || (args.mode == Mode::kConstant && !is_whole);
    is_dense = is_dense && is_whole;
  }
  plan.is_dense = is_dense && pieces * kAccessBytes > 2 * int64_t{covered};
  const int64_t fitting = plan.unit == kAccessBytes ? kTileBytes
                          : plan.is_dense ? tile_of_dense_rows(row_bytes, covered, args.runs)
                                          : std::max(tile_of_rows(row_bytes, pieces),
                                                     tile_of_runs(row_bytes, args.runs));
  constexpr int kStep = 128;
  args.tile_bytes =
      static_cast<int>(std::clamp<int64_t>(fitting / kStep * kStep, kStep, kTileBytes));
  args.row_bytes = divide_by(row_bytes);
  args.row_pieces = divide_by(pieces);
  args.bytes = static_cast<uint64_t>(row_bytes) * rows;
  const uint64_t blocks = ceil_div<uint64_t>(args.bytes, args.tile_bytes);
  if (blocks > kMaxIndex32) return false;
  plan.shape.threads = kCopyThreads;
  plan.shape.blocks = static_cast<unsigned>(blocks);
  plan.shape.use_pdl = true;
  return true;
}

// Of a tensor with elements. Nothing if the elements of rows are apart, or the kernel does not
// support the sizes. `is_fixed`: dimensions are
// not merged, and elements move one by one.
inline std::optional<CopyPlan> make_plan(Problem problem, bool is_fixed = false) {
  int64_t last = 0;
  for (int d = 0; d < problem.num_dims; ++d) {
    last += (problem.dims[d].size - 1) * problem.dims[d].stride;
  }
  if (!is_fixed) problem.merge();
  CopyPlan plan;
  CopyArgs& args = plan.args;
  args.out = static_cast<char*>(problem.out);
  args.mode = problem.mode;
  args.fill = problem.fill;
  args.outers = problem.num_dims - 1;
  const Dim& inner = problem.dims[0];
  if (args.outers > kMaxOuter || (inner.stride != 1 && inner.padded > 1)) return std::nullopt;
  int64_t rows = 1;
  Run run;
  for (int d = 0; d < args.outers; ++d) {
    const Dim& dim = problem.dims[d + 1];
    if (std::max(dim.size, dim.padded) > kMaxIndex32) return std::nullopt;
    rows *= dim.padded;
    if (rows > kMaxIndex32) return std::nullopt;
    args.outer[d] = {divide_by(dim.padded), static_cast<int>(dim.size),
                     static_cast<int>(dim.before)};
    run.strides[d] = dim.stride * problem.item;
  }
  if (std::max(inner.size, inner.padded) * problem.item > kMostRowBytes) return std::nullopt;
  const auto* in = static_cast<const char*>(problem.in);
  run.end = in + (last + 1) * problem.item;
  // Elements from `begin` on, where that one is element `from` of the source.
  const auto add = [&](int64_t begin, int64_t end, int64_t from, int step) {
    begin = std::max<int64_t>(begin, 0), end = std::min(end, inner.padded);
    if (begin >= end) return;
    run.begin = static_cast<int>(begin * problem.item);
    run.last = static_cast<int>(end * problem.item);
    run.data = in + from * inner.stride * problem.item;
    run.step = step;
    args.run[args.runs++] = run;
  };
  const int64_t size = inner.size, core = inner.before, after = core + size;
  const int64_t after_begin = std::max<int64_t>(after, 0);
  const Mode mode = problem.mode;
  if (mode == Mode::kReflect) add(0, core, core, -1);
  if (mode == Mode::kReplicate) add(0, core, 0, 0);
  if (mode == Mode::kCircular) add(0, core, size - core, 1);
  add(core, after, std::max<int64_t>(-core, 0), 1);
  if (mode == Mode::kReflect) add(after, inner.padded, 2 * (size - 1) - (after_begin - core), -1);
  if (mode == Mode::kReplicate) add(after, inner.padded, size - 1, 0);
  if (mode == Mode::kCircular) add(after, inner.padded, after_begin - core - size, 1);
  if (args.runs == 0) args.run[args.runs++] = {in, in, 0, 0};
  return finish(plan, inner.padded * problem.item, rows, problem.item, is_fixed)
             ? std::optional(plan)
             : std::nullopt;
}

// One of the tensors of a concatenation.
struct Source {
  const void* data = nullptr;
  int64_t row = 0;                 // elements of a row, which lie behind each other
  int64_t strides[kMaxDims] = {};  // of the outer dimensions, in elements
};

// Rows of `out` are rows of the sources, one behind the other. No source is empty. `sizes` are
// the sizes of the outer dimensions, innermost first. They are merged where all sources allow it.
inline std::optional<CopyPlan> make_plan(std::span<const Source> sources,
                                         std::span<const int64_t> sizes, int64_t item, void* out) {
  CopyPlan plan;
  CopyArgs& args = plan.args;
  args.out = static_cast<char*>(out);
  int64_t merged[kMaxOuter] = {}, row = 0, rows = 1;
  for (const Source& source : sources) {
    if (args.runs == kMaxRuns || (row + source.row) * item > kMostRowBytes) return std::nullopt;
    int64_t last = source.row - 1;
    for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * source.strides[d];
    const auto* data = static_cast<const char*>(source.data);
    Run& run = args.run[args.runs++];
    run.data = data;
    run.end = data + (last + 1) * item;
    run.begin = static_cast<int>(row * item);
    run.last = static_cast<int>((row + source.row) * item);
    row += source.row;
  }
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    const int inner = args.outers - 1;
    bool merges = inner >= 0;
    for (int r = 0; merges && r < args.runs; ++r) {
      merges = sources[r].strides[d] * item == args.run[r].strides[inner] * merged[inner];
    }
    if (merges) {
      merged[inner] *= sizes[d];
    } else {
      if (args.outers == kMaxOuter) return std::nullopt;
      for (int r = 0; r < args.runs; ++r) {
        args.run[r].strides[args.outers] = sources[r].strides[d] * item;
      }
      merged[args.outers++] = sizes[d];
    }
    rows *= sizes[d];
    if (rows > kMaxIndex32) return std::nullopt;
  }
  for (int d = 0; d < args.outers; ++d) {
    args.outer[d] = {divide_by(merged[d]), static_cast<int>(merged[d]), 0};
  }
  return finish(plan, row * item, rows, item) ? std::optional(plan) : std::nullopt;
}

}  // namespace gpuopt::pad
