// What nearly every binding includes and takes long to compile. Compiled once, and included ahead
// of each of them (tools/native_build.py); they say all the same what they include.
#include <ATen/ATen.h>
#include <torch/library.h>
