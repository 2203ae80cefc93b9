// Whether the ggml of this process is laid out as the headers that this was compiled against: a number of a version
// does not tell, for llama.cpp's changes come before the number's.
#pragma once

#include <string>

namespace winnow::ggml {

// "", or the first difference, in words. To be asked once find_ggml has succeeded.
std::string layout_difference();

} // namespace winnow::ggml
