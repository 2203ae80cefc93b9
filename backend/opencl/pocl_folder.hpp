// PoCL keeps what it compiles in a folder: POCL_CACHE_DIR, else pocl/kcache in XDG_CACHE_HOME or in ~/.cache. Where it
// cannot make that folder it offers no device, and where it cannot write there, or load code from there, no kernel
// comes to be.
#pragma once

#include <string>

#include "device/device.hpp"

namespace winnow::opencl {

// Where PoCL's folder is of no use, gives it another one by POCL_CACHE_DIR: in memory if there is such a file system,
// readable by this user only, and gone with this process or when this library is closed. The log is told. A library
// that is opened again makes the same folder. To be called before PoCL is asked for its devices, by one thread at a
// time. What is wrong where no folder was found, else "".
std::string make_pocl_folder_usable(const Log& log);

} // namespace winnow::opencl
