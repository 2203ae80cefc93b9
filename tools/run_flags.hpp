// The flags by which a program of llama.cpp's takes Winnow, read from what the program says of itself with --help.
#pragma once

#include <string>
#include <vector>

namespace winnow::tools {

struct ProgramFlags {
    bool has_device = false;            // -dev
    std::vector<std::string> attention; // how flash attention is turned on: "-fa on", "-fa 1" or "-fa"; empty: no -fa
    bool reads_environment = false;     // LLAMA_ARG_DEVICE and LLAMA_ARG_FLASH_ATTN count as flags that were given
};

// The text of --help of any program; of one that is not llama.cpp's nothing is found.
ProgramFlags flags_in(const std::string& help);

// What is to be added to the arguments of such a program: `-dev Winnow` and flash attention, as far as it knows these
// flags and the user gave none.
std::vector<std::string> flags_to_add(const ProgramFlags& flags, const std::vector<std::string>& given);

// The value that the user gave to a flag of these names or by a variable of the environment ("" for none of these), ""
// where none was given.
struct GivenValue {
    bool is_given = false;
    std::string text, said_by; // the value; the flag with it, or the variable
};
GivenValue given_device(const ProgramFlags& flags, const std::vector<std::string>& arguments);
GivenValue given_attention(const ProgramFlags& flags, const std::vector<std::string>& arguments);

// Whether a program may be started with --help to learn its flags: one that has llama.cpp's parser of arguments, or
// that is a script named as llama.cpp's programs are. Any other may do its work instead of answering.
bool may_be_asked(const std::string& path);

} // namespace winnow::tools
