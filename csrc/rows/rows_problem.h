// What the kernels compute. Plain host C++.
#pragma once

#include <cstdint>

#include "common/describe.h"
#include "common/dtype.h"

namespace gpuopt::rows {

// A sparse matrix in rows of entries (CSR). Row r has the entries ptr[r] to ptr[r + 1].
struct Matrix {
  const void* ptr = nullptr;    // [rows + 1]
  const void* index = nullptr;  // [entries]: an entry's column. Null: the number of the entry
  const void* entry = nullptr;  // [entries]: where an entry's value is. Null: the entry's number
  bool is_long = false;         // ptr, index and entry are int64, else int32
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t entries = 0;

  GPUOPT_DESCRIBE(ptr, index, entry, is_long, rows, columns, entries)
};

// kLogSum gives each result as a pair (m, s) of the compute type: m is the maximum, and s the sum
// of exp(x - m).
enum class Reduce : uint8_t { kSum, kMean, kMax, kMin, kProd, kLogSum };

// Dense rows: batches of matrices whose innermost dimension is contiguous. Strides in elements.
struct Rows {
  void* data = nullptr;
  int64_t row = 0;    // from one row to the next
  int64_t batch = 0;  // from one matrix to the next

  GPUOPT_DESCRIBE(data, row, batch)
};

// out[b, r] = reduce over the entries e of row r: value[entry[e]] * dense[b, index[e]].
struct ReduceProblem {
  static constexpr const char* kPlanner = "rows.reduce";  // see common/tuning.h
  Matrix matrix;
  Reduce reduce = Reduce::kSum;
  DType dtype = DType::kFloat32;  // of value, dense and out: float16 to float64, int32 or int64
  int64_t batches = 1;
  int64_t features = 1;  // of a dense row, all heads together
  // [entries][heads]. Null stands for 1, as integers, kProd and kLogSum need it.
  const void* value = nullptr;
  int64_t heads = 1;      // feature n is multiplied by the value of head n / (features / heads)
  Rows dense;             // [batches][columns][features]
  Rows out;               // [batches][rows][features]
  double empty = 0;       // the result of rows without entries
  bool wide_out = false;  // out has the compute type, for example float32 for float16
  // Of a maximum or minimum: where the value of its entry is, or -1. [batches][rows][features], of
  // the type of ptr. The first of equal entries counts; a NaN wins. May be null.
  void* arg = nullptr;
  // For the gradient of a maximum, a sum: entry e counts for feature n only where
  // selected[b, index[e], n] == entry[e]. [batches][columns][features], of the type of ptr.
  const void* selected = nullptr;

  GPUOPT_DESCRIBE(matrix, reduce, dtype, batches, features, value, heads, dense, out, empty,
                  wide_out, arg, selected)
};

// What is computed of an entry and its row.
enum class Map : uint8_t {
  kCopy,             // out[e] = row[r]
  kSelected,         // out[e] = row[r] where selected[r] == e, else 0
  kSoftmax,          // out[e] = the softmax of x over the row
  kSoftmaxGradient,  // out[e] = y[e] * (x[e] - the sum of y * x over the row)
  kProduct,          // out[e] = row[r] * x[index[e]], only of rows that are read in tiles
};

// Entries of no row become 0. Only kProduct reads matrix.index, and nothing matrix.entry.
struct MapProblem {
  static constexpr const char* kPlanner = "rows.map";
  Matrix matrix;
  Map map = Map::kCopy;
  DType dtype = DType::kFloat32;  // of x, y, row and out: of any size for kCopy and kSelected
  int64_t features = 1;
  const void* x = nullptr;         // [entries][features], or [columns][features] for kProduct
  const void* y = nullptr;         // [entries][features]
  Rows row;                        // [rows][features]
  const void* selected = nullptr;  // [rows][features], of the type of ptr
  void* out = nullptr;             // [entries][features]

  GPUOPT_DESCRIBE(matrix, map, dtype, features, x, y, row, selected, out)
};

}  // namespace gpuopt::rows
