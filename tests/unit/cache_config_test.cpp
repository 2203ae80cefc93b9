// The grammar of cache configurations: what is read, how it is spelled, what is refused and how, and that
// docs/policies.md lists the keys that there are.
#include "cache/plan/config.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "device/device.hpp"

namespace winnow::cache {
namespace {

// What parse says about a text that it refuses; empty where it takes it.
std::string refusal(const std::string& text) {
    try {
        parse(text);
        return {};
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_INVALID_ARGUMENT) << text;
        return error.what();
    }
}

TEST(cache_config, reads_what_is_given_and_knows_the_rest) {
    const Config config = parse("h2o:budget=1/4,sink=2,heavy=1/2,k=turbo4,v=turbo3,residual=48");
    EXPECT_STREQ(config.policy().name, "h2o");
    EXPECT_EQ(config.budget(), (Amount{Amount::Unit::share, 0, {1, 4}}));
    EXPECT_EQ(config.sink(), 2);
    EXPECT_EQ(config.amount("heavy"), (Amount{Amount::Unit::share, 0, {1, 2}}));
    EXPECT_EQ(config.k(), Type::turbo4);
    EXPECT_EQ(config.v(), Type::turbo3);
    EXPECT_EQ(config.k_norm(), Norm::corrected);
    EXPECT_EQ(config.residual(), 48);
    EXPECT_EQ(config.cadence(), std::nullopt);
    EXPECT_EQ(config.number("alpha"), .95);
    EXPECT_FALSE(config.has("recent"));
    EXPECT_FALSE(config.center());

    const Config none = parse("none:k=q8_0,v=q8_0,center=on");
    EXPECT_EQ(none.budget(), (Amount{Amount::Unit::share, 0, {1, 1}}));
    EXPECT_TRUE(none.center());
    EXPECT_FALSE(none.has("budget"));

    const Config winnow = parse("winnow");
    EXPECT_EQ(winnow.k(), Type::turbo4);
    EXPECT_EQ(winnow.v(), Type::turbo3);
    EXPECT_EQ(winnow.k_norm(), Norm::unit_slope);
    EXPECT_EQ(winnow.v_norm(), Norm::corrected);
    EXPECT_EQ(winnow.sink(), 4);
}

TEST(cache_config, has_one_spelling_for_one_configuration) {
    const struct {
        const char *given, *canonical;
    } rows[] = {{"window", "window"},
                {"window:budget=1/4,sink=4,center=off", "window"}, // defaults
                {"winnow:recall=host,center=on", "winnow:center=on,recall=host"},
                {"winnow:recall=host,center=off,signature=signs", "winnow:recall=host"},
                {"window:sink=0,budget=2/16", "window:budget=1/8,sink=0"},
                {"window:budget=0512", "window:budget=512"},
                {"window:budget=64M", "window:budget=64M"},
                {"window:budget=64MiB", "window:budget=64M"},
                {"window:budget=1024KiB", "window:budget=1M"},
                {"window:budget=1536K", "window:budget=1536K"},
                {"window:budget=2048M", "window:budget=2G"},
                {"window:budget=3000B", "window:budget=3000B"},
                {"h2o:max=300", "h2o:budget=300"},
                {"h2o:alpha=9.0e-1,k=f16", "h2o:alpha=0.9"},
                {"h2o:alpha=.95", "h2o"},
                {"h2o:alpha=-0", "h2o:alpha=0"},
                {"random:seed=7,recent=0,budget=99", "random:budget=99,recent=0,seed=7"},
                {"window:zero_after=128,elastic=sweet", "window:elastic=sweet"},
                {"none:zero_k=.35,elastic=on,zero_every=32", "none:elastic=on,zero_k=0.35,zero_every=32"},
                {"none:fine=03+1-2+9+8,k_fine=q8_0", "none:fine=1-3+8-9,k_fine=q8_0"},
                {"none:fine=2.1+0-1.0-1+2.0+7.5+7.5-6+9.0+9,k_fine=q8_0", "none:fine=0-2.0-1+7.5-6+9,k_fine=q8_0"},
                {"none:fine=3.0+3.2-4+4.0+4.2-4+5.63,k_fine=q8_0", "none:fine=3-4.0+3-4.2-4+5.63,k_fine=q8_0"},
                {"none:fine=3.0-63,k_fine=q8_0", "none:fine=3.0-63,k_fine=q8_0"},
                {"winnow:v_coarse=turbo2,coarse=0+0-0", "winnow:coarse=0,v_coarse=turbo2"},
                {"adaptive_budget:profile_file=a b/c:d=e.json", "adaptive_budget:profile_file=a b/c:d=e.json"}};
    for (const auto& [given, canonical] : rows) {
        EXPECT_EQ(to_string(parse(given)), canonical) << given;
        EXPECT_EQ(parse(canonical), parse(given));
    }
    EXPECT_NE(parse("window"), parse("window:sink=5"));
    EXPECT_NE(parse("window"), parse("none"));
}

TEST(cache_config, layers_have_formats_of_their_own) {
    const std::vector<FormatsOfLayers> all =
        parse("winnow:fine=0-1+5,k_fine=q8_0,coarse=3,v_coarse=turbo2").formats_of_layers();
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].layers, (std::vector<LayerHeads>{{0, 0}, {1, 0}, {5, 0}}));
    EXPECT_EQ(std::pair(all[0].k, all[0].v), std::pair(Type::q8_0, Type::turbo3));
    EXPECT_EQ(all[1].layers, (std::vector<LayerHeads>{{3, 0}}));
    EXPECT_EQ(std::pair(all[1].k, all[1].v), std::pair(Type::turbo4, Type::turbo2));
    EXPECT_TRUE(parse("winnow").formats_of_layers().empty());
    const std::vector<FormatsOfLayers> of_heads =
        parse("winnow:fine=0.0+4.1-2+4.5,k_fine=q8_0,coarse=0.1+4.0,v_coarse=turbo2").formats_of_layers();
    EXPECT_EQ(of_heads[0].layers, (std::vector<LayerHeads>{{0, 1}, {4, 0x26}}));
    EXPECT_EQ(of_heads[1].layers, (std::vector<LayerHeads>{{0, 2}, {4, 1}}));
    EXPECT_EQ(to_string(storage_of(parse("h2o:k=q8_0,fine=0,v_fine=f16"))), "none:k=q8_0");
    EXPECT_EQ(with_policy(parse("h2o:fine=7,v_fine=bf16"), "window").formats_of_layers()[0].v, Type::bf16);
}

TEST(cache_config, elastic_has_presets) {
    const struct {
        const char* text;
        double k, v;
    } rows[] = {{"none:elastic=on", .35, .17},
                {"h2o:elastic=sweet", .45, .5},
                {"window:elastic=aggressive", .5, .5},
                {"mixed:elastic=k_only", .35, 0},
                {"none:elastic=sweet,zero_v=0", .45, 0},
                {"none:elastic=k_only,zero_k=.2,zero_v=1", .2, 1},
                {"none", 0, 0}};
    for (const auto& [text, k, v] : rows) {
        const Zeroing zeroing = parse(text).zeroing();
        EXPECT_EQ(zeroing.k, k) << text;
        EXPECT_EQ(zeroing.v, v) << text;
        EXPECT_EQ(static_cast<bool>(zeroing), k + v > 0) << text;
    }
    const Zeroing zeroing = parse("window:elastic=on,zero_sink=9,zero_every=10,zero_after=11").zeroing();
    EXPECT_EQ(zeroing.sink, 9);
    EXPECT_EQ(zeroing.every, 10);
    EXPECT_EQ(zeroing.after, 11);
    EXPECT_EQ(with_policy(parse("h2o:elastic=sweet"), "window").zeroing().v, .5);
    EXPECT_EQ(to_string(storage_of(parse("h2o:budget=1/4"))), "none");
    EXPECT_EQ(to_string(storage_of(parse("h2o:elastic=sweet,zero_sink=2"))), "none:elastic=sweet,zero_sink=2");
}

TEST(cache_config, says_what_is_wrong_and_what_there_is) {
    const struct {
        const char* text;
        std::vector<const char*> parts;
    } rows[] = {
        {"",
         {"no policy \"\"", "winnow, window, h2o, scissorhands, tova, hierarchical, adaptive_budget, mixed, decay, "
                            "random, external, moe, learned, none"}},
        {"H2O", {"no policy \"H2O\"", "h2o"}},
        {"h2o ", {"no policy \"h2o \""}},
        {"h2o:", {"h2o: \"\" is not key=value"}},
        {"h2o:sink=4,", {"\"\" is not key=value"}},
        {"h2o:sink", {"\"sink\" is not key=value"}},
        {"h2o:hevy=1/2", {"h2o: no key \"hevy\"; there are budget, k, v, residual, sink,", "heavy, recent, alpha"}},
        {"window:heavy=1/2", {"window: no key \"heavy\""}},
        {"none:budget=1/2", {"none: no key \"budget\""}},
        {"none:fine=,k_fine=q8_0", {"fine=\"\": expected numbers and ranges of layers", "such as 0-1+28-29"}},
        {"none:fine=1-,k_fine=q8_0", {"fine=\"1-\": expected numbers"}},
        {"none:fine=2-1,k_fine=q8_0", {"fine=\"2-1\": expected numbers"}},
        {"none:fine=1++2,k_fine=q8_0", {"fine=\"1++2\": expected numbers"}},
        {"none:fine=-1,k_fine=q8_0", {"fine=\"-1\": expected numbers"}},
        {"none:fine=0-99999,k_fine=q8_0", {"fine=\"0-99999\": expected numbers", "from 0 to 4095"}},
        {"none:fine=1.,k_fine=q8_0", {"fine=\"1.\": expected numbers", "behind a point of KV heads from 0 to 63"}},
        {"none:fine=.1,k_fine=q8_0", {"fine=\".1\": expected numbers"}},
        {"none:fine=1.2.3,k_fine=q8_0", {"fine=\"1.2.3\": expected numbers"}},
        {"none:fine=1.3-2,k_fine=q8_0", {"fine=\"1.3-2\": expected numbers"}},
        {"none:fine=1.64,k_fine=q8_0", {"fine=\"1.64\": expected numbers"}},
        {"none:fine=4.0-2,k_fine=q8_0,coarse=4.2,v_coarse=q8_0", {"KV head 2 of layer 4 is in fine= and in coarse="}},
        {"none:fine=4.0,k_fine=q8_0,coarse=4,v_coarse=q8_0", {"layer 4 is in fine= and in coarse="}},
        {"none:fine=1", {"fine=1 has no format of its own: expected k_fine= or v_fine="}},
        {"none:v_coarse=q8_0", {"v_coarse=q8_0 is the format of the layers in coarse=", "expected coarse="}},
        {"none:fine=0-4,k_fine=q8_0,coarse=4-5,v_coarse=turbo2", {"layer 4 is in fine= and in coarse="}},
        {"winnow:recall=host,fine=0,k_fine=q8_0",
         {"fine=0: with recall=host", "packed rows of all layers have the same formats"}},
        {"h2o:k=turbo5", {"h2o: k=\"turbo5\": expected one of f32, f16, bf16, q8_0,", "turbo3_5, turbo2_5"}},
        {"h2o:k=i32", {"k=\"i32\""}},
        {"h2o:v=F16", {"v=\"F16\": expected one of f32"}},
        {"h2o:budget=0", {"budget=\"0\": expected a share of the context such as 1/4, tokens"}},
        {"h2o:budget=0/3", {"budget=\"0/3\""}},
        {"h2o:budget=5/4", {"budget=\"5/4\""}},
        {"h2o:budget=1/0", {"budget=\"1/0\""}},
        {"h2o:budget=-1/4", {"budget=\"-1/4\""}},
        {"h2o:budget=+5", {"budget=\"+5\""}},
        {"h2o:budget=64MB", {"budget=\"64MB\""}},
        {"h2o:budget=M", {"budget=\"M\""}},
        {"h2o:budget=99999999999999999999", {"budget=\"99999999999999999999\""}},
        {"h2o:budget=99999999999999G", {"budget=\"99999999999999G\""}},
        {"h2o:heavy=64M", {"heavy=\"64M\": expected a share such as 1/4, or tokens such as 128"}},
        {"h2o:alpha=1.5", {"alpha=\"1.5\": expected a number from 0 to 1"}},
        {"h2o:alpha=nan", {"alpha=\"nan\""}},
        {"h2o:alpha=inf", {"alpha=\"inf\""}},
        {"h2o:alpha=", {"alpha=\"\""}},
        {"h2o:alpha=.5x", {"alpha=\".5x\""}},
        {"h2o:alpha=+.5", {"alpha=\"+.5\""}},
        {"h2o:alpha= .5", {"alpha=\" .5\""}},
        {"h2o:alpha=.5 ", {"alpha=\".5 \""}},
        {"h2o:alpha=0x1p-1", {"alpha=\"0x1p-1\""}},
        {"h2o:alpha=1e", {"alpha=\"1e\""}},
        {"h2o:alpha=1e400", {"alpha=\"1e400\""}},
        {"h2o:alpha=1e-400", {"alpha=\"1e-400\""}},
        {"h2o:statistic=logit",
         {"statistic=\"logit\": expected one of score_magnitude, probability, probability_squared"}},
        {"h2o:center=yes", {"center=\"yes\": expected one of off, on"}},
        {"h2o:residual=-1", {"residual=\"-1\": expected a whole number from 0 to 65536"}},
        {"h2o:cadence=0", {"cadence=\"0\": expected a whole number from 1 to"}},
        {"h2o:sink=4,sink=4", {"h2o: \"sink\" is given twice"}},
        {"h2o:budget=9,max=9", {"\"max\" is given twice, as it is another name of budget"}},
        {"h2o:budget=48,residual=48", {"sink=4 and residual=48 leave nothing of budget=48, expected more than 52"}},
        {"window:budget=52,residual=48", {"sink=4 and residual=48 leave nothing of budget=52"}},
        {"window:budget=4", {"sink=4 and residual=0 leave nothing of budget=4"}},
        {"window:residual=16,cadence=17", {"cadence=17 is more than residual=16 holds: expected at most as much"}},
        {"h2o:preset=heavy,recent=3", {"preset=heavy says heavy and recent", "expected either"}},
        {"h2o:budget=256,heavy=200,recent=53",
         {"sink=4, heavy=200 and recent=53 tokens are more than a budget of 256: expected at most that together"}},
        {"h2o:budget=256,recent=253", {"recent=253 tokens are more than a budget of 256"}},
        {"hierarchical:thresholds=conservative,profile=code",
         {"thresholds=conservative and profile=code both", "expected one"}},
        {"hierarchical:middle_from=3/4", {"middle_from=3/4 is more than deep_from=2/3: expected at most"}},
        {"adaptive_budget:entropy=0,concentration=0,variance=0", {"all weigh 0: expected one"}},
        {"adaptive_budget:policy=none", {"policy=\"none\": expected one of winnow, window"}},
        {"adaptive_budget:profile_file=", {"profile_file=\"\": expected a name"}},
        {"window:k2=turbo2", {"k2=turbo2 is of a second packed segment", "expected share2=, such as share2=1/2"}},
        {"window:share2=1/4,v3=turbo2", {"v3=turbo2 is of a third packed segment", "expected share3="}},
        {"window:share3=1/4", {"share3 is of a third packed segment, and there is no second one"}},
        {"window:share2=0/1", {"share2=0/1 leaves the second packed segment no token"}},
        {"window:share2=3/4,share3=1/4", {"share2=3/4 and share3=1/4 leave the first packed segment nothing"}},
        {"mixed:share2=1/1", {"share2=1/1 leave the first packed segment nothing"}},
        {"winnow:recall=host,budget=1/8,share2=1/4", {"with recall=host packed tokens lie in the cold tier", "share2"}},
        {"window:zero_k=.4", {"window: zero_k is a key of elastic, and elastic=off"}},
        {"window:zero_every=65", {"zero_every is a key of elastic, and elastic=off"}},
        {"window:elastic=hot", {"elastic=\"hot\": expected one of off, on, sweet, aggressive, k_only"}},
        {"window:elastic=k_only,zero_k=0", {"elastic=k_only with scales of 0 zeroes nothing"}},
        {"winnow:budget=1/8,signature=codes", {"signature is a key of recall", "recall=off"}},
        {"winnow:recall=host,codebook_file=a", {"codebook_file=a", "expected signature=codes"}},
        {"winnow:recall=host,signature=codes,center=on", {"signature=codes", "needs the keys themselves", "center=on"}},
        {"winnow:recall=host,signature=bits", {"signature", "\"bits\"", "signs", "codes"}},
        {"winnow:recall=host,budget=1/8,elastic=on", {"with recall=host rows lie in the cold tier", "elastic="}},
        {"window:elastic=sweet,center=on", {"with center=on rows of f16 are stored less their means"}},
        {"window:elastic=sweet,center=on,k=q8_0,v=bf16", {"rows of bf16 are stored less their means"}},
        {"decay:share2=1/4", {"share2=1/4 cannot divide the tokens: their age decides which are in the second"}},
        {"decay:mode=bit_reduction,budget=1/2", {"mode=bit_reduction evicts nothing, and budget=1/2", "mode=hybrid"}},
        {"decay:mode=bit_reduction,eviction_threshold=0.1", {"eviction_threshold=0.1 would say what is evicted"}},
        {"decay:mode=eviction,v3=q4_0", {"mode=eviction reduces no bits, and v3=q4_0", "mode=hybrid"}},
        {"decay:weight2=0.2", {"weight3=0.2 has to be less than weight2=0.2"}},
        {"decay:evict_inactive=on",
         {"evict_inactive=on is of experts, and experts= does not say", "expected experts="}},
        {"decay:mode=bit_reduction,experts=8,evict_inactive=on", {"evicts nothing, and evict_inactive=on"}},
        {"decay:weight2=1.5", {"weight2=\"1.5\": expected a number from 0 to 1"}},
        {"window:share2=64", {"share2=\"64\": expected a share"}},
        {"window:share2=1/4,k2=turbo9", {"k2=\"turbo9\": expected one of f32"}},
    };
    for (const auto& [text, parts] : rows)
        for (const char* part : parts)
            EXPECT_NE(refusal(text).find(part), std::string::npos) << text << "\n" << refusal(text) << "\n" << part;
    EXPECT_EQ(refusal("window:budget=53,residual=48"), "");
    EXPECT_EQ(refusal("window:zero_every=64,zero_sink=64,zero_after=128"), ""); // which are the defaults
    EXPECT_EQ(refusal("window:elastic=k_only,center=on,k=q8_0"), "");
    EXPECT_EQ(refusal("window:residual=0,cadence=17"), "");
    EXPECT_EQ(refusal("h2o:budget=256,heavy=200,recent=52"), "");
}

TEST(cache_config, quotes_without_control_characters_and_not_for_ever) {
    EXPECT_EQ(quote("a\n\x7f\x01"), "\"a\\x0a\\x7f\\x01\"");
    EXPECT_EQ(quote("\xc3\xa9"), "\"\xc3\xa9\"");
    const std::string quoted_80 = std::string("\"").append(80, 'x') + "...\"";
    const std::string quoted_79 = std::string("\"").append(79, 'x') + "...\"";
    EXPECT_EQ(quote(std::string(81, 'x')), quoted_80);
    EXPECT_EQ(quote(std::string(79, 'x') + "\xc3\xa9"), quoted_79);
    EXPECT_LT(refusal(std::string(100000, 'x')).size(), 400u);
}

TEST(cache_config, defaults_are_in_canonical_spelling) {
    for (const PolicyKind* kind : policies()) {
        const Config config = parse(kind->name);
        EXPECT_EQ(to_string(config), kind->name);
        for (const Key& key : keys_of(*kind)) {
            if (*key.fallback == 0) continue;
            EXPECT_EQ(spell(parse_value(key, key.fallback)), key.fallback) << kind->name << " " << key.name;
            EXPECT_EQ(spell(config.at(key.name)), key.fallback);
        }
    }
}

// ---- Properties ----------------------------------------------------------------------------------------------------

using Random = std::mt19937;

int64_t below(Random& random, int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random); }

std::string random_share(Random& random) {
    const int64_t whole = 1 + below(random, 20);
    return std::to_string(1 + below(random, whole)) + "/" + std::to_string(whole);
}

std::string random_value(Random& random, const Key& key) {
    switch (key.kind) {
    case Kind::budget:
        return below(random, 2) != 0   ? random_share(random)
               : below(random, 2) != 0 ? std::to_string(200 + below(random, 5000))
                                       : std::to_string(1 + below(random, 5000)) + "KMGB"[below(random, 4)];
    case Kind::amount: return below(random, 2) != 0 ? random_share(random) : std::to_string(below(random, 100));
    case Kind::share: return random_share(random);
    case Kind::count:
        return std::to_string(static_cast<int64_t>(key.least) + below(random, std::min<int64_t>(100, key.most)));
    case Kind::number: return spell(std::uniform_real_distribution<>(key.least, std::min(key.most, 10.0))(random));
    case Kind::text: return "file" + std::to_string(below(random, 100));
    case Kind::folder: return below(random, 2) != 0 ? "host" : "/folder" + std::to_string(below(random, 100));
    case Kind::layers: {
        const int64_t first = below(random, 30) + (std::string_view(key.name) == "fine" ? 0 : 100);
        return std::to_string(first) + "-" + std::to_string(first + below(random, 5)) + "+" +
               std::to_string(first + below(random, 9)) + "+" + std::to_string(first + below(random, 9)) + "." +
               std::to_string(below(random, 64));
    }
    case Kind::word:
    case Kind::format: break;
    }
    const std::vector<std::string> all = choices_of(key);
    return all[static_cast<size_t>(below(random, static_cast<int64_t>(all.size())))];
}

struct Text {
    std::string policy;
    std::vector<std::pair<std::string, std::string>> pairs;

    std::string join() const {
        std::string text = policy;
        for (size_t i = 0; i < pairs.size(); ++i)
            text.append(i == 0 ? ":" : ",").append(pairs[i].first).append("=").append(pairs[i].second);
        return text;
    }
};

Text random_text(Random& random) {
    const PolicyKind& kind = *policies()[static_cast<size_t>(below(random, static_cast<int64_t>(policies().size())))];
    Text text{kind.name, {}};
    std::vector<Key> keys = keys_of(kind);
    // Those of lower packed segments, of layers' formats and of elastic zeroing make sense together alone.
    const auto is_lower = [](const Key& key) {
        const std::string_view name = key.name;
        return std::string_view("23").find(name.back()) < 2 || name == "elastic" || name.starts_with("zero_");
    };
    const auto is_of_layers = [](const Key& key) {
        const std::string_view name = key.name;
        return name.ends_with("fine") || name.ends_with("coarse");
    };
    const std::vector<Key> all = keys;
    std::erase_if(keys, [&](const Key& key) { return is_lower(key) || is_of_layers(key); });
    std::shuffle(keys.begin(), keys.end(), random);
    keys.resize(static_cast<size_t>(below(random, 6)));
    if (below(random, 8) == 0) std::copy_if(all.begin(), all.end(), std::back_inserter(keys), is_lower);
    if (below(random, 8) == 0) std::copy_if(all.begin(), all.end(), std::back_inserter(keys), is_of_layers);
    for (const Key& key : keys) text.pairs.emplace_back(key.name, random_value(random, key));
    return text;
}

TEST(cache_config, comes_back_from_its_own_string) {
    Random random(1);
    int taken = 0;
    for (int i = 0; i < 5000; ++i) {
        const std::string text = random_text(random).join();
        if (!refusal(text).empty()) continue; // values that contradict each other
        ++taken;
        const Config config = parse(text);
        const std::string canonical = to_string(config);
        EXPECT_EQ(parse(canonical), config) << text;
        EXPECT_EQ(to_string(parse(canonical)), canonical) << text;
    }
    EXPECT_GT(taken, 2500);
}

TEST(cache_config, names_the_part_that_is_wrong) {
    Random random(2);
    const std::string letters = "abcxyz019_-./ =:";
    for (int i = 0; i < 5000; ++i) {
        Text text = random_text(random);
        if (text.pairs.empty()) continue;
        std::string junk = "?"; // in no value and no name
        for (int64_t n = below(random, 8); n > 0; --n)
            junk += letters[static_cast<size_t>(below(random, static_cast<int64_t>(letters.size())))];
        auto& [key, value] = text.pairs.front(); // before any other could be wrong
        if (below(random, 2) != 0) {
            junk.erase(std::remove(junk.begin(), junk.end(), '='), junk.end());
            key = junk;
        } else if (!key.ends_with("_file") && key != "recall") { // which take any text, or any with a / in it
            value = junk;
        } else {
            continue;
        }
        EXPECT_NE(refusal(text.join()).find(quote(junk)), std::string::npos) << text.join() << "\n"
                                                                             << refusal(text.join());
    }
}

TEST(cache_config, takes_or_refuses_any_bytes) {
    Random random(3);
    const std::string likely = "h2o:window,budget=1/4,sink=k=q8_0,v=turbo3,residual=48,alpha=.95";
    int refused = 0;
    for (int i = 0; i < 20000; ++i) {
        std::string text = i % 2 == 0 ? random_text(random).join() : likely;
        for (int64_t n = 1 + below(random, 4); n > 0 && !text.empty(); --n) {
            const auto at = static_cast<size_t>(below(random, static_cast<int64_t>(text.size())));
            switch (below(random, 4)) {
            case 0: text.erase(at, static_cast<size_t>(1 + below(random, 5))); break;
            case 1: text.insert(at, 1, static_cast<char>(below(random, 256))); break;
            case 2: text[at] = likely[static_cast<size_t>(below(random, static_cast<int64_t>(likely.size())))]; break;
            default: text.insert(at, text.substr(static_cast<size_t>(below(random, 10)) % text.size()));
            }
        }
        const std::string said = refusal(text); // anything but Error ends the test
        refused += said.empty() ? 0 : 1;
        for (const char each : said) ASSERT_TRUE(static_cast<unsigned char>(each) >= 0x20) << quote(text);
        if (said.empty()) {
            EXPECT_EQ(parse(to_string(parse(text))), parse(text)) << quote(text);
        }
    }
    EXPECT_GT(refused, 5000);
    EXPECT_LT(refused, 20000);
}

// ---- The page ------------------------------------------------------------------------------------------------------

std::string row_of(const Key& key) {
    constexpr const char* kinds[] = {"budget", "amount", "share", "", "", "", "format", "text", "", "layers"};
    const auto limit = [](double number) { return spell(Value(number)); };
    const std::string kind = key.kind == Kind::word     ? join(choices_of(key))
                             : key.kind == Kind::folder ? join(choices_of(key)) + ", folder"
                             : key.kind == Kind::count  ? std::to_string(std::llround(key.least)) + " to " +
                                                             std::to_string(std::llround(key.most))
                             : key.kind == Kind::number ? limit(key.least) + " to " + limit(key.most)
                                                        : kinds[static_cast<size_t>(key.kind)];
    const std::string fallback = *key.fallback == 0 ? "" : " `" + std::string(key.fallback) + "`";
    return std::string("| `") + key.name + "` | " + kind + " |" + fallback + " | " + key.help + " |";
}

// Each policy has a heading of its name on the page and under it a row for each key of its own; the common keys stand
// under "Common keys".
TEST(cache_policies_page, lists_the_keys_that_there_are) {
    std::ifstream file(WINNOW_POLICIES_PAGE);
    ASSERT_TRUE(file) << WINNOW_POLICIES_PAGE;
    std::vector<std::string> given, wanted;
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("## `") || line == "## Common keys" || line.starts_with("| `")) given.push_back(line);
    wanted.emplace_back("## Common keys");
    for (const Key& key : keys_of(*find_policy("window"))) wanted.push_back(row_of(key));
    for (const PolicyKind* kind : policies()) {
        wanted.push_back(std::string("## `") + kind->name + "`");
        for (const Key& key : kind->keys) wanted.push_back(row_of(key));
    }
    std::string expected_rows;
    for (const std::string& row : wanted) {
        EXPECT_LE(row.size(), 120u) << row;
        expected_rows += row + "\n";
    }
    EXPECT_EQ(given, wanted) << "The page has to have:\n" << expected_rows;
}

} // namespace
} // namespace winnow::cache
