#include "sim/base/units.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <variant>

namespace shardline {
namespace {

template <class Q>
double value_of(const std::string& text) {
  const auto result = parse_quantity<Q>(text);
  if (const auto* error = std::get_if<std::string>(&result)) {
    ADD_FAILURE() << text << ": " << *error;
    return std::numeric_limits<double>::quiet_NaN();
  }
  return std::get<Q>(result).value;
}

template <class Q>
std::string error_of(const std::string& text) {
  const auto result = parse_quantity<Q>(text);
  return std::holds_alternative<std::string>(result) ? std::get<std::string>(result) : "accepted";
}

TEST(Units, DimensionsFollowArithmetic) {
  static_assert(std::is_same_v<decltype(Bytes(1) / BytesPerSecond(1)), Seconds>);
  static_assert(std::is_same_v<decltype(FlopsPerSecond(1) * Seconds(1)), Flops>);
  static_assert(std::is_same_v<decltype(1.0 / Seconds(1)), PerSecond>);
  static_assert(std::is_same_v<decltype(PerSecond(1) * Seconds(1)), double>);
  EXPECT_EQ((gigabytes(900) / gigabytes_per_second(450)).value, 2.0);
}

TEST(Units, ReadsTimes) {
  EXPECT_EQ(value_of<Seconds>("4 us"), 4e-6);
  EXPECT_EQ(value_of<Seconds>("6.82us"), 6.82e-6);  // one rounding: the literal's own value
  EXPECT_EQ(value_of<Seconds>("0.3 ms"), 0.3e-3);
  EXPECT_EQ(value_of<Seconds>("3 ns"), 3e-9);
  EXPECT_EQ(value_of<Seconds>(" 1e3  ms "), 1.0);
  EXPECT_EQ(value_of<Seconds>("2 min"), 120.0);
  EXPECT_EQ(value_of<Seconds>("1.5 h"), 5400.0);
  EXPECT_EQ(value_of<Seconds>("-1 s"), -1.0);
  EXPECT_EQ(value_of<Seconds>("0e99 s"), 0.0);
}

TEST(Units, ReadsSizesAndRates) {
  EXPECT_EQ(value_of<Bytes>("186 GB"), 186e9);
  EXPECT_EQ(value_of<Bytes>("1 kB"), 1e3);
  EXPECT_EQ(value_of<Bytes>("1 KB"), 1e3);
  EXPECT_EQ(value_of<Bytes>("3 KiB"), 3072.0);
  EXPECT_EQ(value_of<Bytes>("1 TiB"), std::ldexp(1.0, 40));
  EXPECT_EQ(value_of<BytesPerSecond>("450 GB/s"), 450e9);
  EXPECT_EQ(value_of<BytesPerSecond>("1 GiB/s"), std::ldexp(1.0, 30));
  EXPECT_EQ(value_of<BytesPerSecond>("400 Gb/s"), 50e9);
  EXPECT_EQ(value_of<BytesPerSecond>("8 Mb/s"), 1e6);
  EXPECT_EQ(value_of<BytesPerSecond>("1.6 Tb/s"), 0.2e12);
  EXPECT_EQ(value_of<Flops>("3 TFLOP"), 3e12);
  EXPECT_EQ(value_of<Flops>("7 exp"), 7.0);
  EXPECT_EQ(value_of<FlopsPerSecond>("10 PFLOP/s"), 10e15);
  EXPECT_EQ(value_of<FlopsPerSecond>("989.5 TFLOP/s"), 989.5e12);
  EXPECT_EQ(value_of<FlopsPerSecond>("5 Texp/s"), 5e12);
}

TEST(Units, SaysWhatWasExpected) {
  const std::string bandwidth = "expected a bandwidth such as \"450 GB/s\", found ";
  EXPECT_EQ(error_of<BytesPerSecond>("450"), bandwidth + "a number without a unit");
  EXPECT_EQ(error_of<BytesPerSecond>("450 GB"), bandwidth + "the unit \"GB\"");
  EXPECT_EQ(error_of<BytesPerSecond>("450 Gbps"), bandwidth + "the unit \"Gbps\"");
  EXPECT_EQ(error_of<BytesPerSecond>(""), bandwidth + "nothing");
  EXPECT_EQ(error_of<BytesPerSecond>("GB/s"), bandwidth + "\"GB/s\"");
  EXPECT_EQ(error_of<BytesPerSecond>("1,5 GB/s"), bandwidth + "a comma: write \"1.5 GB/s\"");
  EXPECT_EQ(error_of<BytesPerSecond>("1,5,5 GB/s"), bandwidth + "the unit \",5,5 GB/s\"");
  EXPECT_EQ(error_of<Seconds>("4 US"), "expected a time such as \"4 us\", found the unit \"US\"");
  EXPECT_EQ(error_of<Seconds>("nan s"), "expected a time such as \"4 us\", found \"nan s\"");
  EXPECT_EQ(error_of<Seconds>("inf s"), "expected a time such as \"4 us\", found \"inf s\"");
  EXPECT_EQ(error_of<Seconds>("-inf s"), "expected a time such as \"4 us\", found \"-inf s\"");
  EXPECT_EQ(error_of<Seconds>("+4 us"), "expected a time such as \"4 us\", found \"+4 us\"");
  EXPECT_EQ(error_of<Bytes>("0x10 GB"), "expected a size such as \"186 GB\", found a hexadecimal number");
  EXPECT_EQ(error_of<Bytes>("010 GB"),
            "expected a size such as \"186 GB\", found a number with a leading zero");
  EXPECT_EQ(error_of<Bytes>("1e308 TB"),
            "expected a size such as \"186 GB\", found a number outside the range of a double");
  EXPECT_EQ(error_of<Bytes>("1e999 B"),
            "expected a size such as \"186 GB\", found a number outside the range of a double");
  // Nothing but zero is zero.
  for (const char* text : {"1e-320 us", "-5e-324 ns", "0.001e-322 ms"})
    EXPECT_EQ(error_of<Seconds>(text),
              "expected a time such as \"4 us\", found a number outside the range of a double")
        << text;
  for (const char* text : {"0 us", "0.00e7 us", "-0 us", "0e-400 us"})
    EXPECT_EQ(std::get<Seconds>(parse_quantity<Seconds>(text)).value, 0) << text;
  EXPECT_EQ(error_of<Flops>("3 TFLOP/s"),
            "expected an amount of work such as \"3 TFLOP\", found the unit \"TFLOP/s\"");
  EXPECT_EQ(error_of<FlopsPerSecond>("10 PFLOPS"),
            "expected a rate such as \"10 PFLOP/s\", found the unit \"PFLOPS\"");
}

TEST(Units, PrintsTheBestPrefix) {
  EXPECT_EQ(to_string(gigabytes_per_second(450)), "450 GB/s");
  EXPECT_EQ(to_string(Seconds(6.82e-6)), "6.82 us");
  EXPECT_EQ(to_string(Seconds(0)), "0 s");
  EXPECT_EQ(to_string(Seconds(-0.0)), "0 s");
  EXPECT_EQ(to_string(Seconds(-4e-6)), "-4 us");
  EXPECT_EQ(to_string(Seconds(1)), "1 s");
  EXPECT_EQ(to_string(Seconds(0.5)), "500 ms");
  EXPECT_EQ(to_string(Seconds(7200)), "7200 s");
  EXPECT_EQ(to_string(Seconds(123456)), "123500 s");
  EXPECT_EQ(to_string(Seconds(1e-12)), "0.001 ns");
  EXPECT_EQ(to_string(Seconds(1.25e-30)), "1.25e-30 s");
  EXPECT_EQ(to_string(Bytes(1)), "1 B");
  EXPECT_EQ(to_string(Bytes(999.96)), "1 kB");  // rounding moves it to the next prefix
  EXPECT_EQ(to_string(Bytes(999.94)), "999.9 B");
  EXPECT_EQ(to_string(Bytes(1e40)), "1e40 B");
  EXPECT_EQ(to_string(Flops(3.5e12)), "3.5 TFLOP");
  EXPECT_EQ(to_string(FlopsPerSecond(10e15)), "10 PFLOP/s");
  EXPECT_EQ(to_string(Seconds(1.0 / 3), 2), "330 ms");
  EXPECT_EQ(to_string(Seconds(1.0 / 3), 7), "333.3333 ms");
  EXPECT_EQ(to_string(Seconds(456), 1), "500 s");
  EXPECT_EQ(to_string(Seconds(std::numeric_limits<double>::infinity())), "inf s");
}

template <class Q>
void round_trip(std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> exponent(-40, 40);
  for (int i = 0; i < 2000; ++i) {
    const double sign = rng() % 2 == 0 ? 1 : -1;
    const Q q(sign * std::pow(10.0, exponent(rng)));
    const std::string exact = to_string(q, 17);
    SCOPED_TRACE(exact);
    EXPECT_EQ(value_of<Q>(exact), q.value);
    const std::string brief = to_string(q);
    EXPECT_NEAR(value_of<Q>(brief) / q.value, 1.0, 5.001e-4) << brief;  // half a unit of the fourth digit
    EXPECT_EQ(to_string(Q(value_of<Q>(brief))), brief);
  }
}

TEST(Units, RoundTrip) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    SCOPED_TRACE(seed);
    round_trip<Seconds>(seed);
    round_trip<Bytes>(seed);
    round_trip<BytesPerSecond>(seed);
    round_trip<Flops>(seed);
    round_trip<FlopsPerSecond>(seed);
  }
}

long long tokens(const std::string& text) {
  const auto result = parse_tokens(text);
  if (const auto* error = std::get_if<std::string>(&result)) {
    ADD_FAILURE() << text << ": " << *error;
    return -1;
  }
  return std::get<long long>(result);
}

std::string tokens_error(const std::string& text) {
  const auto result = parse_tokens(text);
  return std::holds_alternative<std::string>(result) ? std::get<std::string>(result) : "accepted";
}

TEST(Units, ReadsTokens) {
  EXPECT_EQ(tokens("1000000 tokens"), 1'000'000);
  EXPECT_EQ(tokens("1M tokens"), 1'048'576);
  EXPECT_EQ(tokens("1Mi tokens"), 1'048'576);
  EXPECT_EQ(tokens("128K tokens"), 131'072);
  EXPECT_EQ(tokens("1G tokens"), 1'073'741'824);
  EXPECT_EQ(tokens("128Ki tokens"), 131'072);
  EXPECT_EQ(tokens("128 Ki tokens"), 131'072);
  EXPECT_EQ(tokens("1 token"), 1);
  EXPECT_EQ(tokens("4tokens"), 4);
  EXPECT_EQ(tokens("2k tokens"), 2048);
  EXPECT_EQ(tokens("2K tokens"), 2048);
  EXPECT_EQ(tokens("1.5k tokens"), 1536);
  EXPECT_EQ(tokens("1.1e6 tokens"), 1'100'000);
  EXPECT_EQ(tokens("32,768 tokens"), 32'768);
  EXPECT_EQ(tokens("1,048,576 tokens"), 1'048'576);
  EXPECT_EQ(tokens("0.5Ki tokens"), 512);
  EXPECT_EQ(tokens("1e6 tokens"), 1'000'000);
  EXPECT_EQ(tokens("9007199254740993 tokens"), 9'007'199'254'740'993);
  EXPECT_EQ(tokens("9223372036854775807 tokens"), std::numeric_limits<long long>::max());
}

TEST(Units, RefusesTokens) {
  const std::string wanted = "expected a count of tokens such as \"128Ki tokens\", found ";
  EXPECT_EQ(tokens_error("1000"), wanted + "a number without a unit: write \"1000 tokens\"");
  for (const char* text : {"1,2 tokens", "1,23 tokens", "1,2345 tokens", "1234,567 tokens", ",123 tokens",
                           "1,,234 tokens", "1,234,56 tokens", "0,123 tokens"})
    EXPECT_THAT(tokens_error(text), ::testing::StartsWith(wanted)) << text;
  EXPECT_EQ(tokens_error("32K"), wanted + "the unit \"K\": write \"32K tokens\"");
  EXPECT_EQ(tokens_error("1.1M tokens"), wanted + "a fraction of a token");
  // What would be refused in turn is not proposed.
  EXPECT_EQ(tokens_error("1.0001K"), wanted + "a fraction of a token");
  EXPECT_EQ(tokens_error("1.5"), wanted + "a fraction of a token");
  EXPECT_EQ(tokens_error("1 T tokens"), wanted + "the unit \"T tokens\"");
  EXPECT_EQ(tokens_error("1 GB"), wanted + "the unit \"GB\"");
  EXPECT_EQ(tokens_error("0.1Ki tokens"), wanted + "a fraction of a token");
  EXPECT_EQ(tokens_error("1.5 tokens"), wanted + "a fraction of a token");
  EXPECT_EQ(tokens_error("9223372036854775808 tokens"), wanted + "more tokens than 64 bits hold");
  EXPECT_EQ(tokens_error("9300000000G tokens"), wanted + "more tokens than 64 bits hold");
  EXPECT_EQ(tokens_error("1e400 tokens"), wanted + "a number outside the range of a double");
  EXPECT_EQ(tokens_error("tokens"), wanted + "\"tokens\"");
  EXPECT_EQ(tokens_error("010 tokens"), wanted + "a number with a leading zero");
}

}  // namespace
}  // namespace shardline
