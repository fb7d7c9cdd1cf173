// Units: sizes and durations as people write them. Parsing is declared in config.h.
#pragma once

#include <cstdint>
#include <string>

namespace prefixfs {

// The shortest text that ParseSize reads back as exactly `bytes`: 8388608 is "8M", 1000 is "1000".
std::string SizeText(uint64_t bytes);
// The shortest text that ParseDurationMs reads back as exactly `ms`: 600000 is "10m".
std::string DurationText(int64_t ms);
// For people: three digits and a binary unit, "1.50 GiB".
std::string HumanBytes(uint64_t bytes);

}  // namespace prefixfs
