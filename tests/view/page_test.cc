#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "qkv/error.h"
#include "qkv/view.h"
#include "sample.h"
#include "view/payload.h"

namespace qkv {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string DataOf(const std::string& page) {
  const std::string open = "id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  return page.substr(begin, page.find("</script>", begin) - begin);
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

ModelCapture Large(int64_t layers, int64_t heads, int64_t tokens) {
  ModelCapture capture = test::MakeCapture(std::vector<std::string>(tokens, "word"), {});
  capture.layers = layers;
  capture.heads = heads;
  capture.layer_ids.clear();
  capture.head_ids.clear();
  for (int64_t i = 0; i < layers; ++i) capture.layer_ids.push_back(i);
  for (int64_t i = 0; i < heads; ++i) capture.head_ids.push_back(i);
  capture.weights.assign(layers * heads * tokens * tokens, 1.0f / static_cast<float>(tokens));
  return capture;
}

TEST(Page, HoldsTheWeightsAndNeedsNothingElse) {
  const ModelCapture capture = test::ReadCapture(QKV_GOLDEN "/view", "chicken");
  ViewOptions options;
  options.text = test::ReadText(QKV_GOLDEN "/view", "chicken");
  options.focus = {10};
  const std::string page = Page(capture, options);
  const auto data = nlohmann::json::parse(DataOf(page));
  EXPECT_EQ(data["labels"][2], "chicken");
  EXPECT_EQ(data["names"][1], "the#1");
  EXPECT_EQ(data["title"], options.text);
  EXPECT_EQ(data["focus"], std::vector<int64_t>{10});
  EXPECT_EQ(data["cells"].size(), 72u);
  EXPECT_EQ(data["notice"], "");
  EXPECT_EQ(data["weights"].get<std::string>().size(), 6u * 12 * 15 * 15 * 2 / 3 * 4);
  for (const char* other : {"http:", "https:", "src=", "@import", "url(", "{{"})
    EXPECT_THAT(page, Not(HasSubstr(other)));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_EQ(page, Page(capture, options));
}

TEST(Page, QuantisesLittleEndian16Bit) {
  const auto data = nlohmann::json::parse(DataOf(Page(test::MakeCapture({"x"}, {1.0f}), {})));
  EXPECT_EQ(data["weights"], "//8=");
  const auto two = nlohmann::json::parse(DataOf(Page(test::MakeCapture({"x", "y"}, {0, 1, 0.5f, 0.5f}), {})));
  EXPECT_EQ(two["weights"], "AAD//wCAAIA=");  // 0, 65535, 32768, 32768
}

TEST(Page, ShowsHostileTextLiterallyAndNeverRaw) {
  const std::vector<std::string> hostile = {"</script>", "<!--", "<script>", "a<b&c", "\"quote'", "{{data}}",
                                            "\u2028",    "\x1b", "\n",       "\xff",  "😀",        "שלום"};
  const auto capture = test::MakeCapture(hostile, std::vector<float>(hostile.size() * hostile.size(), 0.05f));
  ViewOptions options;
  options.text = "</script><script>alert(1)</script><!--{{style}}";
  const std::string page = Page(capture, options);
  EXPECT_EQ(CountOf(page, "</script>"), 2u);
  EXPECT_EQ(CountOf(page, "<script"), 2u);
  const std::string data = DataOf(page);
  for (const char c : {'<', '>', '&', '\x1b', '\n'}) EXPECT_EQ(data.find(c), data.npos) << static_cast<int>(c);
  EXPECT_TRUE(std::all_of(data.begin(), data.end(), [](char c) { return c >= ' ' && c <= '~'; }));
  const auto json = nlohmann::json::parse(data);
  EXPECT_EQ(json["labels"][0], "</script>");
  EXPECT_EQ(json["labels"][5], "{{data}}");
  EXPECT_EQ(json["labels"][6], "<U+2028>");
  EXPECT_EQ(json["labels"][7], "␛");
  EXPECT_EQ(json["title"], options.text);
}

TEST(Page, KeepsTheStrongestKeysOfLongTextsAndSaysSo) {
  const std::string page = Page(Large(6, 12, 300), {});
  EXPECT_LE(page.size(), size_t{16} << 20);
  const auto data = nlohmann::json::parse(DataOf(page));
  EXPECT_THAT(data["notice"].get<std::string>(), HasSubstr("strongest keys of each row"));
  EXPECT_GE(data["k"], 8);
  EXPECT_EQ(data["cells"].size(), 72u);
  EXPECT_EQ(data["weights"].get<std::string>().size(), data["keys"].get<std::string>().size());
}

TEST(Page, KeepsTheStrongestHeadsWhereEvenThatIsTooMuch) {
  ModelCapture capture = test::KeepTop(Large(1, 1, 800), 8);
  capture.layers = 40;
  capture.heads = 20;
  for (int64_t layer = 1; layer < 40; ++layer) capture.layer_ids.push_back(layer);
  for (int64_t head = 1; head < 20; ++head) capture.head_ids.push_back(head);
  const std::vector<int64_t> keys = capture.top_keys;
  const std::vector<float> weights = capture.top_weights;
  for (int64_t copy = 1; copy < 40 * 20; ++copy) {
    capture.top_keys.insert(capture.top_keys.end(), keys.begin(), keys.end());
    capture.top_weights.insert(capture.top_weights.end(), weights.begin(), weights.end());
  }
  const std::string page = Page(capture, {});
  EXPECT_LE(page.size(), size_t{16} << 20);
  const auto data = nlohmann::json::parse(DataOf(page));
  EXPECT_LT(data["cells"].size(), 800u);
  EXPECT_THAT(data["notice"].get<std::string>(), HasSubstr("of 800 heads"));
}

TEST(Page, PadsShortRowsOfTopCaptures) {
  ModelCapture capture = test::KeepTop(test::MakeCapture({"x", "y"}, {1, 0, 0.5f, 0.5f}), 3);
  const auto data = nlohmann::json::parse(DataOf(Page(capture, {})));
  EXPECT_EQ(data["k"], 3);
  EXPECT_EQ(data["keys"], "AAD/////AAABAP//");  // 0 - -, 0 1 -
}

}  // namespace
}  // namespace qkv
