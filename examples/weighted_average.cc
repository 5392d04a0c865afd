// The first lesson's numbers (docs/tutorial/1-weighted-average.md), printed in its order.
#include "weighted_average.h"

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <random>
#include <string>

using lesson::Average;
using lesson::Group;
using lesson::kPeople;
using lesson::Vectors;
using lesson::Weights;

namespace {

void Print(const char* label, const Vectors& vectors, int64_t row) {
  std::printf("%-10s", label);
  for (int64_t c = 0; c < vectors.width; ++c) std::printf("%8.2f", vectors.numbers[row * vectors.width + c]);
  std::printf("\n");
}

// With queries of zeros every score is 0, and every weight the same.
void PlainAverage() {
  const Vectors words = {2, {4, 0, 0, 3, 2, 3}}, zeros = {2, std::vector<float>(6)};
  const Vectors plain = Average(zeros, words, words, 1.0f);
  const char* names[] = {"chicken", "road", "tired"};
  std::printf("the words' vectors\n");
  for (int64_t i = 0; i < 3; ++i) Print(names[i], words, i);
  std::printf("\nafter the plain average\n");
  for (int64_t i = 0; i < 3; ++i) Print(names[i], plain, i);
}

float Score(const Group& group, int64_t person) {
  const int64_t width = group.people.width;
  float score = 0;
  for (int64_t c = 0; c < width; ++c) {
    score += group.newcomers.numbers[c] * group.people.numbers[person * width + c];
  }
  return score;
}

float Guess(const Group& group, std::optional<float> scale) {
  Vectors wins{1, {}};
  for (const auto& person : kPeople) wins.numbers.push_back(person.wins);
  return Average(group.newcomers, group.people, wins, scale).numbers[0];
}

void PrintRaw(int64_t width) {
  const Group group = lesson::FirstAttributes(width);
  const Vectors weights = Weights(group.newcomers, group.people, 1.0f);
  std::printf("           score  weight  wins\n");
  for (int64_t i = 0; i < lesson::kNumPeople; ++i) {
    std::printf("%-5s %10.0f %7.3f %5.0f\n", kPeople[i].name, Score(group, i), weights.numbers[i],
                kPeople[i].wins);
  }
  std::printf("newcomer's wins, guessed: %.1f\n", Guess(group, 1.0f));
}

// Every step from the score to the weight, which is the operator's; its own scale is 1 / sqrt(width).
void PrintSteps(int64_t width) {
  const Group group = lesson::Standardised(lesson::FirstAttributes(width));
  const Vectors weights = Weights(group.newcomers, group.people, std::nullopt);
  std::printf("       score  scaled    exp  weight  wins\n");
  for (int64_t i = 0; i < lesson::kNumPeople; ++i) {
    const float score = Score(group, i), scaled = score / std::sqrt(static_cast<float>(width));
    std::printf("%-5s %6.2f %7.2f %6.2f %7.3f %5.0f\n", kPeople[i].name, score, scaled, std::exp(scaled),
                weights.numbers[i], kPeople[i].wins);
  }
  std::printf("newcomer's wins, guessed: %.1f\n", Guess(group, std::nullopt));
}

void PrintStandardised() {
  const Group group = lesson::Standardised(lesson::FirstAttributes(2));
  std::printf("          strength      intelligence\n");
  for (int64_t i = 0; i < lesson::kNumPeople; ++i) {
    std::printf("%-9s %4.0f %6.2f   %6.0f %6.2f\n", kPeople[i].name, kPeople[i].attributes[0],
                group.people.numbers[2 * i], kPeople[i].attributes[1], group.people.numbers[2 * i + 1]);
  }
  std::printf("newcomer  %4.0f %6.2f   %6.0f %6.2f\n", lesson::kNewcomer[0], group.newcomers.numbers[0],
              lesson::kNewcomer[1], group.newcomers.numbers[1]);
}

// Strangers with random standardised attributes: nobody is really like anybody.
Group Strangers(int64_t width, int64_t newcomers) {
  std::mt19937 random(1);
  Group group{{width, {}}, {width, {}}};
  const auto fill = [&](Vectors& vectors, int64_t count) {
    for (int64_t i = 0; i < count * width; ++i) {
      // A number between 0 and 1: its mean is 1/2, its standard deviation 1 / sqrt(12).
      const double share = static_cast<double>(random()) / 4294967296.0;
      vectors.numbers.push_back(static_cast<float>((share - 0.5) * std::sqrt(12.0)));
    }
  };
  fill(group.people, lesson::kNumPeople);
  fill(group.newcomers, newcomers);
  return group;
}

float MeanLargest(const Vectors& weights) {
  float sum = 0;
  for (int64_t i = 0; i < weights.count(); ++i) {
    const auto row = weights.numbers.begin() + i * weights.width;
    sum += *std::max_element(row, row + weights.width);
  }
  return sum / static_cast<float>(weights.count());
}

void ManyAttributes() {
  std::printf("            the largest of six weights\n");
  std::printf("attributes  as it is   score / sqrt(attributes)\n");
  for (const int64_t width : {1, 4, 16, 64, 256, 1024}) {
    const Group group = Strangers(width, 1000);
    std::printf("%10d %9.2f %12.2f\n", static_cast<int>(width),
                MeanLargest(Weights(group.newcomers, group.people, 1.0f)),
                MeanLargest(Weights(group.newcomers, group.people, std::nullopt)));
  }
}

struct Word {
  const char* text;
  std::array<float, 4> vector;  // alive, way, water, money
};

Vectors Of(std::initializer_list<Word> words) {
  Vectors vectors{4, {}};
  for (const Word& word : words) {
    vectors.numbers.insert(vectors.numbers.end(), word.vector.begin(), word.vector.end());
  }
  return vectors;
}

constexpr Word kChicken = {"chicken", {3, 0, 0, 0}}, kRoad = {"road", {0, 3, 0, 0}}, kIt = {"it", {1, 1, 0, 0}},
               kTired = {"tired", {2, 0, 0, 0}}, kWide = {"wide", {0, 2, 0, 0}}, kBank = {"bank", {0, 0, 1, 1}},
               kWalked = {"walked", {1, 1, 0, 0}}, kPond = {"pond", {0, 0, 3, 0}},
               kMoney = {"money", {0, 0, 0, 3}}, kLent = {"lent", {1, 0, 0, 2}};

void InContext(std::initializer_list<Word> sentence, const Word& word) {
  const Vectors words = Of(sentence), out = Average(Of({word}), words, words, std::nullopt);
  std::string label;
  for (const Word& other : sentence) label += std::string(label.empty() ? "" : " ") + other.text;
  std::printf("  in %-25s", label.c_str());
  for (const float number : out.numbers) std::printf("%7.2f", number);
  std::printf("\n");
}

void Static(const Word& word) {
  std::printf("%-30s", word.text);
  for (const float number : word.vector) std::printf("%7.2f", number);
  std::printf("\n");
}

void Words() {
  std::printf("%30s%7s%7s%7s%7s\n", "", "alive", "way", "water", "money");
  Static(kChicken);
  InContext({kChicken, kRoad, kIt, kTired}, kChicken);
  InContext({kChicken, kRoad, kIt, kWide}, kChicken);
  Static(kIt);
  InContext({kChicken, kRoad, kIt, kTired}, kIt);
  InContext({kChicken, kRoad, kIt, kWide}, kIt);
  Static(kBank);
  InContext({kWalked, kPond, kBank}, kBank);
  InContext({kBank, kLent, kMoney}, kBank);
}

}  // namespace

int main() {
  PlainAverage();
  std::printf("\n");
  PrintRaw(1);
  std::printf("\n");
  PrintRaw(2);
  std::printf("\n");
  PrintStandardised();
  std::printf("\n");
  PrintSteps(1);
  std::printf("\n");
  PrintSteps(2);
  std::printf("\n");
  ManyAttributes();
  std::printf("\n");
  Words();
}
