// The precompiled header of the bindings: headers that nearly every binding includes and that
// compile slowly. tools/native_build.py includes it ahead of each source. Sources still include
// what they use.
#include <ATen/ATen.h>
#include <torch/library.h>
