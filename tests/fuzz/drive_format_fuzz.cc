// The two small text files that a start reads first: PREFIXFS of a drive and STATE of the index.
// What is read must be read again from what would be written for it.
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include "cache/base/fd.h"
#include "cache/index/index_state.h"
#include "cache/store/drive_format.h"
#include "tests/fuzz/fuzz.h"

namespace prefixfs {
namespace {

void CheckFormat(std::string_view text) {
  const Result<DriveFormat> read = FormatFromText(text);
  if (!read.ok()) {
    FUZZ_CHECK(read.status().Is(Code::kCorrupt) || read.status().Is(Code::kInvalid));
    return;
  }
  const DriveFormat& format = *read;
  FUZZ_CHECK(IsUuid(format.uuid) && format.slot <= UINT16_MAX);
  FUZZ_CHECK(format.slots_given <= UINT16_MAX + 1u);
  const std::string written = FormatToText(format);
  FUZZ_CHECK(written.size() <= kMaxDriveFormat);
  const Result<DriveFormat> again = FormatFromText(written);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again->uuid == format.uuid && again->pool_uuid == format.pool_uuid);
  FUZZ_CHECK(again->slot == format.slot && again->slots_given == format.slots_given);
}

// With the digest that the text should have.
std::string Closed(std::string_view text) {
  std::string closed(text.substr(0, text.find("digest ")));
  const XXH128_hash_t hash = XXH3_128bits(closed.data(), closed.size());
  char line[48];
  std::snprintf(line, sizeof(line), "digest %016llx%016llx\n",
                static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return closed + line;
}

void CheckState(std::string_view text) {
  static const Fd directory(
      ::open(fuzz::ScratchDirectory().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  {
    const Fd file(::openat(directory.get(), "STATE", O_WRONLY | O_CREAT | O_TRUNC, 0600));
    FUZZ_CHECK(::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  const IndexState state = ReadIndexState(directory.get()).value();
  // Nothing that was not said by the file.
  FUZZ_CHECK(state.clean || !state.boot_id.empty() || state.digest.empty());
  FUZZ_CHECK(text.find(state.boot_id) != std::string_view::npos);
  if (state.boot_id.empty()) return;
  FUZZ_CHECK(WriteIndexState(directory.get(), state).ok());
  const IndexState again = ReadIndexState(directory.get()).value();
  FUZZ_CHECK(again.boot_id == state.boot_id && again.clean == state.clean);
  FUZZ_CHECK(again.digest == state.digest);
}

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  const std::string uuid = "8d0c2f6e-0000-4000-8000-0123456789ab";
  return {FormatToText({.uuid = uuid}),
          FormatToText({.uuid = uuid, .pool_uuid = uuid, .slot = 65535, .slots_given = 65536}),
          "prefixfs-drive 2\n", "prefixfs-index-state 1\nboot abc-def\nin use\n",
          "prefixfs-index-state 1\nboot abc-def\nclean\ndigest 4096 00112233445566778899\n"};
}

}  // namespace prefixfs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = prefixfs::fuzz::Text(data, size);
  prefixfs::CheckFormat(text);
  prefixfs::CheckFormat(prefixfs::Closed(text));
  prefixfs::CheckState(text);
  return 0;
}
