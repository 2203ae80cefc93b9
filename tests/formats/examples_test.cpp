// The worked examples of docs/formats.md, made again: the fenced block "```text examples" holds what example() gives
// for each format. A changed page or format fails with the text that belongs there.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

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

std::string example(Type type, int64_t n) {
    const Bytes row = encode(type, example_row(n));
    const std::string indent(12, ' ');
    std::string text = (type_name(type) + indent).substr(0, indent.size());
    for (size_t i = 0; i < row.size(); ++i) {
        if (i > 0) text += i % 32 == 0 ? "\n" + indent : " ";
        text += hex({row[i]});
    }
    text += "\n  reads    ";
    const Vector x = decode(type, row, n);
    for (size_t e = 0; e < 8; ++e) text += " " + number(x[e]);
    return text + "\n";
}

TEST(formats_page, shows_what_the_reference_makes) {
    std::ifstream page(WINNOW_FORMATS_PAGE);
    ASSERT_TRUE(page) << WINNOW_FORMATS_PAGE;
    std::string line, text, expected;
    while (std::getline(page, line) && line != "```text examples") continue;
    while (std::getline(page, line) && line != "```") text += line + "\n";
    for (uint32_t each = 1; each < 64; ++each) {
        const auto type = static_cast<Type>(each);
        const std::string name = type_name(type);
        // Groups of other sizes differ in nothing else.
        if (is_packed(type) && !name.ends_with("_G64") && !name.ends_with("_G128")) expected += example(type, 32);
    }
    EXPECT_EQ(text, expected);
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
