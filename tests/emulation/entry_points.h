// The functions that emulated kernels call by name. A kernel is a shared object and finds them in the executable (link
// it with exported symbols); naming them here keeps a linker that reads a static library from leaving files out.
#pragma once

namespace ingot::emulation {

void keep_entry_points();

}  // namespace ingot::emulation
