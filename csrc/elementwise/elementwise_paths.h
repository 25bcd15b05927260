// The paths of the element-wise engine: a plan holds the arguments of a path's kernel, and what
// chooses the kernel. Plain host C++.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "common/launch_shape.h"
#include "elementwise/elementwise_args.h"

namespace gpuopt::elementwise {

// How a launch walks the output. A plan has the first path in this order that supports the problem.
// GeneralPlan supports all.

// All operands have one type, are dense in the same order and aligned. Each is read or written as
// one run of 16-byte vectors.
template <int kInputs>
struct VectorPlan {
  static constexpr const char* kName = "vector";
  VectorArgs<kInputs + 1> args;
};

// Output rows are whole, aligned vectors. Each input supplies the vector at the same position of
// its own row, or repeats one value along the row. This covers broadcasting in both directions,
// slices and mixed types.
template <int kInputs>
struct RowsPlan {
  static constexpr const char* kName = "rows";
  StridedArgs<kInputs + 1> args;  // dimension 0 counts vectors
  Access access;
  int vecs;  // per thread: 1 or 2
};

// All operands have one type, and some input is contiguous along another dimension than the output.
// Tiles of it are transposed through shared memory. Small problems of this kind and short rows of
// the output take the general path.
template <int kInputs>
struct TiledPlan {
  static constexpr const char* kName = "tiled";
  StridedArgs<kInputs + 1> args;  // tiles lie in dimensions 0 and 1
  TileGrid grid;
  bool packed;  // the output and the transposed inputs are accessed in vectors, else value by value
};

// All operands have one type, and the output is dense and aligned. Its vectors cross from row to
// row. Inputs are read as vectors where possible, otherwise value by value.
template <int kInputs>
struct PackedPlan {
  static constexpr const char* kName = "packed";
  StridedArgs<kInputs + 1> args;
};

// The same for other outputs with contiguous rows. Each row is split into vectors by itself, at the
// output's 16-byte boundaries. It may begin and end with partial vectors.
template <int kInputs>
struct PackedRowsPlan {
  static constexpr const char* kName = "packed rows";
  StridedArgs<kInputs + 1> args;
  FastDiv vecs_per_row;  // partial vectors included
  uint32_t vecs;
};

// Any strides and any mix of types, one value at a time.
template <int kInputs>
struct GeneralPlan {
  static constexpr const char* kName = "general";
  StridedArgs<kInputs + 1> args;
  int values;  // per thread: 2 or 4
  bool one_type;
};

template <int kInputs>
struct Launch {
  std::variant<VectorPlan<kInputs>, RowsPlan<kInputs>, TiledPlan<kInputs>, PackedPlan<kInputs>,
               PackedRowsPlan<kInputs>, GeneralPlan<kInputs>>
      path;
  LaunchShape shape;
};

// The types for which an operation has kernels of every path. In other types it has vectors,
// aligned rows and the general path.
enum class Types : uint8_t { kFloats, kAll };

template <int kInputs, Types kTypes = Types::kFloats>
struct Plan {
  DType dtype;                            // of the problem
  std::vector<Launch<kInputs>> launches;  // several if the problem is too large for one
};

template <int kInputs, typename F>
void describe(const VectorPlan<kInputs>& plan, F&& f) {
  f("path", plan.kName);
  f("args", plan.args);
}
template <int kInputs, typename F>
void describe(const RowsPlan<kInputs>& plan, F&& f) {
  f("path", plan.kName);
  f("args", plan.args);
  f("access", plan.access);
  f("vecs", plan.vecs);
}
template <int kInputs, typename F>
void describe(const TiledPlan<kInputs>& plan, F&& f) {
  f("path", plan.kName);
  f("args", plan.args);
  f("grid", plan.grid);
  f("packed", plan.packed);
}
template <int kInputs, typename F>
void describe(const PackedPlan<kInputs>& plan, F&& f) {
  f("path", plan.kName);
  f("args", plan.args);
}
template <int kInputs, typename F>
void describe(const PackedRowsPlan<kInputs>& plan, F&& f) {
  f("path", plan.kName);
  f("args", plan.args);
  f("vecs_per_row", plan.vecs_per_row);
  f("vecs", plan.vecs);
}
template <int kInputs, typename F>
void describe(const GeneralPlan<kInputs>& plan, F&& f) {
  f("path", plan.kName);
  f("args", plan.args);
  f("values", plan.values);
  f("one_type", plan.one_type);
}
template <int kInputs, typename F>
void describe(const Launch<kInputs>& launch, F&& f) {
  f("plan", launch.path);
  f("shape", launch.shape);
}

}  // namespace gpuopt::elementwise
