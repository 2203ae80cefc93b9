// The worked examples of docs/formats.md, made again: a fenced block "```text TYPE n" there holds what example() gives.
// A changed page or format fails with the text that belongs there.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

#include "rows.hpp"

namespace winnow::formats {
namespace {

// The row that the page quantizes in every format.
Vector example_row(int64_t n) {
    Vector x;
    for (int64_t e = 0; e < n; ++e) x.push_back(static_cast<double>(37 * e % 64 - 31) / 8);
    return x;
}

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.5g", value);
    return text;
}

std::string first_numbers(const char* what, const Vector& x) {
    std::string text = what;
    for (size_t e = 0; e < 8; ++e) text.append(" ").append(number(x[e]));
    return text + "\n";
}

std::string example(Type type, int64_t n) {
    const Vector x = example_row(n);
    const Bytes row = encode(type, x);
    std::string text = first_numbers("x    ", x) + "bytes";
    for (size_t i = 0; i < row.size(); ++i) text.append(i > 0 && i % 16 == 0 ? "\n      " : " ").append(hex({row[i]}));
    return text + "\n" + first_numbers("reads", decode(type, row, n));
}

TEST(formats_page, shows_what_the_reference_makes) {
    std::ifstream page(WINNOW_FORMATS_PAGE);
    ASSERT_TRUE(page) << WINNOW_FORMATS_PAGE;
    std::set<std::string> shown;
    std::string line;
    while (std::getline(page, line)) {
        std::istringstream words(line);
        std::string fence, name;
        int64_t n = 0;
        if (!(words >> fence >> name >> n) || fence != "```text") continue;
        std::string text;
        while (std::getline(page, line) && line != "```") text += line + "\n";
        const Type type = type_named(name);
        ASSERT_TRUE(is_packed(type)) << name;
        EXPECT_EQ(text, example(type, n)) << name << " " << n;
        shown.insert(name);
    }
    for (uint32_t each = 1; each < 64; ++each)
        if (is_packed(static_cast<Type>(each))) {
            // Groups of other sizes differ in nothing else.
            std::string name = type_name(static_cast<Type>(each));
            if (name.ends_with("_G64") || name.ends_with("_G128")) continue;
            EXPECT_TRUE(shown.count(name)) << name << " has no example";
        }
}

// The table of row sizes on the page: "| TYPE | bytes of 64 | 80 | 128 | 576 |", "-" where the type does not fit.
TEST(formats_page, has_the_sizes_of_rows) {
    std::ifstream page(WINNOW_FORMATS_PAGE);
    const std::string text((std::istreambuf_iterator<char>(page)), std::istreambuf_iterator<char>());
    for (uint32_t each = 1; each < 64; ++each) {
        const auto type = static_cast<Type>(each);
        if (!is_storage_format(type)) continue;
        std::string line = std::string("| ") + type_name(type) + " |";
        for (int64_t n : {64, 80, 128, 576})
            line.append(" ")
                .append(n % row_multiple(type) == 0 ? std::to_string(row_bytes(type, n)) : "-")
                .append(" |");
        EXPECT_NE(text.find(line), std::string::npos) << line;
    }
}

} // namespace
} // namespace winnow::formats
