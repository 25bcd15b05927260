// Makes a selective scan from plain arrays, for the C entry points that tests call.
#pragma once

#include "selective_scan/selective_scan_plan.h"

namespace gpuopt::selective {

inline Sequence make_sequence(const int64_t*& given) {
  Sequence sequence{reinterpret_cast<void*>(given[0]), given[1], given[2], given[3]};
  given += 4;
  return sequence;
}

inline Matrix make_matrix(const int64_t*& given) {
  Matrix matrix{reinterpret_cast<const void*>(given[0]),
                static_cast<DType>(given[1]),
                given[2],
                given[3],
                given[4],
                given[5],
                given[6] != 0};
  given += 7;
  return matrix;
}

// Reads the numbers that tests/emulation/selective_scan/test_selective_scan.py writes.
inline Problem make_problem(const int64_t*& given) {
  Problem problem;
  for (int64_t* size :
       {&problem.batch, &problem.channels, &problem.length, &problem.states, &problem.groups}) {
    *size = *given++;
  }
  problem.dtype = static_cast<DType>(*given++);
  problem.softplus = *given++ != 0;
  problem.channels_last = *given++ != 0;
  for (Sequence* sequence : {&problem.u, &problem.delta, &problem.z, &problem.out}) {
    *sequence = make_sequence(given);
  }
  problem.B = make_matrix(given);
  problem.C = make_matrix(given);
  for (const void** data : {&problem.A, &problem.D, &problem.delta_bias}) {
    *data = reinterpret_cast<const void*>(*given++);
  }
  problem.last_state = reinterpret_cast<void*>(*given++);
  return problem;
}

inline Gradients make_gradients(const int64_t*& given) {
  Gradients gradients;
  for (Sequence* sequence : {&gradients.out, &gradients.u, &gradients.delta, &gradients.z}) {
    *sequence = make_sequence(given);
  }
  gradients.last_state = reinterpret_cast<const void*>(*given++);
  for (void** data :
       {&gradients.A, &gradients.D, &gradients.delta_bias, &gradients.B, &gradients.C}) {
    *data = reinterpret_cast<void*>(*given++);
  }
  return gradients;
}

}  // namespace gpuopt::selective
