// Metrics: the same figures as stats in Prometheus text, by prometheus-cpp's serializer.
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "fs/control.h"

namespace prefixfs {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Bytes of the character that `text` begins with, by RFC 3629; 0 if it begins with none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) -> unsigned { return i < text.size() ? text[i] & 0xFFu : 0; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4 || !follows(1)) return 0;
  if (first < 0xE0) return 2;
  if (!follows(2)) return 0;
  // Longer than need be, or a surrogate.
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if (first < 0xF0) return 3;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return follows(3) ? 4 : 0;
}

// Names are bytes, labels are UTF-8: one that is not costs the scraper all metrics. So other bytes
// are written as \xHH.
std::string LabelText(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  while (!bytes.empty()) {
    const size_t size = CharacterBytes(bytes);
    if (size == 0) {
      const unsigned byte = bytes[0] & 0xFFu;
      text.append("\\x") += {kDigits[byte >> 4], kDigits[byte & 15]};
    }
    text.append(bytes.substr(0, size));
    bytes.remove_prefix(std::max<size_t>(size, 1));
  }
  return text;
}

ClientMetric Value(MetricType type, double value, Labels labels) {
  ClientMetric metric;
  metric.label = std::move(labels);
  if (type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return metric;
}

MetricFamily Single(const char* name, const char* help, MetricType type, uint64_t value) {
  return {name, help, type, {Value(type, static_cast<double>(value), {})}};
}

MetricFamily Durations(const OpStats& stats) {
  MetricFamily family{"prefixfs_operation_duration_seconds",
                      "Time from request to reply by operation.",
                      MetricType::Histogram,
                      {}};
  for (size_t i = 0; i < static_cast<size_t>(Op::kCount); ++i) {
    const auto snapshot = stats.Read(static_cast<Op>(i));
    if (snapshot.count == 0) continue;
    ClientMetric metric;
    metric.label = {{"operation", std::string(OpName(static_cast<Op>(i)))}};
    metric.histogram.sample_count = snapshot.count;
    metric.histogram.sample_sum = static_cast<double>(snapshot.sum_us) / 1e6;
    uint64_t below = 0;
    for (size_t bucket = 0; bucket < OpStats::kBuckets; ++bucket) {
      below += snapshot.buckets[bucket];
      const bool last = bucket + 1 == OpStats::kBuckets;
      metric.histogram.bucket.push_back(
          {below, last ? std::numeric_limits<double>::infinity()
                       : static_cast<double>(OpStats::BucketLimitUs(bucket)) / 1e6});
    }
    family.metric.push_back(std::move(metric));
  }
  return family;
}

MetricFamily Errors(const OpStats& stats) {
  MetricFamily family{"prefixfs_operation_errors_total",
                      "Operations answered with an error, absent names included.",
                      MetricType::Counter,
                      {}};
  for (size_t i = 0; i < static_cast<size_t>(Op::kCount); ++i) {
    const auto snapshot = stats.Read(static_cast<Op>(i));
    if (snapshot.count == 0) continue;
    family.metric.push_back(Value(MetricType::Counter, static_cast<double>(snapshot.errors),
                                  {{"operation", std::string(OpName(static_cast<Op>(i)))}}));
  }
  return family;
}

void AddDrives(const Cache::Report& report, std::vector<MetricFamily>* families) {
  MetricFamily failed{"prefixfs_drive_failed",
                      "1 if the drive is lost and its blocks are misses.",
                      MetricType::Gauge,
                      {}};
  MetricFamily stalled{"prefixfs_drive_stalled",
                       "1 if the drive does not answer what it was asked.",
                       MetricType::Gauge,
                       {}};
  MetricFamily free{
      "prefixfs_drive_free_bytes", "Free bytes of the drive's filesystem.", MetricType::Gauge, {}};
  for (const auto& drive : report.drives) {
    // Not everybody may know the path.
    const Labels labels{
        {"drive", drive.path.empty() ? std::to_string(drive.slot) : LabelText(drive.path)}};
    stalled.metric.push_back(Value(MetricType::Gauge, drive.stalled ? 1 : 0, labels));
    failed.metric.push_back(Value(MetricType::Gauge, drive.failed ? 1 : 0, labels));
    free.metric.push_back(Value(MetricType::Gauge, static_cast<double>(drive.free), labels));
  }
  families->push_back(std::move(failed));
  families->push_back(std::move(stalled));
  families->push_back(std::move(free));
}

void AddModels(const Cache::Report& report, std::vector<MetricFamily>* families) {
  MetricFamily blocks{"prefixfs_model_blocks",
                      "Sealed blocks by model, as its clients' names tell it.",
                      MetricType::Gauge,
                      {}};
  MetricFamily bytes{
      "prefixfs_model_bytes", "Bytes of sealed blocks by model.", MetricType::Gauge, {}};
  for (const auto& model : report.models) {
    const Labels labels{{"model", LabelText(model.model)}};
    blocks.metric.push_back(Value(MetricType::Gauge, static_cast<double>(model.blocks), labels));
    bytes.metric.push_back(Value(MetricType::Gauge, static_cast<double>(model.bytes), labels));
  }
  families->push_back(std::move(blocks));
  families->push_back(std::move(bytes));
}

// What was found out about the blocks' bytes.
void AddIntegrity(const Cache::Report& report, const Counters& c,
                  std::vector<MetricFamily>* families) {
  constexpr auto kGauge = MetricType::Gauge;
  constexpr auto kCounter = MetricType::Counter;
  const auto add = [&](const char* name, const char* help, MetricType type, uint64_t value) {
    families->push_back(Single(name, help, type, value));
  };
  add("prefixfs_corrupt_blocks_total", "Blocks dropped by their checksum.", kCounter,
      c.corrupt_blocks.load());
  add("prefixfs_quarantined_blocks", "Damaged blocks kept for inspection.", kGauge,
      report.quarantined_blocks);
  add("prefixfs_quarantined_bytes", "Bytes that they take.", kGauge, report.quarantined_bytes);
  add("prefixfs_verified_blocks_total", "Blocks compared with their checksum at an open.", kCounter,
      c.verified_blocks.load());
  add("prefixfs_scrubbed_blocks_total", "Blocks compared by the scrubber.", kCounter,
      report.scrubbed_blocks);
  add("prefixfs_scrubbed_bytes_total", "Bytes read by the scrubber.", kCounter,
      report.scrubbed_bytes);
  add("prefixfs_suspected_blocks_total", "Blocks unlinked by a thread that had just opened them.",
      kCounter, c.suspected_blocks.load());
  add("prefixfs_orphans_total", "Blocks removed from under temporary names.", kCounter,
      c.orphans.load());
  add("prefixfs_checksum_reread_bytes_total",
      "Bytes read from a drive for a first checksum, because they were not in the page cache.",
      kCounter, c.checksum_reread.load());
}

}  // namespace

std::string Control::Metrics(Access& access) {
  const Cache::Report report = ReportFor(access);
  const Counters& c = cache_.counters();
  constexpr auto kGauge = MetricType::Gauge;
  constexpr auto kCounter = MetricType::Counter;
  std::vector<MetricFamily> families{
      Single("prefixfs_capacity_bytes", "The byte budget.", kGauge, report.capacity),
      Single("prefixfs_used_bytes", "Bytes the tier takes on its filesystems.", kGauge,
             report.used),
      Single("prefixfs_reserved_bytes", "Bytes promised to files being written.", kGauge,
             report.reserved),
      Single("prefixfs_blocks", "Sealed blocks.", kGauge, report.blocks),
      Single("prefixfs_inodes", "Blocks, directories and links, those being written included.",
             kGauge, report.inodes),
      Single("prefixfs_max_inodes", "The most of them that there may be.", kGauge,
             report.max_inodes),
      Single("prefixfs_backing_files", "Backing files that the kernel keeps open for passthrough.",
             kGauge, nodes_.registered()),
      Single("prefixfs_unchecked_blocks", "Sealed blocks waiting for their checksum.", kGauge,
             report.unchecked),
      Single("prefixfs_evicted_blocks_total", "Blocks evicted.", kCounter, c.evicted_blocks.load()),
      Single("prefixfs_evicted_bytes_total", "Bytes evicted.", kCounter, c.evicted_bytes.load()),
      Single("prefixfs_undeletable_blocks_total", "Evictions that the filesystem refused.",
             kCounter, c.undeletable_blocks.load()),
      Single("prefixfs_opens_total", "Files opened.", kCounter, c.opens.load()),
      Single("prefixfs_lookup_hits_total", "Lookups of files that were there.", kCounter,
             c.hits.load()),
      Single("prefixfs_lookup_misses_total", "Lookups of names that were not.", kCounter,
             c.misses.load()),
      Single("prefixfs_published_total", "Files published.", kCounter, c.published.load()),
      Single("prefixfs_torn_writes_total", "Writers killed before they closed.", kCounter,
             c.torn.load()),
      Single("prefixfs_no_space_total", "Creates refused because nothing could be evicted.",
             kCounter, c.no_space.load()),
      Single("prefixfs_no_descriptors_total",
             "Opens refused because the daemon may open no more files.", kCounter,
             c.no_descriptors.load()),
      Single("prefixfs_slow_requests_total", "Requests that took longer than request_limit.",
             kCounter, c.slow_requests.load()),
      Single("prefixfs_late_requests_total", "Requests answered at their deadline.", kCounter,
             c.late_requests.load()),
      Errors(stats_),
      Durations(stats_)};
  AddIntegrity(report, c, &families);
  AddDrives(report, &families);
  AddModels(report, &families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace prefixfs
