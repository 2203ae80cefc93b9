// Reading lines of --help such as "-fa,   --flash-attn [on|off|auto]       set Flash Attention use".
#include "run_flags.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string_view>

namespace winnow::tools {

namespace {

// Programs that parse llama.cpp's arguments have their names in their own code, or are linked with a library that does,
// as libllama-common.so or libllama-server-impl.so.
constexpr std::string_view parser_texts[] = {"LLAMA_ARG_", "--flash-attn", "libllama-"};

// A file's bytes; none where it cannot be read.
class MappedFile {
public:
    explicit MappedFile(const std::string& path) {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        struct stat status {};
        if (file >= 0 && ::fstat(file, &status) == 0 && status.st_size > 0) {
            size_ = static_cast<size_t>(status.st_size);
            start_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
        }
        if (file >= 0) ::close(file);
    }
    ~MappedFile() {
        if (start_ != MAP_FAILED) ::munmap(start_, size_);
    }
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    std::string_view text() const {
        if (start_ == MAP_FAILED) return {};
        return {static_cast<const char*>(start_), size_};
    }

private:
    void* start_ = MAP_FAILED;
    size_t size_ = 0;
};

// A line of --help: the names of a flag, and what stands behind them.
struct HelpLine {
    std::vector<std::string> names;
    std::string value; // the next word
};

HelpLine read_line(const std::string& line) {
    HelpLine read;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
        if (!word.starts_with('-')) {
            read.value = word;
            break;
        }
        if (word.ends_with(',')) word.pop_back();
        read.names.push_back(word);
    }
    return read;
}

bool has_name(const HelpLine& line, std::string_view name) {
    return std::find(line.names.begin(), line.names.end(), name) != line.names.end();
}

// "[on|off|auto]" and "<on|off|auto>" take on, "<0|1>" takes 1; in an old program nothing in brackets follows, and the
// flag stands alone.
std::vector<std::string> turned_on(const std::string& value) {
    if (!value.starts_with('[') && !value.starts_with('<')) return {"-fa"};
    std::istringstream choices(value.substr(1, value.size() - 2));
    for (std::string choice; std::getline(choices, choice, '|');)
        if (choice == "on" || choice == "1") return {"-fa", choice};
    return {};
}

GivenValue given(const std::vector<std::string>& arguments, std::initializer_list<std::string_view> names,
                 const char* variable) {
    for (size_t i = arguments.size(); i-- > 0;) { // the last counts
        for (const std::string_view name : names) {
            if (arguments[i] == name) {
                const std::string value = i + 1 < arguments.size() ? arguments[i + 1] : "";
                return {true, value, arguments[i] + (value.empty() ? "" : " " + value)};
            }
            if (arguments[i].starts_with(std::string(name) + '='))
                return {true, arguments[i].substr(name.size() + 1), arguments[i]};
        }
    }
    const char* const value = variable ? std::getenv(variable) : nullptr;
    if (value) return {true, value, std::string(variable) + "=" + value};
    return {};
}

} // namespace

ProgramFlags flags_in(const std::string& help) {
    ProgramFlags flags;
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) {
        const HelpLine read = read_line(line);
        if (has_name(read, "-dev")) flags.has_device = true;
        if (has_name(read, "-fa") && flags.attention.empty()) flags.attention = turned_on(read.value);
    }
    flags.reads_environment = help.find("LLAMA_ARG_DEVICE") != std::string::npos;
    return flags;
}

GivenValue given_device(const ProgramFlags& flags, const std::vector<std::string>& arguments) {
    return given(arguments, {"-dev", "--device"}, flags.reads_environment ? "LLAMA_ARG_DEVICE" : nullptr);
}

GivenValue given_attention(const ProgramFlags& flags, const std::vector<std::string>& arguments) {
    return given(arguments, {"-fa", "--flash-attn"}, flags.reads_environment ? "LLAMA_ARG_FLASH_ATTN" : nullptr);
}

std::vector<std::string> flags_to_add(const ProgramFlags& flags, const std::vector<std::string>& given) {
    std::vector<std::string> added;
    if (flags.has_device && !given_device(flags, given).is_given) added = {"-dev", "Winnow"};
    if (!given_attention(flags, given).is_given)
        added.insert(added.end(), flags.attention.begin(), flags.attention.end());
    return added;
}

bool may_be_asked(const std::string& path) {
    const MappedFile file(path);
    const std::string_view code = file.text();
    if (code.starts_with("\x7f"
                         "ELF"))
        return std::any_of(std::begin(parser_texts), std::end(parser_texts),
                           [&](std::string_view text) { return code.find(text) != std::string_view::npos; });
    const std::filesystem::path name = std::filesystem::path(path).filename();
    return code.starts_with("#!") && name.string().starts_with("llama-") && !name.has_extension();
}

} // namespace winnow::tools
