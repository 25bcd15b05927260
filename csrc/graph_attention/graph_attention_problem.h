// What the kernels of attention over a sparse matrix compute. Plain host C++.
#pragma once

#include "rows/rows_problem.h"

namespace gpuopt::graph_attention {

using namespace rows;

// out[r] = the sum over the entries e of row r: weight[e] * value[index[e]], for each head. The
// weights of a row are the softmax of its scores. The score of an entry in column c is
//
//   product form    factor * dot(left[r], right[c]) + bias
//   additive form   leaky_relu(left[r] + right[c] + bias), and factor is the negative slope
//
// The gradient reads out and log_sum. It reads grad, and writes the three members behind it.
struct AttentionProblem {
  Matrix matrix;                  // with an index
  DType dtype = DType::kFloat32;  // float16 to float64
  int64_t heads = 1;
  int64_t features = 1;      // of value and out, all heads together
  int64_t key_features = 0;  // of left and right, all heads together. 0: the additive form
  double factor = 1;
  Rows left;                   // [rows][key_features], or [rows][heads]
  Rows right;                  // [columns][key_features], or [columns][heads]
  Rows value;                  // [columns][features]
  const void* bias = nullptr;  // [entries][heads], at matrix.entry. May be null
  Rows out;                    // [rows][features]
  void* log_sum = nullptr;     // [rows][heads] of the compute type: log of the sum of exp(score)
  Rows grad;                   // [rows][features], of out
  Rows left_grad;              // as left
  void* weight = nullptr;      // [entries][heads], at matrix.entry
  void* score_grad = nullptr;  // [entries][heads], at matrix.entry: of the bias

  bool is_product() const { return key_features > 0; }
};

}  // namespace gpuopt::graph_attention
