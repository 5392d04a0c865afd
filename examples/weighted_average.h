// What the first lesson's program and its picture share: the people, and the weights that the operator gives
// them.
#pragma once

#include <qkv/attention.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace lesson {

struct Person {
  const char* name;
  std::array<float, 2> attributes;  // strength, intelligence
  float wins;                       // of 100 duels
};

inline constexpr std::array<Person, 6> kPeople = {{{"Ada", {198, 295}, 34},
                                                   {"Bao", {215, 270}, 41},
                                                   {"Cleo", {248, 301}, 58},
                                                   {"Dan", {262, 205}, 49},
                                                   {"Eva", {285, 231}, 63},
                                                   {"Finn", {310, 188}, 72}}};
inline constexpr std::array<float, 2> kNewcomer = {207, 289};
inline constexpr int64_t kNumPeople = kPeople.size();

// Vectors of one width, one after the other.
struct Vectors {
  int64_t width = 0;
  std::vector<float> numbers;
  int64_t count() const { return static_cast<int64_t>(numbers.size()) / width; }
};

struct Group {
  Vectors people, newcomers;
};

// The people and the newcomer with their first `width` attributes.
inline Group FirstAttributes(int64_t width) {
  Group group{{width, {}}, {width, {}}};
  for (const Person& person : kPeople) {
    group.people.numbers.insert(group.people.numbers.end(), person.attributes.begin(),
                                person.attributes.begin() + width);
  }
  group.newcomers.numbers.assign(kNewcomer.begin(), kNewcomer.begin() + width);
  return group;
}

// Every attribute less the people's mean, divided by their standard deviation.
inline Group Standardised(Group group) {
  const int64_t width = group.people.width, count = group.people.count();
  for (int64_t c = 0; c < width; ++c) {
    float sum = 0, squares = 0;
    for (int64_t i = 0; i < count; ++i) sum += group.people.numbers[i * width + c];
    const float mean = sum / static_cast<float>(count);
    for (int64_t i = 0; i < count; ++i) {
      const float difference = group.people.numbers[i * width + c] - mean;
      squares += difference * difference;
    }
    const float deviation = std::sqrt(squares / static_cast<float>(count));
    for (Vectors* vectors : {&group.people, &group.newcomers}) {
      for (int64_t i = 0; i < vectors->count(); ++i) {
        float& number = vectors->numbers[i * width + c];
        number = (number - mean) / deviation;
      }
    }
  }
  return group;
}

// The weighted average of the values, for each of the queries: qkv's operator. No scale: 1 / sqrt(width).
inline Vectors Average(const Vectors& queries, const Vectors& keys, const Vectors& values,
                       std::optional<float> scale) {
  Vectors out{values.width, std::vector<float>(queries.count() * values.width)};
  qkv::AttentionOptions options;
  options.scale = scale;
  qkv::Attention({queries.numbers.data(), {1, 1, queries.count(), queries.width}},
                 {keys.numbers.data(), {1, 1, keys.count(), keys.width}},
                 {values.numbers.data(), {1, 1, values.count(), values.width}}, options,
                 {out.numbers.data(), {1, 1, out.count(), out.width}});
  return out;
}

// The weights themselves: the average of values that are 1 in the key's own place and 0 elsewhere.
inline Vectors Weights(const Vectors& queries, const Vectors& keys, std::optional<float> scale) {
  Vectors own{keys.count(), std::vector<float>(keys.count() * keys.count())};
  for (int64_t i = 0; i < keys.count(); ++i) own.numbers[i * keys.count() + i] = 1;
  return Average(queries, keys, own, scale);
}

}  // namespace lesson
